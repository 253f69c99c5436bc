"""One caller's bad example costs nobody else an answer, with the program that XLA compiled and with the plain one."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import pytest

from tests.support.serving import SERVICES, Serving, serving

ROWS = 8
GOOD = {"ids": [1, 4], "scale": 2.0, "tag": "ключ"}
GOOD_OUTPUTS = {"tag": "ключ", "total": [10.0, 12.0]}
BAD_ID = {"ids": [0, 9, 1], "scale": 1.0, "tag": ""}
FAILED_ASSERT = {"ids": [0, 0, 0, 0, 0], "scale": 1.0, "tag": ""}

PROGRAMS = {"xla": "only", "plain": "off"}
# A batch waits until it is full. Servers that share a compile cache would count each other's compiles.
OPTIONS = ("--max-delay-ms", "20000", "--no-compile-cache")


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, Serving]]:
    """One server for each kind of program; both load at the same time."""
    with ExitStack() as stack:
        started = {
            program: stack.enter_context(serving(SERVICES / "guarded.py", *OPTIONS, "--xla", setting, wait=False))
            for program, setting in PROGRAMS.items()
        }
        for server in started.values():
            server.wait_ready()
        yield started


@pytest.mark.complaint(1)
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("bad_row", [0, 5])
@pytest.mark.parametrize(
    ("bad", "message", "together"),
    [
        pytest.param(BAD_ID, "indices[1] = 9 is not in [0, 5)", ROWS, id="bad id"),
        # Five ids are more than any bucket holds, so that row doesn't make the others run in a cold batch.
        pytest.param(FAILED_ASSERT, "at most four ids, please", ROWS - 1, id="failed assert"),
    ],
)
def test_only_the_caller_of_the_bad_row_hears_of_it(
    servers: dict[str, Serving], program: str, bad_row: int, bad: dict[str, object], message: str, together: int
) -> None:
    server = servers[program]
    _assert_every_bucket_runs(server, program)
    isolated = server.metric("batchd_isolated_rows_total", model="guarded")
    replies = _post_together(server, [bad if row == bad_row else GOOD for row in range(ROWS)])
    refused = replies.pop(bad_row)
    assert (refused.status_code, refused.json()) == (400, {"error": message})
    for reply in replies:
        assert (reply.status_code, reply.json()["outputs"]) == (200, GOOD_OUTPUTS)
        assert reply.headers["x-batchd-batch-size"] == str(together)
    assert server.metric("batchd_isolated_rows_total", model="guarded") == isolated + 1
    assert server.metric("batchd_compiles_total", phase="serving") == 0


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_batch_of_bad_rows_only(servers: dict[str, Serving], program: str) -> None:
    replies = _post_together(servers[program], [BAD_ID, FAILED_ASSERT] * (ROWS // 2))
    assert [reply.status_code for reply in replies] == [400] * ROWS
    assert {reply.json()["error"] for reply in replies[::2]} == {"indices[1] = 9 is not in [0, 5)"}
    assert {reply.json()["error"] for reply in replies[1::2]} == {"at most four ids, please"}


def _assert_every_bucket_runs(server: Serving, program: str) -> None:
    (signature,) = server.client.get("/models/guarded").json()["signatures"]
    assert {each["program"] for each in signature["report"]["programs"]} == {program}


def _post_together(server: Serving, rows: list[dict[str, object]]) -> list[httpx.Response]:
    with ThreadPoolExecutor(len(rows)) as pool:
        return list(pool.map(lambda inputs: server.predict("guarded", inputs), rows))
