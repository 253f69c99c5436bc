"""Examples that are as long as a bucket, made of samples: a bucket is rounded up, so no sample need fill it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from server.engines.batch_result import Array, Example
from server.engines.measure import Lengths
from server.model_description import BoundDescription, TensorDescription


def stretch(
    example: Example, inputs: Sequence[TensorDescription], bounds: Sequence[BoundDescription], lengths: Lengths
) -> Example:
    """Returns the example with its content repeated, or cut, until every bounded size is exactly that of `lengths`.

    A text is repeated as text: it may be a few bytes shorter than asked for where a character would be cut.
    """
    size_of = {(bound.input, bound.axis): size for bound, size in zip(bounds, lengths, strict=True)}
    return tuple(_stretch_input(array, tensor, size_of) for array, tensor in zip(example, inputs, strict=True))


def _stretch_input(array: Array, tensor: TensorDescription, size_of: dict[tuple[str, int | None], int]) -> Array:
    for axis in range(array.ndim):
        size = size_of.get((tensor.name, axis))
        if size is not None:
            array = _repeat(array, axis, size)
    size = size_of.get((tensor.name, None))
    if size is None or not array.size:
        return array
    stretched = array.copy()
    stretched.flat[0] = _repeat_text(stretched.flat[0], size)
    if array.size > 1:
        stretched.flat[1:] = [text[:size] for text in stretched.flat[1:]]
    return stretched


def _repeat(array: Array, axis: int, size: int) -> Array:
    if array.shape[axis]:
        repeated: Array = np.take(array, np.arange(size) % array.shape[axis], axis=axis)
        return repeated
    shape = (*array.shape[:axis], size, *array.shape[axis + 1 :])
    return np.full(shape, b"" if array.dtype == object else 0, array.dtype)


def _repeat_text(text: bytes, size: int) -> bytes:
    repeated = ((text or b"a") * (size // max(len(text), 1) + 1))[:size]
    try:
        text.decode()
    except UnicodeDecodeError:
        return repeated
    return repeated.decode(errors="ignore").encode()
