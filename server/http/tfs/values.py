"""TensorFlow Serving's JSON: `instances` and `inputs` to examples, outputs to `predictions` and `outputs`.

In the row form each instance is one example, so instances may differ in shape. In the columnar form the first
dimension counts the examples; where the lists beneath it differ in shape, each is an example all the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from server.engines.batch_result import Array, Example, Outputs
from server.errors import InvalidInput
from server.http.codec import TensorReader, to_base64, to_json
from server.http.nonfinite import Nonfinite, numbers_to_json
from server.model_description import SignatureDescription, TensorDescription
from server.tensors import Rows, check_count, check_length, check_names, of_many

_RAW_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_RAW_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


class _Input:
    """One input, of one example or of many."""

    def __init__(self, tensor: TensorDescription, max_length: int | None) -> None:
        self.tensor = tensor
        self._max_length = max_length
        self.one = TensorReader(tensor, max_length)
        self._many = TensorReader(of_many(tensor))

    def read_many(self, text: msgspec.Raw) -> Array | None:
        """Returns [n, ...], or None where the elements need a look, each for itself."""
        array = self._many.read_plain(text)
        if array is not None:
            check_length(self.tensor, array, self._max_length, leading=1)
        return array


class TfsCodec:
    """Reads and writes the values of one signature. `example_limit`: more are refused before each is read."""

    def __init__(self, signature: SignatureDescription, example_limit: int) -> None:
        self.signature = signature
        self._example_limit = example_limit
        self._inputs = {tensor.name: _Input(tensor, signature.max_length) for tensor in signature.inputs}

    def read_instances(self, text: msgspec.Raw) -> Sequence[Example]:
        """Returns the examples of the row form. Raises InvalidInput, naming the instance."""
        if len(self._inputs) == 1:
            (only,) = self._inputs.values()
            array = only.read_many(text)
            if array is not None:
                return self._at_least_one(Rows({only.tensor.name: array}))
        instances = self._list(text, "'instances'")
        return self._at_least_one([self._read_instance(index, each) for index, each in enumerate(instances)])

    def read_columns(self, text: msgspec.Raw) -> Sequence[Example]:
        """Returns the examples of the columnar form. Raises InvalidInput, naming the input."""
        named = self._named(text)
        if named is None:
            named = dict.fromkeys(self._inputs, text)
        columns = {name: self._read_column(each, named[name]) for name, each in self._inputs.items()}
        arrays = {name: column for name, column in columns.items() if isinstance(column, np.ndarray)}
        if len(arrays) == len(columns):
            return Rows(arrays)
        counts = {name: len(column) for name, column in columns.items()}
        if len(set(counts.values())) > 1:
            raise InvalidInput(f"'inputs' differ in their number of examples: {counts}")
        return list(zip(*([row[...] for row in column] for column in columns.values()), strict=True))

    def write_rows(self, rows: Sequence[Outputs], nonfinite: Nonfinite) -> Any:
        """Returns what orjson prints as `predictions`."""
        tensors = self.signature.outputs
        if len(tensors) == 1:
            return [_value(tensors[0], row[0], nonfinite) for row in rows]
        return [
            {tensor.name: _value(tensor, output, nonfinite) for tensor, output in zip(tensors, row, strict=True)}
            for row in rows
        ]

    def write_columns(self, rows: Sequence[Outputs], nonfinite: Nonfinite) -> Any:
        """Returns what orjson prints as `outputs`."""
        columns = {
            tensor.name: [_value(tensor, row[index], nonfinite) for row in rows]
            for index, tensor in enumerate(self.signature.outputs)
        }
        return columns if len(columns) != 1 else next(iter(columns.values()))

    def _at_least_one(self, examples: Sequence[Example]) -> Sequence[Example]:
        if not examples:
            raise InvalidInput("'instances' is empty; it takes at least one")
        return examples

    def _read_instance(self, index: int, text: msgspec.Raw) -> Example:
        try:
            named = self._named(text)
            if named is None:
                named = dict.fromkeys(self._inputs, text)
            check_names(self.signature, named)
            return tuple([each.one.read(named[name]) for name, each in self._inputs.items()])
        except InvalidInput as error:
            raise InvalidInput(f"instance {index}: {error.message}") from None

    def _named(self, text: msgspec.Raw) -> Mapping[str, msgspec.Raw] | None:
        """Returns the values by input name; None for a bare value, which only a single input may have."""
        single = len(self._inputs) == 1
        if bytes(memoryview(text)[:1]) != b"{":
            if single:
                return None
            raise InvalidInput(f"expected an object of the inputs {', '.join(map(repr, self._inputs))}")
        try:
            named = _RAW_OBJECT.decode(text)
        except msgspec.DecodeError as error:
            raise InvalidInput(f"not an object of inputs: {error}") from None
        if single and named.keys() == {"b64"} and "b64" not in self._inputs:
            return None
        if missing := [name for name in self._inputs if name not in named]:
            raise InvalidInput(f"Missing named input: {', '.join(map(repr, missing))}")
        return named

    def _list(self, text: msgspec.Raw, what: str) -> list[msgspec.Raw]:
        try:
            values = _RAW_LIST.decode(text)
        except msgspec.DecodeError:
            raise InvalidInput(f"{what} must be a list, one element for each example") from None
        check_count(len(values), self._example_limit)
        return values

    def _read_column(self, column: _Input, text: msgspec.Raw) -> Array | list[Array]:
        array = column.read_many(text)
        if array is not None:
            return array
        return [column.one.read(value) for value in self._list(text, f"input {column.tensor.name!r}")]


def _value(tensor: TensorDescription, array: Array, nonfinite: Nonfinite) -> Any:
    """Texts of an output whose name ends with `_bytes` go as {"b64": ...}, as all that aren't UTF-8."""
    if array.dtype.kind != "O":
        return numbers_to_json(tensor.name, array, nonfinite)
    return to_base64(array) if tensor.name.endswith("_bytes") else to_json(array)
