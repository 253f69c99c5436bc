"""What an engine returns for one batch: an answer or an error for every row, and how it was computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
"""A numpy array; strings are object arrays of bytes."""

Example: TypeAlias = tuple[Array, ...]
"""One example: its arrays in the order of the signature's inputs."""

Outputs: TypeAlias = tuple[Array, ...]
"""One answer: its arrays in the order of the signature's outputs."""


@dataclass(frozen=True, slots=True)
class RowError:
    """The per-example function refuses this row; `message` is the function's own, in one sentence."""

    message: str


@dataclass(frozen=True, slots=True)
class BatchStats:
    """How one batch was computed. Times in seconds.

    `assembly_s`: padding and stacking. `compute_s`: the program. `split_s`: cutting the outputs into rows,
    and running rows alone. `rows_padded`: rows added to fill the bucket. `padding_ratio`: share of the
    elements sent to the program that are padding, 0.0 to 1.0. `isolated`: rows that were run alone.
    `compiles`: traces and compiles since the model was ready (all batches together); stays 0.
    `program`: which program ran ("plain", "xla", "loop", "alone"). `cold`: no bucket held the batch, so the
    plain program ran at a size that was not warmed. `failure`: why the batch's program raised as a whole.
    `nodes`, `launches`: of an engine that batches at run time, the size of the graph and how many kernels ran it;
    `build_s`, `schedule_s`, `gather_s`: what its `assembly_s` is made of.
    """

    compute_s: float = 0.0
    assembly_s: float = 0.0
    split_s: float = 0.0
    rows_padded: int = 0
    padding_ratio: float = 0.0
    isolated: int = 0
    compiles: int = 0
    program: str = ""
    cold: bool = False
    failure: str = ""
    nodes: int = 0
    launches: int = 0
    build_s: float = 0.0
    schedule_s: float = 0.0
    gather_s: float = 0.0


@dataclass(frozen=True, slots=True)
class BatchResult:
    """`rows[i]` is the answer of, or the error for, row i of the batch, which belongs to the request `owners[i]`.

    `owners` come back from where the row was computed; engines, which know nothing of requests, leave them out.
    """

    rows: list[Outputs | RowError]
    stats: BatchStats
    owners: Sequence[int] = ()


def as_array(value: Any, dtype: str) -> Array:
    """Returns `value` as an array as engines exchange them: `string` becomes an object array of bytes."""
    if dtype != "string":
        return np.asarray(value, dtype=dtype)
    array = np.asarray(value, dtype=object)
    if array.shape == ():
        return np.array(_bytes(array.item()), dtype=object)
    return np.array([_bytes(item) for item in array.ravel()] + [b""], dtype=object)[:-1].reshape(array.shape)


def _bytes(item: Any) -> bytes:
    return item.encode() if isinstance(item, str) else bytes(item)


OnBatch: TypeAlias = Callable[[BatchResult | Exception], None]
"""Is told what came of a batch: its result, or why there is none."""
