"""Examples that went different ways, brought together again."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from server.engines.dynamic.templates import Place
from server.engines.dynamic.values import Column, Entry, Kind, Seq, collected, entries

_KNOWN = frozenset({"fixed", "const", "host", "ragged"})


def at_once(sides: Sequence[Generator[None, None, Any]]) -> Generator[None, None, list[Any]]:
    """Lets all grow as far as they can, waits once for what they need, and so on; their results."""
    results: dict[int, Any] = {}
    while len(results) < len(sides):
        for number, side in enumerate(sides):
            if number not in results:
                try:
                    next(side)
                except StopIteration as done:
                    results[number] = done.value
        if len(results) < len(sides):
            yield
    return [results[number] for number in range(len(sides))]


def merged(parts: Sequence[tuple[Any, Column]], place: Place, whole: Callable[[Column, Place], Column]) -> Column:
    """One column of `parts`: (positions among the examples of `place`, column of these)."""
    kinds = [column.kind for _, column in parts]
    whats = {kind.what for kind in kinds}
    if len(parts) == 1 and (np.diff(parts[0][0]) > 0).all():
        return parts[0][1]
    if whats == {"shared"} and len({id(kind.extra) for kind in kinds}) == 1:
        return parts[0][1]
    if whats in ({"list"}, {"seq"}):
        return _sequences(parts, place)
    if whats == {"value"} and len({kind.shape for kind in kinds}) == 1:
        ids = np.empty(place.count, np.int64)
        for rows, (_, data) in parts:
            ids[rows] = data
        return Column(kinds[0], ids)
    if whats <= {"fixed", "const", "host"} and len({kind.shape for kind in kinds}) == 1:
        dtype = object if kinds[0].dtype == tf.string else kinds[0].dtype.as_numpy_dtype
        array = np.empty((place.count, *kinds[0].shape), dtype)
        for rows, (_, data) in parts:
            array[rows] = data
        return Column(Kind("host", kinds[0].shape, kinds[0].dtype), array)
    found: list[Any] = [None] * place.count
    for rows, column in parts:
        some = place.some(rows)
        column = whole(column, some)
        for row, entry in zip(rows.tolist(), entries(column, some.count), strict=True):
            found[row] = entry
    numbers = kinds[0].dtype.is_floating or kinds[0].dtype.is_complex
    if any(entry.number is not None for entry in found) or ("shared" in whats and numbers):
        found = [_as_value(entry, kinds[0].dtype, place) for entry in found]
    return collected(found, kinds[0].dtype)


def _as_value(entry: Entry, dtype: Any, place: Place) -> Entry:
    if entry.number is not None:
        return entry
    return Entry(int(place.tape.leaves(np.asarray(entry.array)[None], dtype)[0]), entry.shape)


def _sequences(parts: Sequence[tuple[Any, Column]], place: Place) -> Column:
    counts = np.empty(place.count, np.int64)
    width = max(column.data.ids.shape[1] for _, column in parts)
    ids = np.full((place.count, width), -1, np.int64)
    for rows, (_, seq) in parts:
        counts[rows] = seq.sizes()
        ids[rows, : seq.ids.shape[1]] = seq.ids
    kinds = [column.kind for _, column in parts]
    shape = next((kind.shape for kind in kinds if kind.shape is not None), None)
    arrays: Any = None
    if all(column.data.arrays is not None for _, column in parts):
        arrays = [None] * place.count
        for rows, (_, seq) in parts:
            for row, array in zip(rows.tolist(), seq.arrays, strict=True):
                arrays[row] = array
    return Column(Kind(kinds[0].what, shape, kinds[0].dtype), Seq(ids, counts, arrays))
