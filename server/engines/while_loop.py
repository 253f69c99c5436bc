"""A `tf.while_loop` over the rows of the batch: the baseline that the auto-vectorization paper compares with.

One program for every batch: it takes the padded batch, cuts each row back to its own size, calls the model's
function on it, and collects the outputs flat (rows may differ in size), with their shapes beside them. It
raises as a whole where one row raises; then the rows are run alone.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from server.engines import OnStep
from server.engines.assembly import PADDING_LIMIT_BYTES, Assembly
from server.engines.batch_result import BatchResult, BatchStats, Example, Outputs, as_array
from server.engines.error_text import row_message
from server.engines.isolation import answer_alone, run_alone
from server.engines.one_program import OneProgramEngine
from server.engines.per_example import PerExample
from server.engines.settings import EngineSettings
from server.model_description import Bucket, TensorDescription
from server.registry import ModelSpec
from vectorizer.tf_internals import flat_call


class WhileLoopEngine(OneProgramEngine):
    """Runs a batch as one TensorFlow call whose graph loops over the rows."""

    name = "while_loop"
    report_text = "a tf.while_loop over the rows; nothing is vectorized"

    def __init__(self, spec: ModelSpec, settings: EngineSettings) -> None:
        super().__init__(spec, settings)
        self._assembly = Assembly(self.inputs, self.outputs)
        self._dtypes = [tf.as_dtype(tensor.dtype) for tensor in self.inputs]
        self._call = flat_call(_trace_loop(self._per_example, self._assembly.input_dims))

    def prepare(self, samples: Sequence[Example], on_step: OnStep) -> None:
        """Runs the loop once, so that its kernels are loaded."""
        self.run(samples[:1], self._times[0].bucket)
        on_step("compile", 1, 1)

    def run(self, rows: Sequence[Example], bucket: Bucket) -> BatchResult:
        if self._assembly.padding_bytes(rows) > PADDING_LIMIT_BYTES:
            return run_alone(self._per_example, rows)
        started_at = time.perf_counter()
        batch = self._assembly.stack(rows, len(rows), None)
        assembled_at = time.perf_counter()
        answers: list[Outputs] | None
        failure = ""
        try:
            flat = self._call(
                [tf.constant(array, dtype) for array, dtype in zip(batch.inputs, self._dtypes, strict=True)]
                + [tf.constant(sizes) for sizes in batch.lengths]
            )
            columns = [tensor.numpy() for tensor in flat]
            computed_at = time.perf_counter()
            answers = _split(columns, self.outputs, len(rows))
        except tf.errors.OpError as error:
            computed_at, answers, failure = time.perf_counter(), None, row_message(error)
        merged, alone = answer_alone(self._per_example, rows, answers, [True] * len(rows))
        return BatchResult(
            merged,
            BatchStats(
                assembly_s=assembled_at - started_at,
                compute_s=computed_at - assembled_at,
                split_s=time.perf_counter() - computed_at,
                padding_ratio=batch.padding_ratio,
                isolated=alone,
                program="loop" if answers is not None else "alone",
                failure=failure,
            ),
        )


def _trace_loop(per_example: PerExample, input_dims: Sequence[tuple[int, int]]) -> Any:
    """Traces the loop: `[B, ...]` inputs and int32 `[B]` lengths in; elements and shapes of outputs out."""
    outputs = per_example.outputs
    signature = [tf.TensorSpec([None, *tensor.shape], tensor.dtype) for tensor in per_example.inputs]
    signature += [tf.TensorSpec([None], tf.int32) for _ in input_dims]

    @tf.function(input_signature=signature, autograph=False)  # type: ignore[untyped-decorator]  # TensorFlow has no types
    def loop(*arguments: Any) -> list[Any]:
        inputs, lengths = arguments[: len(per_example.inputs)], arguments[len(per_example.inputs) :]
        size = tf.shape(inputs[0])[0]

        def body(row: Any, *arrays: Any) -> tuple[Any, ...]:
            example = [_cut_row(x, index, row, input_dims, lengths) for index, x in enumerate(inputs)]
            results = tf.nest.flatten(per_example.concrete(*example))
            written = [
                array.write(row, value)
                for position, result in enumerate(results)
                for array, value in (
                    (arrays[2 * position], tf.reshape(result, [-1])),
                    (arrays[2 * position + 1], tf.shape(result)),
                )
            ]
            return row + 1, *written

        arrays = [
            array
            for tensor in outputs
            for array in (
                tf.TensorArray(tensor.dtype, size, infer_shape=False, element_shape=[None]),
                tf.TensorArray(tf.int32, size, element_shape=[len(tensor.shape)]),
            )
        ]
        _, *filled = tf.while_loop(lambda row, *_: row < size, body, (tf.constant(0), *arrays), parallel_iterations=1)
        return [
            value
            for elements, shapes in zip(filled[::2], filled[1::2], strict=True)
            for value in (elements.concat(), shapes.stack())
        ]

    return loop.get_concrete_function()


def _cut_row(batch: Any, index: int, row: Any, input_dims: Sequence[tuple[int, int]], lengths: Sequence[Any]) -> Any:
    example = batch[row]
    own = {axis: lengths[position] for position, (owner, axis) in enumerate(input_dims) if owner == index}
    cuts = [slice(own[axis][row]) if axis in own else slice(None) for axis in range(len(example.shape))]
    return example[tuple(cuts)] if own else example


def _split(
    columns: Sequence[Any], outputs: Sequence[TensorDescription], rows: int
) -> list[tuple[np.ndarray[Any, Any], ...]]:
    answers = []
    for elements, shapes, tensor in zip(columns[::2], columns[1::2], outputs, strict=True):
        ends = np.cumsum(np.prod(shapes, axis=1, dtype=np.int64))
        parts = np.split(elements, ends[:-1])
        answers.append([as_array(parts[row], tensor.dtype).reshape(shapes[row]) for row in range(rows)])
    return list(zip(*answers, strict=True))
