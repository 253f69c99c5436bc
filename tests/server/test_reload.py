"""Load, unload and reload while serving: what takes over, what goes on, what is told. Engines in memory."""

from __future__ import annotations

import asyncio
import gc
from contextlib import AbstractAsyncContextManager

import pytest

from server.errors import CertificationError, Draining, LoadFailed, ModelLoadError, UnknownModel
from server.lanes import Lanes
from tests.support.fake_files import FakeFiles, FakeModel
from tests.support.http_service import Service, running


def serving(*models: FakeModel, **more) -> AbstractAsyncContextManager[Service]:
    return running(engines=FakeFiles({"file.py": list(models or [FakeModel()])}), **more)


async def change(service: Service, what: str, model: str = "m") -> tuple[int, str]:
    reply = await service.client.post(f"/v2/repository/models/{model}/{what}")
    return reply.status_code, reply.json().get("error", "")


async def ask(service: Service, value: float = 1.0, model: str = "m", **body) -> float | int:
    """The answer, or the status."""
    reply = await service.predict(model, inputs={"x": [value]}, **body)
    return reply.json()["outputs"]["output"][0] if reply.status_code == 200 else reply.status_code


async def index(service: Service) -> list[tuple[str, str, str, str]]:
    listed = (await service.client.post("/v2/repository/index")).json()
    return [(each["name"], each["version"], each["state"], each["reason"]) for each in listed]


async def states(service: Service, path: str = "m") -> list[tuple[str, str]]:
    listed = (await service.client.get(f"/v1/models/{path}")).json()["model_version_status"]
    return [(each["version"], each["state"]) for each in listed]


async def until(condition) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.002)


async def test_a_reload_under_load_fails_no_request_and_ends_the_old_engine():
    async with serving(FakeModel(seconds=0.002)) as service:
        stop = asyncio.Event()

        async def keep_asking() -> list[float | int]:
            answers = []
            while not stop.is_set():
                answers.append(await ask(service))
            return answers

        callers = [asyncio.create_task(keep_asking()) for _ in range(8)]
        await asyncio.sleep(0.05)
        for times in range(3, 8):
            service.engines.write("file.py", FakeModel(times=times, seconds=0.002))
            assert await change(service, "load") == (200, "")
            assert await ask(service) == times
            await asyncio.sleep(0.02)
        stop.set()
        for answers in await asyncio.gather(*callers):
            assert {2, 7} <= set(answers) <= {2, 3, 4, 5, 6, 7}
            assert answers == sorted(answers)
        await until(lambda: len(service.engines.alive) == 1)
        assert [model.version for model in service.supervisor.models] == ["1"]


async def test_what_waits_for_the_old_engine_is_answered_by_it():
    async with serving() as service:
        (old,) = service.engines.started
        old.gate = asyncio.Event()
        waiting = [asyncio.create_task(ask(service)) for _ in range(20)]
        await until(lambda: old.sizes and service.dispatcher._core.rows_queued == 20 - sum(old.sizes))
        service.engines.write("file.py", FakeModel(times=3, input="other"))
        assert await change(service, "load") == (200, "")
        reply = asyncio.create_task(service.predict("m", inputs={"other": [1]}))
        queue_depth = {"model": "m", "version": "1", "signature": "predict", "engine": "fake"}
        await until(lambda: service.registry.get_sample_value("batchd_queue_depth", queue_depth) == 21 - sum(old.sizes))
        assert not old.exited.done()
        old.gate.set()
        assert await asyncio.gather(*waiting) == [2] * 20
        assert (await reply).json()["outputs"] == {"output": [3]}
        await until(lambda: service.engines.alive == service.engines.started[1:])
        assert service.registry.get_sample_value("batchd_queue_depth", queue_depth) == 0
        assert service.registry.get_sample_value("batchd_model_ready", {"model": "m", "version": "1"}) == 1


@pytest.mark.parametrize(
    ("models", "why"),
    [
        ([FakeModel(load_error=ModelLoadError("syntax error at file.py:3"))], "syntax error at file.py:3"),
        ([FakeModel(load_error=CertificationError("row 3 differs"))], "row 3 differs"),
        ([FakeModel(load_error=ModelLoadError("the engine process ended"))], "the engine process ended"),
        ([FakeModel(load_error=RuntimeError("unforeseen"))], "RuntimeError: unforeseen"),
        ([FakeModel(dies=True)], "the engine process of version '1' ended as soon as it was ready"),
        ([FakeModel("other")], "file.py registers no model named 'm'"),
        ([FakeModel(version="2"), FakeModel(version="3", load_error=ModelLoadError("broken"))], "broken"),
    ],
)
async def test_a_failed_reload_keeps_the_old_one(models, why):
    async with serving() as service:
        service.engines.write("file.py", *models)
        sentence = f"model 'm' could not be loaded: {why}; version '1' goes on serving"
        assert await change(service, "load") == (400, sentence)
        assert await index(service) == [("m", "1", "READY", f"the last load failed: {why}")]
        (listed,) = (await service.client.get("/models")).json()["models"]
        assert (listed["state"], listed["last_failure"]) == ("ready", why)
        assert await ask(service) == 2
        assert service.engines.alive == service.engines.started[:1]
        service.engines.write("file.py", FakeModel(times=5))
        assert await change(service, "load") == (200, "")
        assert await ask(service) == 5
        assert await index(service) == [("m", "1", "READY", "")]
        outcomes = [{"model": "m", "outcome": outcome} for outcome in ("failed", "done")]
        counted = [service.registry.get_sample_value("batchd_model_loads_total", labels) for labels in outcomes]
        assert counted == [1, 1]


async def test_only_names_that_the_command_line_led_to_can_be_loaded():
    async with serving() as service:
        for name in ("nobody", "file.py", "..%2Ffile.py", "%2Fetc%2Fpasswd"):
            for what in ("load", "unload"):
                status, why = await change(service, what, name)
                assert status == 404, name
                assert "no model" in why or "nothing at" in why
        assert len(service.engines.started) == 1


async def test_an_unloaded_model_is_gone_on_purpose_and_can_come_back():
    async with serving(FakeModel(), FakeModel("other")) as service:
        old = service.engines.started[0]
        old.gate = asyncio.Event()
        waiting = [asyncio.create_task(ask(service)) for _ in range(20)]
        await until(lambda: old.sizes)
        unloading = asyncio.create_task(change(service, "unload"))
        await until(lambda: service.supervisor.models[0].state == "unloading")
        assert await ask(service) == 404
        assert await states(service) == [("1", "UNLOADING")]
        old.gate.set()
        assert await unloading == (200, "")
        assert await asyncio.gather(*waiting) == [2] * 20
        assert old.exited.done()
        assert await index(service) == [("m", "1", "UNAVAILABLE", "unloaded"), ("other", "1", "READY", "")]
        assert await states(service) == [("1", "END")]
        assert (await service.client.get("/readyz")).status_code == 200
        assert (await service.client.get("/v2/health/ready")).status_code == 200
        for path in ("/v2/models/m/ready", "/v2/models/m", "/v1/models/m/metadata"):
            reply = await service.client.get(path)
            assert (reply.status_code, "is unloaded" in reply.json()["error"]) == (404, True), path
        assert service.registry.get_sample_value("batchd_model_ready", {"model": "m", "version": "1"}) == 0
        assert await ask(service, model="") == 2  # `other` is the only one now
        assert await change(service, "unload") == (200, "")
        assert await change(service, "load") == (200, "")
        assert await ask(service) == 2
        assert [name for name, *_ in await index(service)] == ["m", "other"]


async def test_a_load_of_what_is_unloaded_that_fails_leaves_it_unloaded():
    async with serving() as service:
        await change(service, "unload")
        service.engines.may_start = asyncio.Event()
        service.engines.write("file.py", FakeModel(load_error=ModelLoadError("broken")))
        loading = asyncio.create_task(change(service, "load"))
        await until(lambda: service.supervisor.models[0].being_loaded)
        assert await index(service) == [("m", "1", "LOADING", "unloaded; being loaded")]
        assert await states(service) == [("1", "LOADING")]
        assert await ask(service) == 503
        assert (await service.client.get("/readyz")).status_code == 200
        service.engines.may_start.set()
        assert await loading == (400, "model 'm' could not be loaded: broken")
        assert await index(service) == [("m", "1", "UNAVAILABLE", "unloaded; the last load failed: broken")]
        assert await states(service) == [("1", "END")]
        assert await ask(service) == 404


async def test_what_the_old_engine_does_not_finish_in_time_is_told_so():
    async with serving(drain_timeout_s=0.05) as service:
        (stuck,) = service.engines.started
        stuck.gate = asyncio.Event()
        waiting = asyncio.create_task(service.predict("m", inputs={"x": [1]}))
        await until(lambda: stuck.sizes)
        assert await change(service, "load") == (200, "")
        reply = await waiting
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
        assert "was ended before it had answered" in reply.json()["error"]
        assert await ask(service) == 2


async def test_changes_of_a_model_happen_one_after_the_other():
    async with serving() as service:
        gate = service.engines.may_start = asyncio.Event()
        first = asyncio.create_task(service.supervisor.load("m"))
        await until(lambda: len(service.engines.started) == 2)
        service.engines.write("file.py", FakeModel(times=3))
        # The first has begun and may not have seen this; the others share one load that comes after it.
        later = [asyncio.create_task(service.supervisor.load("m")) for _ in range(3)]
        await asyncio.sleep(0.01)
        assert len(service.engines.started) == 2
        gate.set()
        await asyncio.gather(first, *later)
        assert len(service.engines.started) == 3
        assert await ask(service) == 3
        await asyncio.gather(*(getattr(service.supervisor, what)("m") for what in ("load", "unload", "unload", "load")))
        assert await ask(service) == 3
        await asyncio.gather(service.supervisor.load("m"), service.supervisor.unload("m"))
        assert await ask(service) == 404
        assert service.engines.alive == []
        started = len(service.engines.started)
        await asyncio.gather(*(getattr(service.supervisor, what)("m") for what in ("unload", "load", "load", "load")))
        assert (await ask(service), len(service.engines.started)) == (3, started + 1)


async def test_a_caller_who_leaves_stops_no_load():
    async with serving() as service:
        gate = service.engines.may_start = asyncio.Event()
        service.engines.write("file.py", FakeModel(times=3))
        loading = asyncio.create_task(service.supervisor.load("m"))
        await until(lambda: len(service.engines.started) == 2)
        loading.cancel()
        await asyncio.gather(loading, return_exceptions=True)
        gate.set()
        await until(lambda: len(service.engines.alive) == 1)
        assert await ask(service) == 3


async def test_a_server_that_stops_ends_what_is_being_loaded():
    files = FakeFiles({"file.py": [FakeModel()]})
    async with running(engines=files) as service:
        files.may_start = asyncio.Event()
        loading = asyncio.create_task(service.supervisor.load("m"))
        await until(lambda: len(files.started) == 2)
        service.supervisor.draining = True
        status, why = await change(service, "load")
        assert (status, "shutting down" in why) == (503, True)
    assert files.alive == []
    with pytest.raises(Draining, match=r"the server is shutting down; the model was not loaded"):
        await loading


async def test_an_old_engine_that_dies_while_the_new_one_loads():
    async with serving() as service:
        gate = service.engines.may_start = asyncio.Event()
        service.engines.write("file.py", FakeModel(times=3))
        loading = asyncio.create_task(service.supervisor.load("m"))
        await until(lambda: len(service.engines.started) == 2)
        service.engines.started[0].kill()
        await until(lambda: service.supervisor.models[0].state == "restarting")
        gate.set()
        await loading
        assert await ask(service) == 3
        await until(lambda: len(service.engines.alive) == 1)
        await asyncio.sleep(0.03)
        assert len(service.engines.alive) == 1
        service.engines.alive[0].kill()
        await until(lambda: service.supervisor.models[0].state == "ready" and service.engines.alive)
        assert await ask(service) == 3


async def test_another_version_takes_over():
    async with serving(FakeModel(version="2")) as service:
        (old,) = service.engines.started
        old.gate = asyncio.Event()
        waiting = asyncio.create_task(ask(service, version="2"))
        await until(lambda: old.sizes)
        service.engines.write("file.py", FakeModel(version="1", times=5))
        assert await change(service, "load") == (200, "")
        assert await states(service) == [("1", "AVAILABLE"), ("2", "UNLOADING")]
        assert await index(service) == [("m", "1", "READY", ""), ("m", "2", "UNLOADING", "unloading")]
        assert await ask(service, version="2") == 404
        old.gate.set()
        assert await waiting == 2
        assert await ask(service) == 5
        await until(lambda: len(service.supervisor.models) == 1)
        assert await states(service) == [("1", "AVAILABLE")]
        values = [
            service.registry.get_sample_value("batchd_model_ready", {"model": "m", "version": each}) for each in "12"
        ]
        assert values == [1, None]


@pytest.mark.parametrize(
    ("versions", "latest"),
    [(("1", "2"), "2"), (("10", "9"), "10"), (("b", "a"), "a"), (("2", "next"), "next"), (("next", "2"), "2")],
)
@pytest.mark.parametrize("in_one_file", [True, False])
async def test_versions_side_by_side(versions, latest, in_one_file):
    models = [FakeModel(version=version, times=3 + place) for place, version in enumerate(versions)]
    files = {"file.py": models} if in_one_file else {f"{model.version}.py": [model] for model in models}
    async with running(engines=FakeFiles(files)) as service:
        for _ in range(2):
            for model in models:
                assert await ask(service, version=model.version) == model.times
                tfs = f"/v1/models/m/versions/{model.version}:predict"
                assert (await service.client.post(tfs, json={"instances": [[1]]})).json() == {
                    "predictions": [[model.times]]
                }
                v2 = {"inputs": [{"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1]}]}
                reply = (await service.client.post(f"/v2/models/m/versions/{model.version}/infer", json=v2)).json()
                assert (reply["model_version"], reply["outputs"][0]["data"]) == (model.version, [model.times])
            (default,) = [model for model in models if model.version == latest]
            assert await ask(service) == default.times
            assert await ask(service, model="") == default.times
            assert (await service.client.post("/v2/models/m/infer", json=v2)).json()["model_version"] == latest
            assert await states(service) == [(version, "AVAILABLE") for version in versions]
            assert await states(service, f"m/versions/{latest}") == [(latest, "AVAILABLE")]
            assert (await service.client.get("/v2/models/m")).json()["versions"] == list(versions)
            statistics = (await service.client.get("/v2/models/m/stats")).json()["model_stats"]
            assert [each["version"] for each in statistics] == list(versions)
            assert (await service.predict("m", version="7", inputs={"x": [1]})).json()["error"] == (
                f"model 'm' has no version '7'; served here: version {', '.join(map(repr, versions))}"
            )
            await service.supervisor.load("m")
        await until(lambda: len(service.engines.alive) == 2)
        await service.supervisor.unload("m")
        assert service.engines.alive == []
        assert [state for *_, state, _ in await index(service)] == ["UNAVAILABLE"] * 2


async def test_a_version_that_restarts_stays_that_version():
    async with serving(FakeModel(version="1"), FakeModel(version="2", times=3)) as service:
        for engine in list(service.engines.alive):
            engine.kill()
        await until(lambda: all(model.restarts == 1 and model.state == "ready" for model in service.supervisor.models))
        assert [await ask(service, version=version) for version in ("1", "2", "")] == [2, 3, 3]


async def test_a_reload_that_makes_two_of_one_version_is_refused():
    files = FakeFiles({"one.py": [FakeModel(version="1")], "two.py": [FakeModel(version="2")]})
    async with running(engines=files) as service:
        files.write("two.py", FakeModel(version="1"))
        with pytest.raises(LoadFailed, match=r"registered by both one\.py and two\.py, as version '1'"):
            await service.supervisor.load("m")
        assert [model.version for model in service.supervisor.models] == ["1", "2"]
        assert len(files.alive) == 2


async def test_models_that_come_into_a_file_are_listed_and_can_be_loaded():
    async with serving() as service:
        service.engines.write("file.py", FakeModel(), FakeModel("new", times=9))
        assert await change(service, "load", "new") == (404, "no model 'new'; served here: m")
        await service.supervisor.load("m")
        assert (await index(service))[1] == ("new", "1", "UNAVAILABLE", "not loaded")
        assert await states(service, "new") == [("1", "START")]
        assert await ask(service, model="new") == 404
        assert (await service.client.get("/readyz")).status_code == 200
        assert await change(service, "load", "new") == (200, "")
        assert await ask(service, model="new") == 9
        service.engines.write("file.py", FakeModel(), FakeModel("brief"))
        await service.supervisor.load("m")
        assert [(model.name, model.state) for model in service.supervisor.models] == [
            ("m", "ready"),
            ("brief", "not loaded"),
            ("new", "ready"),
        ]
        service.engines.write("file.py", FakeModel())
        await service.supervisor.load("m")
        with pytest.raises(UnknownModel):
            await service.supervisor.load("brief")


async def test_a_shadow_ends_with_its_deployment():
    async with serving(FakeModel(shadow="dynamic")) as service:
        await until(lambda: len(service.engines.started) == 2)
        for _ in range(3):
            await service.supervisor.load("m")
            await until(lambda: len(service.engines.alive) == 2)
        assert await ask(service) == 2
        shadow = service.engines.alive[1]
        await until(lambda: shadow.sizes == [1])
        await service.supervisor.unload("m")
        assert service.engines.alive == []


async def test_nothing_is_kept_of_what_has_been_superseded():
    async with serving() as service:
        lanes = Lanes(service.supervisor, service.metrics, lambda signature: object())
        for _ in range(4):
            assert lanes.find("m") is lanes.find("m", "1")
            await service.supervisor.load("m")
            await until(lambda: len(service.engines.alive) == 1)
        gc.collect()
        lanes.find("m")
        assert len(lanes._lanes) == 1
        dispatcher, supervisor = service.dispatcher, service.supervisor
        held = (dispatcher._attached, dispatcher._lanes_by_key, dispatcher._core._lanes, supervisor._deployments)
        assert [len(each) for each in held] == [1] * 4
        assert not any((supervisor._tasks, supervisor._changes, supervisor._retiring))
