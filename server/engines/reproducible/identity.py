"""Digests of what decides an answer's bits besides the example: the function with its weights, and the machine."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import tensorflow as tf

from server.engines.compile_cache import machine_key
from vectorizer.program import Program, Var

_DIGEST_BYTES = 6
_FLAGS_THAT_COUNT = ("XLA_FLAGS", "TF_ENABLE_ONEDNN_OPTS", "ONEDNN_MAX_CPU_ISA", "ONEDNN_DEFAULT_FPMATH_MODE")


def function_digest(program: Program, variables: Any) -> str:
    """Of the ops, constants, captured tensors and variables, and of batchd's own version.

    Names don't count. What a function reads from elsewhere (a lookup table's content) isn't seen.
    """
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    digest.update(_own_version().encode())
    for line in _lines(program, {}):
        digest.update(line.encode() + b"\n")
    for var, tensor in program.captures.items():
        if var.dtype not in (tf.resource, tf.variant):
            _add_array(digest, tensor.numpy())
    for variable in variables:
        _add_array(digest, variable.numpy())
    return digest.hexdigest()


def machine_digest(device: str = "cpu") -> str:
    """Of the CPU's features, TensorFlow's version, the device, and the environment that chooses kernels."""
    flags = [f"{name}={os.environ.get(name, '')}" for name in _FLAGS_THAT_COUNT]
    text = "\n".join([machine_key(), device, *flags])
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def threads_within_an_op() -> int:
    """How many threads TensorFlow gives to one op: as set, or one for each processor that this process may use."""
    return tf.config.threading.get_intra_op_parallelism_threads() or len(os.sched_getaffinity(0))


def _lines(program: Program, numbers: dict[Var, int]) -> Iterator[str]:
    for var in program.inputs:
        yield f"input {numbers.setdefault(var, len(numbers))} {var!r}".replace(var.name, "", 1)
    for op in program.ops:
        operands = [_operand(var, numbers) for var in op.inputs]
        for var in op.outputs:
            numbers[var] = len(numbers)
        yield f"{op.type} {operands} {_plain(op.attrs)}"
        for role, body in sorted(op.bodies.items()):
            yield role
            yield from _lines(body, numbers)
    yield f"return {[_operand(var, numbers) for var in program.outputs]}"


def _operand(var: Var, numbers: Mapping[Var, int]) -> str:
    if var.constant is None:
        return str(numbers.get(var, -1))
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    _add_array(digest, var.constant)
    return f"{var.dtype.name}{digest.hexdigest()}"


def _plain(attrs: Mapping[str, Any]) -> str:
    """Attributes without the names of functions, which differ from trace to trace."""
    kept = {
        key: value for key, value in attrs.items() if isinstance(value, bool | int | float | str | bytes | tf.DType)
    }
    kept |= {key: str(value) for key, value in attrs.items() if isinstance(value, list | tuple | tf.TensorShape)}
    return str(sorted((key, str(value)) for key, value in kept.items() if not key.startswith("_")))


def _add_array(digest: Any, array: Any) -> None:
    array = np.asarray(array)
    digest.update(f"{array.dtype.name}{array.shape}".encode())
    digest.update(repr(array.tolist()).encode() if array.dtype == object else np.ascontiguousarray(array).tobytes())


def _own_version() -> str:
    try:
        return version("batchd")
    except PackageNotFoundError:
        return ""
