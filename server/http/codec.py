"""JSON values to numpy arrays and back, by the signature's description.

Reading has two ways. The fast one decodes each input with a msgspec decoder of exactly the type and rank
that the signature asks for, so that a boolean among numbers or 1.0 among integers can't slip through, and
gives the list to numpy. Whatever it can't take goes to `json_tensor.read_tensor`, which looks at each
element: that takes the rare forms ("NaN", {"b64": ...}, an empty list that stands for several dimensions) and
finds the words for what is wrong.

Writing gives arrays to orjson, which prints the shortest digits that read back as the same float32. NaN and
the infinities become strings, since JSON has no numbers for them; bytes that aren't UTF-8 become
{"b64": ...}.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np

from server.engines.batch_result import Array, Example, Outputs
from server.errors import InvalidInput
from server.http.json_tensor import read_tensor
from server.model_description import SignatureDescription, TensorDescription
from server.tensors import check_length, check_names, numpy_dtype

_JSON_TYPES: dict[str, type] = {"b": bool, "i": int, "u": int, "f": float, "O": str}


class SignatureCodec:
    """Reads the inputs and writes the outputs of one signature."""

    def __init__(self, signature: SignatureDescription) -> None:
        self.signature = signature
        self._readers = {tensor.name: TensorReader(tensor, signature.max_length) for tensor in signature.inputs}
        self._output_names = [tensor.name for tensor in signature.outputs]

    def read(self, inputs: Mapping[str, msgspec.Raw]) -> Example:
        """Returns the arrays of the inputs, in the signature's order. Raises InvalidInput."""
        if inputs.keys() != self._readers.keys():
            check_names(self.signature, inputs)
        return tuple([reader.read(inputs[name]) for name, reader in self._readers.items()])

    def write(self, outputs: Outputs) -> dict[str, Any]:
        """Returns what orjson prints (with OPT_SERIALIZE_NUMPY) as the reply's `outputs`."""
        return {name: to_json(array) for name, array in zip(self._output_names, outputs, strict=True)}


class TensorReader:
    """Reads one input from its JSON text; `max_length` bounds its variable dimensions and the bytes of its texts."""

    def __init__(self, tensor: TensorDescription, max_length: int | None = None) -> None:
        self._max_length = max_length
        self._tensor = tensor
        self._dtype = numpy_dtype(tensor)
        self._rank = len(tensor.shape)
        self._is_float = self._dtype.kind == "f"
        self._fixed = [(axis, size) for axis, size in enumerate(tensor.shape) if size is not None]
        json_type: Any = _JSON_TYPES[self._dtype.kind]
        for _ in tensor.shape:
            json_type = list[json_type]
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(json_type)

    def read(self, text: msgspec.Raw) -> Array:
        """Returns the array. Raises InvalidInput."""
        array = self.read_plain(text)
        if array is None:
            array = self._read_each_element(text)
        if self._max_length is not None:
            check_length(self._tensor, array, self._max_length)
        return array

    def read_plain(self, text: msgspec.Raw) -> Array | None:
        """Returns the array of a text in the usual form, or None for one that needs a look at each element."""
        try:
            value = self._decoder.decode(text)
            with np.errstate(over="ignore"):
                array = _text_array(value) if self._dtype.kind == "O" else np.array(value, dtype=self._dtype)
        except (msgspec.DecodeError, ValueError, OverflowError):
            return None
        shape = array.shape
        if len(shape) != self._rank or any(shape[axis] != size for axis, size in self._fixed):
            return None
        if self._is_float and not np.isfinite(array).all():
            return None
        return array

    def _read_each_element(self, text: msgspec.Raw) -> Array:
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidInput(f"input {self._tensor.name!r}: not valid JSON: {error}") from None
        return read_tensor(self._tensor, value)


def to_json(array: Array) -> Any:
    """Returns a form of one output that orjson prints: the array itself wherever it can."""
    if array.dtype.kind == "O":
        return _texts(array, _text)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        return _with_names(array)
    if not array.ndim:
        return array[()]
    return np.ascontiguousarray(array)


def _text_array(value: Any) -> Array:
    """Encodes nested lists of strings; lists of different lengths leave a rank that is too low."""
    array = np.array(value, dtype=object)
    texts = array.reshape(-1).tolist()
    if not set(map(type, texts)) <= {str}:
        raise ValueError("not rectangular")
    return np.fromiter(map(str.encode, texts), object, len(texts)).reshape(array.shape)


def to_base64(array: Array) -> Any:
    """Returns texts as {"b64": ...}, in nested lists."""
    return _texts(array, _base64)


def _texts(array: Array, form: Callable[[bytes], Any]) -> Any:
    if not array.ndim:
        return form(array.item())
    texts = np.empty(array.shape, dtype=object)
    for index, text in enumerate(array.flat):
        texts.flat[index] = form(text)
    return texts.tolist()


def _text(value: bytes) -> str | dict[str, str]:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return _base64(value)


def _base64(value: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(value).decode()}


def _with_names(array: Array) -> Any:
    """Nested lists of numpy scalars (which keep their short digits), with names for what isn't finite."""
    values = np.empty(array.shape, dtype=object)
    for index, value in enumerate(array.flat):
        values.flat[index] = value if np.isfinite(value) else _name_of(value)
    return values.tolist() if array.ndim else values.item()


def _name_of(value: Any) -> str:
    if np.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
