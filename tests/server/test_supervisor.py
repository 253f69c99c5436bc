"""Loading: several models in a file, the first error, names that clash, and what is shown meanwhile."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from server.dispatcher import Dispatcher
from server.engines.settings import EngineSettings
from server.errors import CertificationError, ModelLoadError
from server.loading_progress import ProgressBars, ProgressLines
from server.metrics import Metrics
from server.supervisor import Supervisor
from tests.support.fake_engine import FakeEngine, FakeEngines, describe


def supervising(progress=None, restart_backoff_s=0.5, **prepared) -> SimpleNamespace:
    metrics = Metrics(CollectorRegistry())
    dispatcher = Dispatcher(queue_limit_examples=10, queue_limit_bytes=10**6, batch_timeout_s=1.0, metrics=metrics)
    engines = FakeEngines(**prepared)
    locations = [name for name in prepared if not name.startswith("sibling")]
    supervisor = Supervisor(
        locations,
        start_engine=engines,
        engine_settings=EngineSettings(),
        dispatcher=dispatcher,
        metrics=metrics,
        progress=progress or ProgressLines(),
        restart_backoff_s=restart_backoff_s,
    )
    return SimpleNamespace(supervisor=supervisor, engines=engines)


async def test_a_file_with_several_models_gets_a_process_for_each():
    names = ("first", "sibling_a", "sibling_b")
    described = {
        name: msgspec.structs.replace(describe(name), file_models=names, file_versions=("1",) * 3) for name in names
    }
    serving = supervising(
        file=lambda: FakeEngine(description=described["first"]),
        sibling_a=lambda: FakeEngine(description=described["sibling_a"]),
        sibling_b=lambda: FakeEngine(description=described["sibling_b"]),
        other=lambda: FakeEngine(description=describe("other")),
    )
    await serving.supervisor.start()
    assert [model.name for model in serving.supervisor.models] == [*names, "other"]
    assert serving.supervisor.not_ready() is None
    assert sorted(str(source.model) for source in serving.engines.sources) == [
        "None",
        "None",
        "sibling_a",
        "sibling_b",
    ]
    await serving.supervisor.close()
    assert all(engine.exited.done() for engine in serving.engines.started)


async def test_the_first_error_ends_the_start():
    serving = supervising(
        good=lambda: FakeEngine(description=describe("good")),
        bad=lambda: FakeEngine(load_error=CertificationError("row 3 differs")),
    )
    with pytest.raises(CertificationError, match="row 3 differs"):
        await serving.supervisor.start()
    await serving.supervisor.close()


async def test_why_a_restart_failed_is_in_the_readiness_sentence():
    described = describe("m")
    engines = iter(
        [
            FakeEngine(description=described),
            FakeEngine(load_error=CertificationError("row 3 differs")),
            FakeEngine(description=described),
        ]
    )
    serving = supervising(restart_backoff_s=0.05, m=lambda: next(engines))
    supervisor = serving.supervisor
    await supervisor.start()
    (model,) = supervisor.models
    serving.engines.started[0].kill()
    seen = set()
    while model.state != "ready" or not seen:
        await asyncio.sleep(0.005)
        seen.add(supervisor.not_ready())
    assert "'m' is restarting (the last try: row 3 differs)" in seen
    assert (model.failure, supervisor.not_ready()) == ("", None)
    await supervisor.close()


async def test_two_files_with_the_same_model():
    serving = supervising(one=lambda: FakeEngine(), two=lambda: FakeEngine())
    with pytest.raises(ModelLoadError, match="'double' is registered by both one and two"):
        await serving.supervisor.start()
    await serving.supervisor.close()


async def test_progress_as_lines(caplog):
    caplog.set_level(logging.INFO)
    serving = supervising(m=lambda: FakeEngine(description=describe("m")))
    await serving.supervisor.start()
    assert "m: warm (2 steps)" in caplog.messages
    assert "m: ready (fake on cpu, 4 warm buckets)" in caplog.messages
    await serving.supervisor.close()


async def test_progress_as_bars(capsys):
    serving = supervising(ProgressBars(), m=lambda: FakeEngine(description=describe("m")))
    await serving.supervisor.start()
    assert "m: ready (fake on cpu, 4 warm buckets)" in capsys.readouterr().err
    await serving.supervisor.close()
