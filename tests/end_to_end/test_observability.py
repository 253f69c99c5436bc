"""A real server whose every line is JSON, whatever goes wrong, and whose spans reach a real collector."""

from __future__ import annotations

import json
import re
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.otlp_receiver import otlp_receiver
from tests.support.serving import Serving, serving

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra otel isn't installed")
grpc = pytest.importorskip("grpc")

NOISY = """
import os, sys, warnings
import tensorflow as tf
from server import model

print("printed while loading", file=sys.stderr)
os.write(2, b"W0000 written by native code\\n")

@model(name="noisy", inputs={"x": tf.TensorSpec([], tf.float32)}, samples=[1.0, 2.0])
def noisy(x):
    tf.py_function(lambda x: os._exit(3) if x > 12 else tf.print("computing", x, output_stream=sys.stderr), [x], [])
    tf.debugging.assert_greater(x, 0.0, "only what is above zero")
    return 2.0 * x
"""
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
OPTIONS = ("--engine", "per_request", "--log-format", "json", "--access-log", "all", "--grpc-port", "0")


@pytest.mark.complaint(24)
def test_every_line_is_json_and_every_request_is_traced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "noisy.py"
    model.write_text(NOISY)
    with otlp_receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        monkeypatch.setenv("OTEL_SERVICE_NAME", "noisy-service")
        monkeypatch.setenv("WEB_CONCURRENCY", "4")
        with serving(model, *OPTIONS, "--tracing", "otel") as server:
            pid = server.process.pid
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
            assert len(children) == 1, "the engine's process is the only other"
            _provoke(server)
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(60) == 0
            lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    _check_lines(lines)
    traced = [span for span in receiver.spans() if span.trace_id.hex() == TRACE]
    assert {"POST /predict/{model}", "queue", "compute", "batch"} <= {span.name for span in traced}
    assert {each["service.name"] for each in receiver.resources} == {"noisy-service"}


def _provoke(server: Serving) -> None:
    def post(id: str, x: object, model: str = "noisy") -> int:
        headers = {"x-request-id": id, "traceparent": f"00-{TRACE}-00f067aa0ba902b7-01", "authorization": "s3cret"}
        body = {"inputs": {"x": x}}
        return server.client.post(f"/predict/{model}?token=s3cret", json=body, headers=headers).status_code

    assert post("good", 1.0) == 200
    assert post("refused", -471147.0) == 400
    assert post("wrong", "s3cret") == 400
    assert post("unknown", 1.0, "nobody") == 404
    assert server.client.get("/nowhere%0a%22", headers={"x-request-id": "nowhere"}).status_code == 404
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(b"\xff\xfe not HTTP\r\n\r\n")
        assert b"400 Bad Request" in connection.recv(1000)
    port = re.search(r"listens for gRPC on 127\.0\.0\.1:(\d+)", server.log.read_text())
    assert port is not None
    with grpc.insecure_channel(f"127.0.0.1:{port[1]}") as channel, pytest.raises(grpc.RpcError):
        channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")(b"\xff\xff", timeout=10)
    assert post("deadly", 13.0) == 503
    give_up_at = time.monotonic() + 60
    while server.client.get("/models/noisy").json()["restarts"] == 0:
        assert time.monotonic() < give_up_at
        time.sleep(0.05)


def _check_lines(lines: list[dict[str, Any]]) -> None:
    served = {line["request_id"]: line for line in lines if line["logger"] == "batchd.access" and "status" in line}
    statuses = {"good": 200, "refused": 400, "wrong": 400, "unknown": 404, "nowhere": 404, "deadly": 503}
    assert {id: served[id]["status"] for id in statuses} == statuses
    assert (
        served["good"] | {"trace_id": TRACE, "model": "noisy", "batch_size": 1, "engine": "per_request"}
        == (served["good"])
    )
    assert (served["refused"]["reason"], served["deadly"]["reason"]) == ("rejected", "engine_died")
    assert {line["protocol"] for line in served.values()} == {"http", "grpc"}
    of_engine = [line for line in lines if line["logger"] == "batchd.engine"]
    assert {"printed while loading", "W0000 written by native code"} <= {line["message"] for line in of_engine}
    assert all(line["engine_pid"] > 0 and line["model"] for line in of_engine)
    assert {"uvicorn.error", "batchd.supervisor", "batchd.loading"} <= {line["logger"] for line in lines}
    everything = json.dumps([line for line in lines if line["logger"] != "batchd.engine"])
    assert "s3cret" not in everything
    assert "471147" not in everything
    assert "color_message" not in everything
