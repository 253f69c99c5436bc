"""Arrays as requests bring them and replies take them: `[n, ...]`, row i for example i.

Every protocol ends here: its bytes have become one array for each input, and this says whether they fit the
signature, and cuts them into examples, as views.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np

from server.engines.batch_result import Array, Example, Outputs
from server.errors import InvalidInput, TooManyExamples
from server.model_description import SignatureDescription, TensorDescription


def numpy_dtype(tensor: TensorDescription) -> np.dtype[Any]:
    """The dtype of the array of a tensor; text is an object array of bytes."""
    return np.dtype(object if tensor.dtype == "string" else tensor.dtype)


def expected(tensor: TensorDescription) -> str:
    """Returns e.g. "int32 of shape [length, 4]" or "a single float32"."""
    if not tensor.shape:
        return f"a single {tensor.dtype}"
    return f"{tensor.dtype} of shape {expected_shape(tensor)}"


def expected_shape(tensor: TensorDescription, leading: str = "") -> str:
    """Returns e.g. "[length, 4]", or "[n, length, 4]" where the leading dimension has a name."""
    variable = tensor.shape.count(None)
    names = ["length"] if variable == 1 else [f"length_{number}" for number in range(variable)]
    sizes = [names.pop(0) if size is None else str(size) for size in tensor.shape]
    return f"[{', '.join([leading, *sizes] if leading else sizes)}]"


def of_many(tensor: TensorDescription) -> TensorDescription:
    """Describes the same tensor of any number of examples: a leading dimension of any size."""
    return TensorDescription(tensor.name, tensor.dtype, [None, *tensor.shape])


def check_names(signature: SignatureDescription, came: Mapping[str, object]) -> None:
    """Raises InvalidInput if the names are not exactly those of the signature's inputs."""
    names = [tensor.name for tensor in signature.inputs]
    problems = [f"missing input {name!r}" for name in names if name not in came]
    problems += [f"unknown input {name!r}" for name in came if name not in names]
    if problems:
        takes = ", ".join(f"{tensor.name!r}: {expected(tensor)}" for tensor in signature.inputs)
        takes = f"signature {signature.name!r} takes {takes or 'no inputs'}"
        raise InvalidInput(f"{'; '.join(problems)}; {takes}")


def check_length(tensor: TensorDescription, array: Array, limit: int | None, leading: int = 0) -> None:
    """Raises InvalidInput for a variable dimension, or a text in bytes, beyond the model's `max_length`.

    `leading`: how many dimensions the array has in front of the example's.
    """
    if limit is None:
        return
    for axis, size in enumerate(tensor.shape):
        if size is None and array.shape[axis + leading] > limit:
            came = array.shape[axis + leading]
            raise InvalidInput(f"input {tensor.name!r}: {came} elements, of at most {limit}, along axis {axis}")
    if tensor.dtype == "string":
        longest = max(map(len, array.flat), default=0)
        if longest > limit:
            raise InvalidInput(f"input {tensor.name!r}: a text of {longest} bytes, of at most {limit}")


def check_count(examples: int, limit: int) -> None:
    """Raises TooManyExamples for a request that the queue could not hold even if it were empty."""
    if examples > limit:
        raise TooManyExamples(
            f"the request has {examples} examples; at most {limit} may wait at once; send it in pieces"
        )


class Rows(Sequence[Example]):
    """The examples in arrays of shape [n, ...], one for each input; an example is made, of views, when asked for.

    Raises InvalidInput if the arrays differ in n.
    """

    def __init__(self, arrays: Mapping[str, Array]) -> None:
        counts = {name: len(array) for name, array in arrays.items()}
        if len(set(counts.values())) > 1:
            said = ", ".join(f"{count} of {name!r}" for name, count in counts.items())
            raise InvalidInput(f"the inputs differ in their number of examples: {said}")
        self._arrays = tuple(arrays.values())
        self._count = len(self._arrays[0]) if self._arrays else 0

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> list[Example]: ...
    def __getitem__(self, index: int | slice) -> Example | list[Example]:
        if isinstance(index, slice):
            return [self._row(row) for row in range(*index.indices(self._count))]
        return self._row(range(self._count)[index])

    def __iter__(self) -> Iterator[Example]:
        return map(self._row, range(self._count))

    def _row(self, index: int) -> Example:
        return tuple([array[index, ...] for array in self._arrays])


def join_rows(tensor: TensorDescription, rows: Sequence[Outputs], index: int) -> Array:
    """Returns output `index` of all rows as one array [n, ...].

    Raises InvalidInput where rows differ in shape: then no such array exists.
    """
    if len(rows) == 1:
        return rows[0][index][np.newaxis]
    if not rows:
        return np.empty([0, *(size or 0 for size in tensor.shape)], numpy_dtype(tensor))
    arrays = [row[index] for row in rows]
    shapes = sorted({array.shape for array in arrays})
    if len(shapes) > 1:
        some = " and ".join(str(list(shape)) for shape in shapes[:2])
        raise InvalidInput(
            f"output {tensor.name!r} differs in shape between the rows of this request ({some}), so it isn't one "
            "tensor; send these examples in requests of their own"
        )
    return np.stack(arrays)
