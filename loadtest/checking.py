"""Is this reply the right one? Pure: replies and expectations in, records out.

Floats may differ by the model's tolerance, or that of their dtype, relative to the largest magnitude in the
same output (at least 1). Everything else must be equal but for ties: where the function picks the largest of
some scores, and its two largest are closer than the tolerance, the batch may pick the other one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import orjson

from clients.prediction import Provenance
from clients.wire import decode_output
from loadtest.attack import Exchange
from loadtest.results import Record
from loadtest.targets import Example, ExampleSet

TOLERANCES = {"float16": 1e-2, "float32": 1e-5, "float64": 1e-9}


def judge(exchanges: Iterable[Exchange], expected: ExampleSet) -> list[Record]:
    """One record for each exchange, with its outcome."""
    return [_record(exchange, expected.examples[exchange.example], expected) for exchange in exchanges]


def _record(exchange: Exchange, example: Example, expected: ExampleSet) -> Record:
    provenance = Provenance.from_headers(exchange.headers or {})
    outcome, detail = _outcome(exchange, example, expected)
    return Record(
        index=exchange.index,
        example=exchange.example,
        due_s=exchange.due_s,
        sent_s=exchange.sent_s,
        done_s=exchange.done_s,
        status=exchange.status,
        outcome=outcome,
        detail=detail,
        batch_size=provenance.batch_size,
        queue_ms=provenance.queue_ms,
        compute_ms=provenance.compute_ms,
    )


def _outcome(exchange: Exchange, example: Example, expected: ExampleSet) -> tuple[str, str | None]:
    if exchange.left:
        return "left", None
    if exchange.status is None:
        return ("timeout" if exchange.timed_out else "error"), exchange.failure
    if exchange.status == 503:
        return "shed", None
    if exchange.status == 504:
        return "timeout", None
    if exchange.status == 400 and example.error is not None:
        return "ok", None
    if exchange.status != 200:
        return "error", f"{exchange.status}: {exchange.body[:200].decode('utf-8', 'replace')}"
    difference = difference_from_expected(exchange.body, example, expected.dtypes, expected.rtol)
    return ("ok", None) if difference is None else ("wrong", difference)


def difference_from_expected(
    body: bytes, example: Example, dtypes: Mapping[str, str], rtol: float | None = None
) -> str | None:
    """None when the body of a 200 is what the per-example function returns; else a sentence."""
    if not example.is_checked:
        return None
    if example.outputs is None:
        return f"expected 400 ({example.error}), got an answer"
    try:
        answered = orjson.loads(body)["outputs"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return "the body has no outputs"
    if set(answered) != set(example.outputs):
        return f"expected outputs {sorted(example.outputs)}, got {sorted(answered)}"
    pairs = {
        name: (_array(example.outputs[name], dtypes.get(name)), _array(answered[name], dtypes.get(name)))
        for name in answered
    }
    floats = {name: pair for name, pair in pairs.items() if pair[0].dtype.kind == "f"}
    for name, (right, got) in floats.items():
        if sentence := _float_difference(name, right, got, rtol or TOLERANCES[right.dtype.name]):
            return sentence
    tied = any(_has_tie(right, rtol or TOLERANCES[right.dtype.name]) for right, _ in floats.values())
    for name, (right, got) in pairs.items():
        if name in floats or _same(right, got):
            continue
        if not (tied and right.shape == got.shape):
            return f"output {name!r}: expected {_brief(right)}, got {_brief(got)}"
    return None


def _array(value: Any, dtype: str | None) -> np.ndarray[Any, Any]:
    array = np.asarray(decode_output(value, dtype))
    # A scalar comes as a Python float; the tolerance is that of the declared dtype.
    return array.astype(dtype) if array.dtype.kind == "f" and dtype in TOLERANCES else array


def _float_difference(name: str, right: Any, got: Any, tolerance: float) -> str | None:
    if right.shape != got.shape:
        return f"output {name!r}: expected shape {list(right.shape)}, got {list(got.shape)}"
    if got.dtype.kind not in "fi":
        return f"output {name!r}: expected numbers, got {_brief(got)}"
    scale = np.abs(right[np.isfinite(right)]).max(initial=1.0)
    close = np.isclose(got, right, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
    if close.all():
        return None
    place = tuple(int(axis) for axis in np.argwhere(~close)[0])
    return f"output {name!r}{list(place) or ''}: expected {right[place]!s}, got {got[place]!s}"


def _has_tie(scores: np.ndarray[Any, Any], tolerance: float) -> bool:
    if scores.ndim == 0 or scores.shape[-1] < 2:
        return False
    two_largest = np.sort(scores, axis=-1)[..., -2:]
    gap = two_largest[..., 1] - two_largest[..., 0]
    return bool((gap <= 2 * tolerance * (1 + np.abs(two_largest[..., 1]))).any())


def _same(right: Any, got: Any) -> bool:
    return bool(right.shape == got.shape and np.array_equal(right, got))


def _brief(value: Any) -> str:
    text = repr(value.tolist())
    return text if len(text) <= 80 else f"{text[:77]}..."
