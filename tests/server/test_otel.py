"""Spans: a server span for each request, what it waited for beneath it, and batches linked with their requests."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

pytest.importorskip("opentelemetry.sdk", reason="the extra otel isn't installed")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra otel isn't installed")

import tritonclient.grpc as triton
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import SpanKind, StatusCode

from server.otel import OpenTelemetryTracing
from server.settings import SettingsError
from server.tracing import start_tracing
from tests.support.fake_engine import FakeEngine, describe
from tests.support.http_service import running
from tests.support.otlp_receiver import attributes_of, otlp_receiver
from tests.support.protocol_service import half_plus_three, protocol_service
from tests.support.serving import ROOT, environment

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "vendor=4711"}
UNSAMPLED = {"traceparent": f"00-{TRACE}-{SPAN}-00"}


class Recorded:
    """A tracer whose spans stay here."""

    def __init__(self, ratio: float = 1.0) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(ratio)), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracing = OpenTelemetryTracing("1", provider)

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == name]


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def timed() -> FakeEngine:
    """20 ms a batch, of which it tells the phases."""
    engine = half_plus_three()
    engine.seconds, engine.assembly_s, engine.split_s = 0.02, 0.002, 0.001
    return engine


async def test_one_request(recorded: Recorded) -> None:
    async with running(half_plus_three=timed, tracing=recorded.tracing) as service:
        headers = {**PARENT, "x-request-id": "r1"}
        reply = await service.client.post("/predict", json={"inputs": {"x": 1}}, headers=headers)
        assert reply.status_code == 200
    [server] = [span for span in recorded.spans if span.kind is SpanKind.SERVER]
    assert server.name == "POST /predict/{model}"
    assert f"{server.context.trace_id:032x}" == TRACE
    assert f"{server.parent.span_id:016x}" == SPAN
    assert server.context.trace_state.get("vendor") == "4711"
    assert (
        dict(server.attributes)
        | {
            "http.request.method": "POST",
            "http.route": "/predict/{model}",
            "url.path": "/predict",
            "http.response.status_code": 200,
            "batchd.request_id": "r1",
            "batchd.model": "half_plus_three",
            "batchd.engine": "fake",
            "batchd.batch.size": 1,
        }
        == server.attributes
    )
    children = [span for span in recorded.spans if span.parent and span.parent.span_id == server.context.span_id]
    by_name = {span.name: span for span in children}
    assert set(by_name) == {"queue", "assembly", "compute", "split", "serialise", "batch"}
    milliseconds = {name: (span.end_time - span.start_time) / 1e6 for name, span in by_name.items()}
    assert milliseconds["assembly"] == pytest.approx(2, abs=0.01)
    assert milliseconds["compute"] == pytest.approx(20, abs=0.01)
    assert milliseconds["split"] == pytest.approx(1, abs=0.01)
    order = [by_name[name] for name in ("queue", "assembly", "compute", "split")]
    assert [span.start_time for span in order] == sorted(span.start_time for span in order)
    assert all(server.start_time <= span.start_time for span in children)
    assert by_name["serialise"].end_time <= server.end_time
    assert [link.context.span_id for link in server.links] == [by_name["batch"].context.span_id]


async def test_a_batch_is_linked_with_all_its_requests(recorded: Recorded) -> None:
    async with running(half_plus_three=timed, tracing=recorded.tracing) as service:
        asked = [service.predict("half_plus_three", inputs={"x": index}) for index in range(6)]
        assert {reply.status_code for reply in await asyncio.gather(*asked)} == {200}
    servers = {span.context.span_id: span for span in recorded.spans if span.kind is SpanKind.SERVER}
    batches = recorded.named("batch")
    assert len(servers) == 6
    assert sum(span.attributes["batchd.batch.size"] for span in batches) == 6
    for batch in batches:
        attributes = dict(batch.attributes)
        assert len(batch.links) == attributes["batchd.batch.size"]
        assert attributes["batchd.batch.reason"] in ("idle", "full", "delay")
        assert 0 <= attributes["batchd.batch.padding_ratio"] < 1
        assert int(attributes["batchd.batch.bucket"]) >= attributes["batchd.batch.size"]
        for link in batch.links:
            back = [each.context.span_id for each in servers[link.context.span_id].links]
            assert back == [batch.context.span_id]
    assert max(span.attributes["batchd.batch.size"] for span in batches) > 1
    assert len({span.context.trace_id for span in servers.values()}) == 6


async def test_a_request_of_several_batches(recorded: Recorded) -> None:
    async with running(half_plus_three=timed, tracing=recorded.tracing) as service:
        body = {"instances": list(range(20))}
        assert (await service.client.post("/v1/models/half_plus_three:predict", json=body)).status_code == 200
    [server] = [span for span in recorded.spans if span.kind is SpanKind.SERVER]
    assert server.name == "POST /v1/models/{model}:predict"
    assert server.attributes["batchd.batches"] == len(server.links) == len(recorded.named("queue")) == 3


@pytest.mark.parametrize("headers", [{}, UNSAMPLED])
async def test_what_isnt_sampled_makes_no_span(headers: dict[str, str], caplog) -> None:
    recorded = Recorded(ratio=0.0)
    async with running(half_plus_three=timed, tracing=recorded.tracing) as service:
        reply = await service.client.post("/predict", json={"inputs": {"x": 1}}, headers=headers)
        assert reply.status_code == 200
    assert recorded.spans == []


async def test_a_batch_of_sampled_and_other_requests(recorded: Recorded) -> None:
    async with running(half_plus_three=timed, tracing=recorded.tracing) as service:
        given = [PARENT if index % 2 else UNSAMPLED for index in range(6)]
        body = {"inputs": {"x": 1}}
        await asyncio.gather(*(service.client.post("/predict", json=body, headers=headers) for headers in given))
    assert len([span for span in recorded.spans if span.kind is SpanKind.SERVER]) == 3
    assert sum(len(span.links) for span in recorded.named("batch")) == 3


async def test_invalid_parents_are_ignored(recorded: Recorded) -> None:
    async with running(half_plus_three=timed, tracing=recorded.tracing) as service:
        await service.client.get("/healthz", headers={"traceparent": f"00-{'0' * 32}-{SPAN}-01"})
    [span] = recorded.spans
    assert (span.name, span.parent) == ("GET", None)


async def test_errors(recorded: Recorded) -> None:
    def deadly() -> FakeEngine:
        def compute(x):
            if x < 0:
                raise ValueError("no")
            raise RuntimeError("broken")

        return FakeEngine(compute, describe("deadly", half_plus_three().description.signatures[0].inputs))

    async with running(deadly=deadly, tracing=recorded.tracing) as service:
        for path, value in (("/predict/deadly", -1), ("/predict/deadly", 1), ("/predict/nobody", 1)):
            await service.client.post(path, json={"inputs": {"x": value}})
    found = [span for span in recorded.spans if span.kind is SpanKind.SERVER]
    told = [(span.attributes["http.response.status_code"], span.attributes["error.type"]) for span in found]
    assert told == [(400, "ExampleRejected"), (500, "BatchdError"), (404, "UnknownModel")]
    assert [span.status.status_code for span in found] == [StatusCode.UNSET, StatusCode.ERROR, StatusCode.UNSET]
    assert [span.status.status_code for span in recorded.named("batch")] == [StatusCode.UNSET, StatusCode.ERROR]


async def test_log_lines_name_the_span(recorded: Recorded, caplog) -> None:
    from server.logs import fields_of

    seen: list[dict] = []
    caplog.handler.addFilter(lambda record: seen.append(fields_of(record)) or True)
    caplog.set_level(logging.INFO)
    async with running(half_plus_three=timed, tracing=recorded.tracing, access_log="all") as service:
        await service.client.post("/predict", json={"inputs": {"x": 1}}, headers=PARENT)
    [line] = [each for each in seen if each.get("protocol") == "http"]
    [server] = [span for span in recorded.spans if span.kind is SpanKind.SERVER]
    assert (line["trace_id"], line["span_id"]) == (TRACE, f"{server.context.span_id:016x}")


def test_grpc(recorded: Recorded) -> None:
    with protocol_service(tracing=recorded.tracing) as served, triton.InferenceServerClient(served.grpc) as client:
        tensor = triton.InferInput("x", [1], "FP32")
        tensor.set_data_from_numpy(np.float32([1]))
        client.infer("half_plus_three", [tensor], headers={**PARENT, "x-request-id": "r1"})
    [server] = [span for span in recorded.spans if span.kind is SpanKind.SERVER]
    assert server.name == "inference.GRPCInferenceService/ModelInfer"
    assert f"{server.parent.span_id:016x}" == SPAN
    assert dict(server.attributes) | {"rpc.system": "grpc", "batchd.request_id": "r1", "batchd.status": 200} == dict(
        server.attributes
    )
    assert len(server.links) == 1


@pytest.fixture
def otel_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """No variable of OpenTelemetry's but those that a test sets."""
    import os

    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    return monkeypatch


async def test_spans_reach_a_collector_as_the_environment_says(otel_environment: pytest.MonkeyPatch) -> None:
    with otlp_receiver() as receiver:
        otel_environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        otel_environment.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        tracing = start_tracing("otel", "4.7.11")
        assert tracing is not None
        async with running(half_plus_three=timed, tracing=tracing) as service:
            assert (await service.predict(inputs={"x": 1})).status_code == 200
        await asyncio.to_thread(tracing.close)
    assert set(receiver.paths) == {"/v1/traces"}
    assert (
        receiver.resources[0]
        | {
            "service.name": "batchd",
            "service.version": "4.7.11",
            "deployment.environment.name": "test",
        }
        == (receiver.resources[0])
    )
    names = [span.name for span in receiver.spans()]
    assert sorted(names) == [
        "POST /predict/{model}",
        "assembly",
        "batch",
        "compute",
        "queue",
        "serialise",
        "split",
    ]
    [batch] = [span for span in receiver.spans() if span.name == "batch"]
    assert attributes_of(batch)["batchd.batch.size"] == 1


async def test_the_environments_sampler(otel_environment: pytest.MonkeyPatch) -> None:
    with otlp_receiver() as receiver:
        otel_environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        otel_environment.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
        tracing = start_tracing("otel", "1")
        assert tracing is not None
        async with running(half_plus_three=timed, tracing=tracing) as service:
            await service.predict(inputs={"x": 1})
            await service.client.post("/predict", json={"inputs": {"x": 1}}, headers=PARENT)
        await asyncio.to_thread(tracing.close)
    assert {span.trace_id.hex() for span in receiver.spans()} == {TRACE}


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("OTEL_TRACES_EXPORTER", "zipkin", "OTEL_TRACES_EXPORTER is 'zipkin'; here it may be otlp, console or none"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "is set to 'grpc'; here it may be http/protobuf only"),
    ],
)
def test_what_the_environment_may_not_ask(
    otel_environment: pytest.MonkeyPatch, name: str, value: str, sentence: str
) -> None:
    otel_environment.setenv(name, value)
    with pytest.raises(SettingsError, match=sentence):
        start_tracing("otel", "1")


def test_without_the_setting_nothing_of_it_is_imported() -> None:
    program = (
        "import sys; from server.tracing import start_tracing; assert start_tracing('off', '1') is None; "
        "import server.dispatcher, server.observer, server.http.exchange; "
        "print(*[name for name in sys.modules if name.startswith(('opentelemetry.sdk', 'opentelemetry.exporter'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""


def test_without_the_extra_it_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['opentelemetry.sdk'] = None\n"
        "from server.tracing import start_tracing\n"
        "try: start_tracing('otel', '1')\n"
        "except Exception as error: print(type(error).__name__, error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("SettingsError tracing = otel needs the extra: pip install 'batchd[otel]'")
