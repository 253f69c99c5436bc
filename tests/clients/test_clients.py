"""Both clients against a server that speaks the wire format: the same cases for each."""

from __future__ import annotations

import asyncio
import inspect
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import clients
from clients import AsyncClient, Client, Prediction, Provenance
from clients.exchange import wait_before_retry_s
from tests.support.stub_server import StubApplication, stub_server


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[StubApplication, str]]:
    application = StubApplication()
    with stub_server(application) as url:
        yield application, url


@pytest.fixture
def application(served: tuple[StubApplication, str]) -> StubApplication:
    served[0].reset()
    return served[0]


@pytest.fixture
def url(served: tuple[StubApplication, str], application: StubApplication) -> str:
    return served[1]


@pytest.fixture(params=[Client, AsyncClient])
def call(request: pytest.FixtureRequest) -> Any:
    """`call(url, method, *arguments, **keywords)` makes a client, calls one method, closes the client."""

    def call_method(url: str, method: str, *arguments: Any, client: Any = None, **keywords: Any) -> Any:
        async def run() -> Any:
            made = request.param(url, **(client or {}))
            try:
                result = getattr(made, method)(*arguments, **keywords)
                return await result if inspect.isawaitable(result) else result
            finally:
                closing = made.close()
                if inspect.isawaitable(closing):
                    await closing

        return asyncio.run(run())

    return call_method


@pytest.fixture
def dead_url() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


def test_predict_returns_a_mapping_of_declared_dtypes(call: Any, url: str) -> None:
    prediction = call(url, "predict", "double", x=np.float32([1, 2.5, np.nan]))
    assert isinstance(prediction, Prediction)
    assert list(prediction) == ["output"]
    assert prediction["output"].dtype == np.float32
    np.testing.assert_array_equal(prediction["output"], np.float32([2, 5, np.nan]))
    assert prediction.provenance == Provenance(batch_size=4, queue_ms=0.5, compute_ms=1.25)
    assert (prediction.model, prediction.signature) == ("double", "predict")


def test_scalars_come_as_python_values(call: Any, url: str) -> None:
    prediction = call(url, "predict", "shout", text="grüß")
    assert dict(prediction) == {"text": "GRÜSS", "length": 4}


def test_a_model_without_description_is_read_off_the_json(call: Any, url: str) -> None:
    prediction = call(url, "predict", "echo", a=[1, 2], b="text", c=b"\x00\xff")
    np.testing.assert_array_equal(prediction["a"], np.int64([1, 2]))
    assert (prediction["b"], prediction["c"]) == ("text", b"\x00\xff")


def test_unknown_output_is_named(call: Any, url: str) -> None:
    with pytest.raises(KeyError, match="no output 'label'; 'shout' returned text, length"):
        call(url, "predict", "shout", text="a")["label"]


def test_options_and_inputs_of_the_same_name(call: Any, url: str, application: StubApplication) -> None:
    call(url, "predict", "echo", {"signature": 3}, b=1, signature="jacobian", timeout_ms=20)
    assert application.requests == [{"inputs": {"signature": 3, "b": 1}, "signature": "jacobian", "timeout_ms": 20}]


def test_an_input_given_twice_is_refused(call: Any, url: str) -> None:
    with pytest.raises(TypeError, match="input 'x' is given twice"):
        call(url, "predict", "echo", {"x": 1}, x=2)


@pytest.mark.parametrize(
    ("model", "error", "sentence"),
    [
        ("rejects", clients.InvalidInput, r"input 'x': expected float32 of shape \[length\], got 3"),
        ("absent", clients.NotFound, "no model 'absent'; there are double, shout"),
        ("huge", clients.PayloadTooLarge, "the body has 20 MB"),
        ("late", clients.DeadlineExceeded, "the deadline of 5 ms passed in the queue"),
        ("garbled", clients.ServerError, "isn't JSON .* is this a batchd server"),
        ("cut", clients.ConnectionFailed, "the connection to http.* broke"),
        ("with/slash?", clients.NotFound, "no model 'with/slash\\?'"),
    ],
)
def test_errors_carry_the_server_sentence(call: Any, url: str, model: str, error: Any, sentence: str) -> None:
    with pytest.raises(error, match=sentence) as raised:
        call(url, "predict", model, x=3)
    assert isinstance(raised.value, clients.ClientError)


def test_overload_says_when_to_come_back(call: Any, url: str, application: StubApplication) -> None:
    application.refusals = 1
    with pytest.raises(clients.Overloaded, match="the queue is full") as raised:
        call(url, "predict", "double", x=[1.0])
    assert raised.value.retry_after_s == 0.01
    assert raised.value.status == 503


def test_refusals_are_retried_when_asked_for(call: Any, url: str, application: StubApplication) -> None:
    application.refusals = 2
    prediction = call(url, "predict", "double", client={"retries": 2}, x=[1.0])
    assert prediction["output"].tolist() == [2.0]
    assert len(application.requests) == 3


def test_what_may_have_been_computed_is_not_sent_again(call: Any, url: str, application: StubApplication) -> None:
    for model in ("cut", "late", "rejects"):
        with pytest.raises(clients.ClientError):
            call(url, "predict", model, client={"retries": 5}, x=1)
    assert len(application.requests) == 3


def test_a_silent_server_is_a_failed_connection(call: Any, url: str) -> None:
    with pytest.raises(clients.ConnectionFailed, match=r"no reply from http.* within 0.2 s"):
        call(url, "predict", "slow", client={"timeout_s": 0.2})


def test_an_unreachable_server(call: Any, dead_url: str) -> None:
    with pytest.raises(clients.ConnectionFailed, match=f"cannot reach {dead_url}") as raised:
        call(dead_url, "models")
    assert not raised.value.request_was_sent
    assert call(dead_url, "ready") is False


def test_models_and_model(call: Any, url: str) -> None:
    assert [model["name"] for model in call(url, "models")["models"]] == ["double", "shout"]
    assert call(url, "model", "double")["signatures"][0]["inputs"][0]["dtype"] == "float32"


def test_ready(call: Any, url: str, application: StubApplication) -> None:
    application.ready_after = 1
    assert call(url, "ready") is False
    assert call(url, "ready") is True


def test_wait_ready(call: Any, url: str, application: StubApplication) -> None:
    application.ready_after = 2
    call(url, "wait_ready", 10)
    assert application.ready_after < 0


def test_wait_ready_gives_up_with_the_last_answer(
    call: Any, url: str, application: StubApplication, dead_url: str
) -> None:
    application.ready_after = 1000
    with pytest.raises(TimeoutError, match=r"isn't ready after 0.3 s: loading double"):
        call(url, "wait_ready", 0.3)
    with pytest.raises(clients.NotReady, match=r"isn't ready after 0.1 s: cannot reach"):
        call(dead_url, "wait_ready", 0.1)


REFUSED = clients.ConnectionFailed("cannot reach", request_was_sent=False)


@pytest.mark.parametrize(
    ("error", "attempt", "retries", "wait_s"),
    [
        (clients.Overloaded("full", retry_after_s=2.0), 0, 1, 2.0),
        (clients.Overloaded("full", retry_after_s=2.0), 1, 1, None),
        (clients.Overloaded("full", retry_after_s=3600.0), 0, 1, None),
        (clients.Overloaded("full"), 0, 3, 0.1),
        (clients.Overloaded("full"), 2, 3, 0.4),
        (REFUSED, 1, 2, 0.2),
        (REFUSED, 0, 0, None),
        (clients.ConnectionFailed("broke"), 0, 9, None),
        (clients.DeadlineExceeded("late", status=504), 0, 9, None),
        (clients.InvalidInput("bad", status=400), 0, 9, None),
    ],
)
def test_retry_table(error: Any, attempt: int, retries: int, wait_s: float | None) -> None:
    assert wait_before_retry_s(error, attempt, retries) == wait_s


def test_sixteen_threads_share_one_client(url: str) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with Client(url) as client, ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda k: client.predict("double", x=[k])["output"][0], range(64)))
    assert answers == [2 * k for k in range(64)]


def test_importing_clients_alone_is_light() -> None:
    program = "import sys, clients; print([m for m in ('httpx', 'numpy', 'tensorflow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_public_name_can_be_imported() -> None:
    for name in clients.__all__:
        assert getattr(clients, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Clinet'"):
        _ = clients.Clinet
