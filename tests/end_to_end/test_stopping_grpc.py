"""SIGTERM under load over gRPC: every call is answered or UNAVAILABLE, which clients repeat; never CANCELLED."""

from __future__ import annotations

import asyncio
import re
import signal
from collections import Counter

import grpc
import grpc.aio
import numpy as np
import pytest

from server.grpc.messages import MESSAGES
from tests.support.quick_engine import COMMAND
from tests.support.serving import Serving, serving

METHOD = "/inference.GRPCInferenceService/ModelInfer"


@pytest.mark.parametrize("times", [1, pytest.param(10, marks=[pytest.mark.full, pytest.mark.timeout(300)])])
def test_sigterm_under_load(times: int) -> None:
    for _ in range(times):
        with serving("nap", "--grpc-port", "0", command=COMMAND) as server:
            codes = asyncio.run(_load_and_stop(server))
            assert server.process.wait(30) == 0
            assert set(codes) == {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE}
            assert codes[grpc.StatusCode.OK] > 20


async def _load_and_stop(server: Serving) -> Counter[grpc.StatusCode]:
    port = int(re.search(r"gRPC on 127\.0\.0\.1:(\d+)", server.log.read_text())[1])
    codes: Counter[grpc.StatusCode] = Counter()
    tasks = [asyncio.create_task(_ask(port, codes)) for _ in range(12)]
    while codes.total() < 30:
        await asyncio.sleep(0.01)
    server.process.send_signal(signal.SIGTERM)
    await asyncio.wait_for(asyncio.gather(*tasks), 30)
    return codes


async def _ask(port: int, codes: Counter[grpc.StatusCode]) -> None:
    options = [("grpc.enable_retries", 0), ("grpc.use_local_subchannel_pool", 1)]
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=options) as channel:
        call = channel.unary_unary(METHOD, MESSAGES["ModelInferRequest"].SerializeToString)
        request = _request()
        while True:
            try:
                await call(request, timeout=20)
                codes[grpc.StatusCode.OK] += 1
            except grpc.aio.AioRpcError as error:
                codes[error.code()] += 1
                if "Connection refused" in (error.details() or ""):
                    return


def _request():
    request = MESSAGES["ModelInferRequest"](model_name="nap")
    request.inputs.add(name="seconds", datatype="FP32", shape=[1])
    request.raw_input_contents.append(np.float32(0.003).tobytes())
    return request
