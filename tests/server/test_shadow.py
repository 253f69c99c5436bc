"""A share of the batches runs twice, nobody waits for it, and what came of it is counted."""

from __future__ import annotations

import asyncio
import logging
import math
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from server.dispatcher import Dispatcher
from server.engines.batch_result import BatchResult, BatchStats, RowError
from server.engines.settings import EngineSettings
from server.errors import ModelLoadError
from server.loading_progress import ProgressLines
from server.metrics import Metrics
from server.prediction import PredictRequest
from server.registry import collect_models, model
from server.shadow import first_difference
from server.supervisor import Supervisor
from tests.support.fake_engine import FakeEngine, describe

SHADOWED = msgspec.structs.replace(describe(), shadow="dynamic", shadow_share=0.5)


class Engines:
    """Makes the live engine, then the shadow; keeps which engine each was asked to be."""

    def __init__(self, shadow: FakeEngine) -> None:
        self.live = FakeEngine(description=SHADOWED)
        self.shadow = shadow
        self.settings: list[EngineSettings] = []

    def __call__(self, source: Any, settings: EngineSettings) -> FakeEngine:
        self.settings.append(settings)
        return self.shadow if settings.engine == "dynamic" else self.live


async def serving(shadow: FakeEngine) -> SimpleNamespace:
    metrics = Metrics(CollectorRegistry())
    dispatcher = Dispatcher(queue_limit_examples=10, queue_limit_bytes=10**6, batch_timeout_s=5.0, metrics=metrics)
    engines = Engines(shadow)
    supervisor = Supervisor(
        ["model.py"],
        start_engine=engines,
        engine_settings=EngineSettings(),
        dispatcher=dispatcher,
        metrics=metrics,
        progress=ProgressLines(),
    )
    await supervisor.start()
    await settle()
    return SimpleNamespace(supervisor=supervisor, dispatcher=dispatcher, metrics=metrics, engines=engines)


async def settle() -> None:
    """Lets tasks that are under way, and the thread that compares, come to their end."""
    for _ in range(20):
        await asyncio.sleep(0.005)


async def ask(service: SimpleNamespace, count: int) -> None:
    for value in range(count):
        example = (np.array([value], np.float32),)
        reply = await service.dispatcher.predict(PredictRequest("double", "predict", [example], math.inf))
        assert reply.rows[0][0].tolist() == [2.0 * value]
        await settle()


def counted(service: SimpleNamespace, name: str, **labels: str) -> float:
    found = service.metrics.registry.get_sample_value(
        name, {"model": "double", "version": "1", "signature": "predict", "engine": "dynamic", **labels}
    )
    return found or 0.0


def mirrored(service: SimpleNamespace) -> dict[str, int]:
    kinds = ("equal", "different", "failed", "skipped")
    counts = {kind: int(counted(service, "batchd_shadow_batches_total", outcome=kind)) for kind in kinds}
    return {kind: count for kind, count in counts.items() if count}


async def test_the_stated_share_is_mirrored_and_shown_beside_the_live_engine() -> None:
    service = await serving(FakeEngine())
    await ask(service, 6)
    assert [settings.engine for settings in service.engines.settings] == ["static", "dynamic"]
    assert service.engines.live.sizes == [1] * 6
    assert service.engines.shadow.sizes == [1] * 3
    assert mirrored(service) == {"equal": 3}
    assert counted(service, "batchd_compute_duration_seconds_count") == 3
    assert counted(service, "batchd_batch_size_sum") == 3
    assert counted(service, "batchd_batch_size_sum", engine="fake") == 6
    await service.supervisor.close()
    assert service.engines.shadow.exited.done()


async def test_another_answer_is_counted_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    service = await serving(FakeEngine(compute=lambda x: x * 2 + 1))
    await ask(service, 2)
    assert mirrored(service) == {"different": 1}
    assert "engine 'dynamic' answers otherwise: row 0: output 'output' differs by up to 1" in caplog.text
    await service.supervisor.close()


async def test_nobody_waits_for_a_slow_shadow() -> None:
    shadow = FakeEngine()
    shadow.gate = asyncio.Event()
    service = await serving(shadow)
    await ask(service, 6)
    assert mirrored(service) == {"skipped": 2}
    shadow.gate.set()
    await settle()
    assert mirrored(service) == {"skipped": 2, "equal": 1}
    await service.supervisor.close()


async def test_a_shadow_that_dies_or_does_not_load_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    shadow = FakeEngine()
    service = await serving(shadow)
    assert "50 % of its batches go to engine 'dynamic' too" in caplog.text
    shadow.kill()
    shadow.gate = asyncio.Event()
    await ask(service, 2)
    assert mirrored(service) == {"failed": 1}
    await service.supervisor.close()
    service = await serving(FakeEngine(load_error=ModelLoadError("can't")))
    await ask(service, 2)
    assert mirrored(service) == {}
    assert "no shadow 'dynamic': can't" in caplog.text
    await service.supervisor.close()


def result(*rows: Any) -> BatchResult:
    return BatchResult(
        [row if isinstance(row, RowError) else (np.array(row, np.float32),) for row in rows], BatchStats()
    )


@pytest.mark.parametrize(
    ("live", "shadow", "difference"),
    [
        (result([1.0, 1000.0]), result([1.001, 1000.0]), ""),
        (result([1.0]), result([1.001]), "row 0: output 'output' differs by up to 0.001"),
        (result([1.0], [2.0]), result([1.0], [2.0, 3.0]), "row 1: output 'output' has shape [2] instead of [1]"),
        (result(RowError("a")), result(RowError("b")), ""),
        (result(RowError("a")), result([1.0]), "row 0: one is an error, the other a value"),
        (result([1.0]), result(), "0 rows instead of 1"),
    ],
)
def test_answers_are_compared_as_in_certification(live: BatchResult, shadow: BatchResult, difference: str) -> None:
    found = first_difference(describe().signatures[0], None, live, shadow)
    assert found.startswith(difference)
    assert bool(found) == bool(difference)


def test_what_a_model_may_say() -> None:
    spec = SimpleNamespace(shape=[], dtype=SimpleNamespace(name="float32"))
    with collect_models() as found:
        model(name="shadowed", inputs={"x": spec}, shadow="dynamic", shadow_share=0.2)(lambda x: x)
    assert (found[0].shadow, found[0].shadow_share) == ("dynamic", 0.2)
    with pytest.raises(ModelLoadError, match="shadow must be one of static, "):
        model(name="a", inputs={"x": spec}, shadow="magic")(lambda x: x)
    with pytest.raises(ModelLoadError, match="shadow_share must be above 0 and at most 1, got 0"):
        model(name="a", inputs={"x": spec}, shadow="dynamic", shadow_share=0)(lambda x: x)
