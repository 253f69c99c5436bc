"""Tokens and trust of the clients; `tests/end_to_end/test_tokens_and_tls.py` has them with a real server."""

from __future__ import annotations

import httpx
import pytest

from clients import AsyncClient, Client, Forbidden, ServerError, Unauthenticated

TOKEN = "a-token-of-the-shop"


def answering(status: int, seen: list[httpx.Request]) -> httpx.MockTransport:
    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(status, json={"error": "because", "models": []})

    return httpx.MockTransport(answer)


def test_a_token_goes_with_every_request():
    seen: list[httpx.Request] = []
    with Client("http://h", token=TOKEN, transport=answering(200, seen)) as client:
        client.models()
        client.ready()
    assert [request.headers["authorization"] for request in seen] == [f"Bearer {TOKEN}"] * 2
    with Client("http://h", transport=answering(200, seen)) as client:
        client.models()
    assert "authorization" not in seen[-1].headers


async def test_a_token_goes_with_every_request_of_asyncio():
    seen: list[httpx.Request] = []
    async with AsyncClient("http://h", token=TOKEN, transport=answering(200, seen)) as client:
        await client.models()
    assert seen[0].headers["authorization"] == f"Bearer {TOKEN}"


@pytest.mark.parametrize(("status", "kind"), [(401, Unauthenticated), (403, Forbidden)])
def test_refusals_are_not_tried_again(status, kind):
    seen: list[httpx.Request] = []
    client = Client("http://h", token=TOKEN, retries=3, transport=answering(status, seen))
    with client, pytest.raises(kind, match="because") as refused:
        client.predict("m", x=1)
    assert (len(seen), refused.value.status) == (1, status)


@pytest.mark.parametrize("client", [Client, AsyncClient])
@pytest.mark.parametrize("token", ["", "two words", "a-line-break-at-its-end\n", "umläut", "a\r\nx-more: 1"])
def test_what_cannot_be_a_token_is_refused_and_not_shown(client, token):
    with pytest.raises(ValueError, match="is there a line break") as refused:
        client("http://h", token=token)
    assert not token.strip() or token.strip() not in str(refused.value)


def test_a_token_does_not_follow_to_another_host():
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(307, headers={"location": "http://elsewhere/models"})

    client = Client("http://h", token=TOKEN, transport=httpx.MockTransport(answer))
    with client, pytest.raises(ServerError, match="307"):
        client.models()
    assert [request.url.host for request in seen] == ["h"]


def test_an_authority_that_is_not_there():
    with pytest.raises(FileNotFoundError):
        Client("https://h", verify="/nothing.pem")
