"""A traced batched program, as it is called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from vectorizer.tf_internals import flat_call
from vectorizer.values import pad_axis


class BatchedProgram:
    """One traced program: `(inputs, lengths, rows) -> (outputs, output_lengths, ok)`. Safe to call from any thread."""

    def __init__(self, concrete: Any, inputs: int, dims: Sequence[tuple[int, int]], outputs: int) -> None:
        self.concrete = concrete
        self._inputs, self._dims, self._outputs = inputs, tuple(dims), outputs
        self._call = flat_call(concrete)

    def __call__(self, inputs: Sequence[Any], lengths: Sequence[Any], rows: int) -> tuple[list[Any], list[Any], Any]:
        """Run one batch, eagerly and unseen by gradient tapes. Arrays may be numpy or tensors; results are tensors."""
        arrays, sizes = self._tensors(inputs, lengths)
        if arrays and arrays[0].shape[0] == 0:
            flat = self._empty()
        else:
            flat = list(self._call([*arrays, *sizes, tf.constant(rows)]))
        return flat[: self._outputs], flat[self._outputs : -1], flat[-1]

    def traced(self, inputs: Sequence[Any], lengths: Sequence[Any], rows: Any) -> tuple[list[Any], list[Any], Any]:
        """The same as a part of a program: within graphs, and recorded by gradient tapes."""
        arrays, sizes = self._tensors(inputs, lengths)
        if arrays and arrays[0].shape[0] == 0:
            flat = self._empty()
            return flat[: self._outputs], flat[self._outputs : -1], flat[-1]
        outputs, out_lengths, ok = self.concrete(arrays, sizes, tf.convert_to_tensor(rows, tf.int32))
        return list(outputs), list(out_lengths), ok

    def _empty(self) -> list[Any]:
        """What a batch of no rows gives. It isn't run: many kernels refuse to write into an empty tensor."""
        specs = tf.nest.flatten(self.concrete.structured_outputs)
        shapes = [[0, *(size or 0 for size in spec.shape.as_list()[1:])] for spec in specs]
        return [
            tf.constant(np.zeros(shape, spec.dtype.as_numpy_dtype), spec.dtype)
            for shape, spec in zip(shapes, specs, strict=True)
        ]

    def _tensors(self, inputs: Sequence[Any], lengths: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        if len(inputs) != self._inputs or len(lengths) != len(self._dims):
            raise ValueError(
                f"expected {self._inputs} inputs and {len(self._dims)} lengths, got {len(inputs)} and {len(lengths)}"
            )
        arrays = [tf.convert_to_tensor(item) for item in inputs]
        for k, axis in self._dims:
            if arrays[k].shape[axis + 1] == 0:  # inside, a padded dimension has at least one element
                arrays[k] = pad_axis(arrays[k], axis + 1, 1)
        sizes = [tf.convert_to_tensor(item, tf.int32) for item in lengths]
        return arrays, sizes
