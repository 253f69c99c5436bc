"""Reductions over the iterations of a `pfor`: what `pfor_config` offers to the function in the loop.

In the function's graph an op without meaning stands for each; normalising puts an op of type `OP_TYPE` in its place,
whose operands are the values reduced and whose results are the same for all iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from vectorizer.batch import Batch
from vectorizer.program import Op
from vectorizer.values import NotConvertible, Value, shared

OP_TYPE = "PforReduction"
_MARK = "_batchd_reduction"


@dataclass(frozen=True)
class Reduction:
    """A ConcreteFunction over stacked values `[n, ...]`, and the tensors of one iteration that are to be stacked."""

    function: Any
    arguments: tuple[Any, ...]


def reduction_of(op: Any) -> Reduction | None:
    """The reduction that an op of the function's graph stands for, if it does."""
    return getattr(op, _MARK, None)


class PforConfig:
    """What a loop function with an argument `pfor_config` is given.

    What a reduction returns is the same for every iteration; no gradient flows through it inside of the function.
    """

    def __init__(self, iterations: int | None) -> None:
        self._iterations = iterations
        self.used = False

    def reduce(self, fn: Callable[..., Any], *args: Any) -> Any:
        """`fn` on the values that `args` have in all iterations, stacked: `[n, ...]` for each.

        Returns a tensor, or a tuple of those that `fn` returns. Raises ValueError for what isn't a tensor, and where
        `fn` reads a value of the iteration that isn't among `args`.
        """
        for item in args:
            if not tf.is_tensor(item):
                raise ValueError(f"pfor_config.reduce takes tensors, got {item!r}")
        specs = [tf.TensorSpec([self._iterations, *item.shape], item.dtype) for item in args]
        function = tf.function(fn).get_concrete_function(*specs)
        here = tf.compat.v1.get_default_graph()
        if any(getattr(tensor, "graph", None) is here for tensor in function.captured_inputs if not _eager(tensor)):
            raise ValueError("pfor_config.reduce: the function reads a value of the iteration; give it as an argument")
        results = [item for item in tf.nest.flatten(function.structured_outputs) if item is not None]
        with tf.control_dependencies(args):
            marker = tf.raw_ops.IdentityN(input=[_nothing(item) for item in results])
        setattr(marker[0].op, _MARK, Reduction(function, args))
        self.used = True
        return marker[0] if len(marker) == 1 else tuple(marker)

    def reduce_sum(self, x: Any) -> Any:
        """The sum of `x` over all iterations, of the shape of `x`."""
        return self.reduce(lambda rows: tf.reduce_sum(rows, axis=0), x)

    def reduce_mean(self, x: Any) -> Any:
        """The mean of `x` over all iterations, of the shape of `x`."""
        return self.reduce(lambda rows: tf.reduce_mean(rows, axis=0), x)

    def reduce_concat(self, x: Any) -> Any:
        """`x` of all iterations, stacked: `[n, ...]`."""
        return self.reduce(lambda rows: rows, x)


def emit(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """The reduction over all rows of the batch."""
    if batch.active is not None or not inputs:
        raise NotConvertible("a reduction inside a loop or branch that some iterations don't take part in")
    if any(value.ragged for value in inputs):
        raise NotConvertible("a reduction of values whose size differs between iterations")
    results = op.attrs["function"](*(batch.rows(value) for value in inputs))
    return [shared(tensor) for tensor in tf.nest.flatten(results)]


def _eager(tensor: Any) -> bool:
    return hasattr(tensor, "numpy")


def _nothing(spec: Any) -> Any:
    if spec.shape.is_fully_defined():
        return tf.zeros(spec.shape, spec.dtype)
    return tf.compat.v1.placeholder(spec.dtype, spec.shape)
