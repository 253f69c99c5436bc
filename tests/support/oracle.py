"""The one oracle of the vectorizer's tests: run the function on each example, stack, compare with the batch.

Every check runs the flexible program and, unless told otherwise, the one with all shapes fixed, plain and
under XLA, on padded inputs whose padding is junk, with spare rows. A row on which the function raises must
come back not `ok`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import tensorflow as tf

from vectorizer import Vectorized, vectorize


def per_example(v: Vectorized, example: Sequence[Any]) -> list[np.ndarray] | Exception:
    """What the function itself says of one example: its outputs, or the error it raises."""
    tensors = [tf.constant(item, spec.dtype) for item, spec in zip(example, v.input_specs, strict=True)]
    try:
        outputs = v.concrete(*tensors)
    except tf.errors.OpError as error:
        return error
    return [np.asarray(item.numpy()) for item in tf.nest.flatten(outputs, expand_composites=True)]


@lru_cache(maxsize=4)
def flexible(v: Vectorized) -> Any:
    """The program for every size, built once for all the batches that it is checked with."""
    return v.compile()


def check(
    fn: Callable[..., Any] | Vectorized,
    specs: Sequence[Any] | None,
    examples: Sequence[Sequence[Any]],
    *,
    jit: bool = True,
    fixed: bool = True,
    fallbacks: int | None = 0,
    slack: int = 2,
    rtol: float = 1e-5,
    atol: float = 1e-5,
    picky: Literal["never", "compiled", "always"] = "never",
) -> Vectorized:
    """Compare `fn` over the batch of `examples` with `fn` on each. Returns the Vectorized.

    `fixed`: also with all shapes fixed, in plain TensorFlow. `slack`: by how much fixed shapes are longer than the
    longest example, for programs that make longer ones. `picky`: when a row may be flagged that the function
    accepts (it is then run alone).
    """
    v = fn if isinstance(fn, Vectorized) else vectorize(fn, specs)
    if fallbacks is not None:
        assert len(v.report.fallbacks) == fallbacks, str(v.report)
    expected = [per_example(v, example) for example in examples]
    _compare(v, flexible(v), examples, expected, len(examples), None, rtol, atol, picky == "always")
    rooms = _rooms(v, examples, slack)
    rows = len(examples) + 1
    if fixed:
        _compare(v, v.compile(rows, rooms), examples, expected, rows, rooms, rtol, atol, picky == "always")
    if jit and v.compilable and not v.report.fallbacks:
        _compare(v, v.compile(rows, rooms, jit=True), examples, expected, rows, rooms, rtol, atol, picky != "never")
    return v


def check_flexible(v: Vectorized, examples: Sequence[Sequence[Any]], *, rtol: float = 1e-5, atol: float = 1e-5) -> None:
    """As `check`, the flexible program only, which takes a batch of any size, none at all included."""
    expected = [per_example(v, example) for example in examples]
    _compare(v, flexible(v), examples, expected, len(examples), None, rtol, atol)


def _rooms(v: Vectorized, examples: Sequence[Sequence[Any]], slack: int) -> list[int]:
    rooms = []
    for bound in v.bounds:
        if bound.axis is None:
            sizes = [
                max((len(s) for s in np.ravel(np.array(e[bound.input], dtype=object))), default=0) for e in examples
            ]
        else:
            sizes = [np.shape(example[bound.input])[bound.axis] for example in examples]
        rooms.append(max(sizes, default=0) + slack)
    return rooms


def stack(
    v: Vectorized, examples: Sequence[Sequence[Any]], rows: int, rooms: Sequence[int] | None
) -> tuple[list, list]:
    """Dense inputs padded with junk, and lengths; rows beyond the examples repeat the first."""
    padded = list(examples) + [examples[0]] * (rows - len(examples)) if examples else []
    inputs, lengths = [], []
    for k, spec in enumerate(v.input_specs):
        items = [np.asarray(example[k], spec.dtype.as_numpy_dtype) for example in padded]
        shape = list(np.max([item.shape for item in items], axis=0).astype(int)) if items else []
        if not items:
            shape = [size if size is not None else 0 for size in spec.shape.as_list()]
        for position, bound in enumerate(v.bounds):
            if rooms is not None and bound.input == k and bound.axis is not None:
                shape[bound.axis] = rooms[position]
        dense = np.full([len(padded), *shape], _junk(spec.dtype), spec.dtype.as_numpy_dtype)
        for row, item in enumerate(items):
            dense[(row, *(slice(0, size) for size in item.shape))] = item if item.ndim else item.item()
        inputs.append(tf.constant(dense, spec.dtype))
    for k, axis in v.input_dims:
        lengths.append(np.array([np.shape(example[k])[axis] for example in padded], np.int32))
    return inputs, lengths


def _junk(dtype: Any) -> Any:
    if dtype == tf.string:
        return b"junk"
    if dtype == tf.bool:
        return True
    return np.nan if dtype.is_floating or dtype.is_complex else 77


def _compare(v, program, examples, expected, rows, rooms, rtol, atol, picky=False) -> None:
    inputs, lengths = stack(v, examples, rows, rooms)
    outputs, out_lengths, ok = program(inputs, lengths, len(examples))
    ok = ok.numpy()
    assert ok[len(examples) :].all(), "spare rows must not count"
    for row, wanted in enumerate(expected):
        if isinstance(wanted, Exception):
            assert not ok[row], f"row {row} must be flagged: {wanted}"
            continue
        if picky and not ok[row]:
            continue
        assert ok[row], f"row {row} is flagged, but the function accepts it"
        for k, value in enumerate(wanted):
            got = outputs[k].numpy()[row]
            cut = [slice(None)] * value.ndim
            for (own, axis), sizes in zip(v.output_dims, out_lengths, strict=True):
                if own == k:
                    assert sizes.numpy()[row] == value.shape[axis], f"row {row}, output {k}: length along axis {axis}"
                    cut[axis] = slice(0, value.shape[axis])
            got = got[tuple(cut)] if value.ndim else got
            assert outputs[k].dtype == v.concrete.outputs[k].dtype, f"output {k}: {outputs[k].dtype}"
            assert np.shape(got) == value.shape, f"row {row}, output {k}: shape {np.shape(got)}, expected {value.shape}"
            if value.dtype == object or value.dtype.kind in "biuSO":
                np.testing.assert_array_equal(got, value, err_msg=f"row {row}, output {k}")
            else:
                np.testing.assert_allclose(got, value, rtol=rtol, atol=atol, err_msg=f"row {row}, output {k}")
