"""`vectorized_map` and `pfor`, which take the place of TensorFlow's functions of these names.

They differ in what they promise: every element is answered as `fn` alone would answer it, errors included; nothing is
traced again when the same function is called with elements of the same shapes; what can't be vectorized so is refused,
not answered wrongly. Nothing falls back to a loop over all elements: an op without a rule is looped on its own, and
`warn` says so.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from vectorizer.vectorized import Vectorized, vectorize

_eager_programs: weakref.WeakKeyDictionary[Any, dict[Any, tuple[Vectorized, Any]]] = weakref.WeakKeyDictionary()


def vectorized_map(fn: Callable[..., Any], elems: Any, fallback_to_while_loop: bool = True, warn: bool = True) -> Any:
    """`fn` on each element of `elems`, a tensor or nest of tensors that agree in their first dimension.

    Returns the results stacked, in the structure that `fn` returns; RaggedTensors where their sizes differ.
    Raises VectorizationError for what can't be vectorized, and with `fallback_to_while_loop=False` for any op that
    would be looped over the elements; in eager mode, the error that `fn` raises for the first element that it rejects.
    """
    flat = [tf.convert_to_tensor(item) for item in tf.nest.flatten(elems)]
    specs = [tf.TensorSpec(item.shape[1:], item.dtype) for item in flat]

    def on_one(*arguments: Any) -> Any:
        return fn(tf.nest.pack_sequence_as(elems, list(arguments)))

    v, kept = _program(fn, on_one, specs, fallback_to_while_loop, warn)
    return _unpacked(v, kept, v(*flat))


def pfor(
    loop_fn: Callable[[Any], Any],
    iters: Any,
    fallback_to_while_loop: bool = True,
    parallel_iterations: int | None = None,
    warn: bool = False,
) -> Any:
    """`loop_fn(i)` for i in 0 .. `iters` - 1, results stacked. `parallel_iterations` is accepted and not needed."""
    del parallel_iterations
    v, kept = _program(loop_fn, loop_fn, [tf.TensorSpec([], tf.int32)], fallback_to_while_loop, warn)
    return _unpacked(v, kept, v(tf.range(iters)))


def _program(
    key: Callable[..., Any], fn: Callable[..., Any], specs: list[Any], fallback: bool, warn: bool
) -> tuple[Vectorized, Any]:
    """The vectorized function, and the structure of its results; kept for eager calls with the same shapes."""
    structure: list[Any] = []

    def recorded(*arguments: Any) -> Any:
        result = fn(*arguments)
        structure[:] = [result]
        return [tf.convert_to_tensor(item) for item in tf.nest.flatten(result) if item is not None]

    signature = (tuple((spec.shape.rank and tuple(spec.shape.as_list()), spec.dtype) for spec in specs), fallback)
    cached = _cached(key)
    if signature in cached and tf.executing_eagerly():
        return cached[signature]
    v = vectorize(recorded, specs, strict=not fallback)
    kept = tf.nest.map_structure(lambda item: item is not None, structure[0])
    if warn and v.report.fallbacks:
        ops = ", ".join(sorted({entry.op_type for entry in v.report.fallbacks}))
        warnings.warn(f"looped over the elements, for want of a rule: {ops}", stacklevel=3)
    if tf.executing_eagerly():
        cached[signature] = (v, kept)
    return v, kept


def _cached(key: Callable[..., Any]) -> dict[Any, tuple[Vectorized, Any]]:
    try:
        return _eager_programs.setdefault(key, {})
    except TypeError:  # a callable that can't be weakly referenced or hashed
        return {}


def _unpacked(v: Vectorized, kept: Any, results: Any) -> Any:
    flat = iter(results)
    leaves = [next(flat) if present else None for present in tf.nest.flatten(kept)]
    return tf.nest.pack_sequence_as(kept, leaves)
