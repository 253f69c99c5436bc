"""What an inference request asks, whichever form it came in: which tensors, until when, which outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from server.engines.batch_result import Array
from server.errors import InvalidInput, PayloadTooLarge
from server.lanes import DEFAULT_SIGNATURE
from server.model_description import SignatureDescription, TensorDescription
from server.open_inference.datatypes import DATATYPES
from server.tensors import Rows, check_length, check_names, expected_shape

_LAST_PRIORITY = 2**16
_LARGEST_SIZE = 2**31
_LONGEST_SHOWN = 100
WISHES = ("timeout", "priority", "signature", "binary_data_output")
"""The parameters of a request that mean something here."""
UNSUPPORTED = ("classification", "shared_memory_region")
"""The parameters of a tensor that would change what it means."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """The request's parameters. `timeout_s`: how long it may take. `priority`: higher goes first."""

    signature: str
    timeout_s: float
    priority: int
    binary_outputs: bool


def read_wishes(parameters: Mapping[str, Any], timeout_s: float) -> Wishes:
    """Reads `timeout` (µs, 0: the server's), `priority` (1 goes first, 0 last), `signature`, `binary_data_output`."""
    timeout_us = _number(parameters, "timeout")
    priority = _number(parameters, "priority")
    signature = parameters.get("signature", DEFAULT_SIGNATURE)
    if not isinstance(signature, str):
        raise InvalidInput(f"parameter 'signature' must be a string, got {shown(signature)}")
    return Wishes(
        signature=signature,
        timeout_s=timeout_us / 1e6 if timeout_us else timeout_s,
        priority=max(0, _LAST_PRIORITY - priority) if priority else 0,
        binary_outputs=parameters.get("binary_data_output") is True,
    )


def refuse_unsupported(tensor: str, parameters: Mapping[str, Any]) -> None:
    """Raises InvalidInput for a tensor's parameters that would change what it means."""
    for name in UNSUPPORTED:
        if parameters.get(name):
            raise InvalidInput(f"{tensor!r}: the parameter {name!r} isn't supported")


def shown(value: Any) -> str:
    """Returns a parameter's value for an error; lists and objects, which may be nested deep, only by their kind."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


class InferSignature:
    """Checks the tensors of one signature's requests against it. `text_limit`: elements of a tensor of BYTES."""

    def __init__(self, signature: SignatureDescription, text_limit: int) -> None:
        self.signature = signature
        self._text_limit = text_limit
        self.inputs = {tensor.name: tensor for tensor in signature.inputs}
        self.outputs = {tensor.name: (index, tensor) for index, tensor in enumerate(signature.outputs)}
        self._names = list(self.inputs)
        self._all_outputs = tuple(self.outputs.values())

    def check_input_names(self, names: Sequence[str]) -> None:
        """Raises InvalidInput unless every input is there once."""
        if names == self._names:
            return
        if len(set(names)) < len(names):
            raise InvalidInput(f"an input stands twice among {', '.join(map(repr, names))}")
        check_names(self.signature, dict.fromkeys(names))

    def check_form(self, name: str, datatype: str, shape: Sequence[int]) -> tuple[int, ...]:
        """Returns the shape of an input, as a tuple. Raises InvalidInput, PayloadTooLarge if it can't be taken."""
        tensor = self.inputs[name]
        wanted = DATATYPES[tensor.dtype]
        fits = len(shape) == len(tensor.shape) + 1 and all(0 <= size < _LARGEST_SIZE for size in shape)
        fits = fits and all(want in (None, came) for want, came in zip(tensor.shape, shape[1:], strict=True))
        if datatype != wanted or not fits:
            raise InvalidInput(
                f"input {name!r}: expected {wanted} of shape {expected_shape(tensor, 'n')}, "
                f"got {datatype} of shape {list(shape)}"
            )
        if wanted == "BYTES" and prod(shape) > self._text_limit:
            raise PayloadTooLarge(f"input {name!r}: more than {self._text_limit} texts; send it in pieces")
        return tuple(shape)

    def rows(self, arrays: Mapping[str, Array]) -> Rows:
        """Returns the examples in arrays of shape [n, ...]. Raises InvalidInput if they differ in n."""
        limit = self.signature.max_length
        if limit is not None:
            for name, tensor in self.inputs.items():
                check_length(tensor, arrays[name], limit, leading=1)
        return Rows({name: arrays[name] for name in self.inputs})

    def choose_outputs(self, names: Iterable[str]) -> Sequence[tuple[int, TensorDescription]]:
        """Returns the outputs asked for, in that order, with their positions; all, if none is."""
        chosen: dict[str, tuple[int, TensorDescription]] = {}
        for name in names:
            if name not in self.outputs:
                there = ", ".join(map(repr, self.outputs))
                raise InvalidInput(f"unknown output {name!r}; signature {self.signature.name!r} has {there}")
            if name in chosen:
                raise InvalidInput(f"output {name!r} is asked for twice")
            chosen[name] = self.outputs[name]
        return tuple(chosen.values()) or self._all_outputs


def _number(parameters: Mapping[str, Any], name: str) -> int:
    value = parameters.get(name, 0)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**64:
        raise InvalidInput(f"parameter {name!r} must be a whole number of at least 0, got {shown(value)}")
    return value
