"""Straight-line regions as one node, after ACRoBat (Fegade and others, MLSys 2024): a template's nodes are vectorized
together, once, and launched together.

Inside a region nothing is scheduled and no operand is gathered: each op takes what the op before left, for all rows of
the group. Long groups are taken some rows at a time, so that what lies between ops stays in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from server.engines.dynamic.kernels import Kernel
from server.engines.dynamic.signatures import Signature, Signatures

_ROWS = 256


@dataclass(frozen=True)
class Part:
    """One op of a region: its operands and results as places: 0 .. are the region's own operands, then all results."""

    signature: Signature
    operands: tuple[int, ...]
    results: tuple[int, ...]


def region(signatures: Signatures, parts: Sequence[Part], inputs: Sequence[int], shown: Sequence[int]) -> Signature:
    """The signature of these ops as one. `inputs`: arenas of the region's operands. `shown`: places of the results that
    others read."""
    key = ("region", tuple((part.signature.index, part.operands) for part in parts), tuple(shown))
    writes = {
        place: (arena, shape)
        for part in parts
        for place, arena, shape in zip(part.results, part.signature.writes, part.signature.outputs, strict=True)
    }
    ends = [writes[place] for place in shown]
    kernel = _kernel(signatures, parts, len(inputs), {place: arena for place, (arena, _) in writes.items()}, shown)
    return signatures.of_region(key, kernel, inputs, [arena for arena, _ in ends], [shape for _, shape in ends])


def _kernel(
    signatures: Signatures, parts: Sequence[Part], inputs: int, arena_of: dict[int, int], shown: Sequence[int]
) -> Kernel:
    result_of = {place: position for position, place in enumerate(shown)}
    places = inputs + len(arena_of)
    viewed = {place for part in parts if part.signature.view is not None for place in part.results}
    buffers: dict[int, Any] = {}

    def run(count: int, operands: Sequence[Any], results: Sequence[Any]) -> Any:
        values: list[Any] = [*operands, *[None] * (places - inputs)]
        fine = None
        for part in parts:
            own = [values[place] for place in part.operands]
            signature = part.signature
            if signature.view is not None:
                for place, view in zip(part.results, signature.view(count, own), strict=True):
                    values[place] = view
                    if place in result_of:
                        results[result_of[place]][:] = view
                continue
            if signature.packed:
                own = [np.stack(own, axis=1).reshape(count * len(own), -1)]
            for place in part.results:
                values[place] = results[result_of[place]] if place in result_of else buffers[place][:count]
            good = signature.kernel(count, own, [values[place] for place in part.results])
            if good is not None:
                fine = good if fine is None else fine & good
        return fine

    def kernel(count: int, operands: Sequence[Any], results: Sequence[Any]) -> Any:
        for place, arena in arena_of.items():
            if place not in result_of and place not in viewed and place not in buffers:
                size, dtype = signatures.arenas[arena]
                buffers[place] = np.empty((_ROWS, size), dtype)
        if count <= _ROWS:
            return run(count, operands, results)
        answers = []
        for start in range(0, count, _ROWS):
            rows = slice(start, min(start + _ROWS, count))
            length = rows.stop - start
            good = run(length, [item[rows] for item in operands], [item[rows] for item in results])
            answers.append(np.ones(length, bool) if good is None else good)
        return np.concatenate(answers)

    return kernel
