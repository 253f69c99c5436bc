"""The report as people read it: a summary, what is slow or special, then all ops by source line."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vectorizer.report import Entry, Report

_WIDTH = 110
_ORDINARY = ("native", "once for all rows", "hoisted", "over all rows")
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def as_text(report: Report) -> str:
    """The whole report; its lines are at most 110 wide, but for long reasons and names."""
    entries = report.entries
    return "\n".join([*_summary(report, entries), "", *_special(entries), *_table(entries)])


def _summary(report: Report, entries: Sequence[Entry]) -> Iterator[str]:
    yield f"{report.function}: {len(entries)} ops, {len(report.fallbacks)} looped over rows"
    count = Counter(_short(entry.strategy) for entry in entries)
    yield "  " + ", ".join(f"{number} {strategy}" for strategy, number in count.most_common())
    outside = Counter(entry.op_type for entry in entries if not entry.xla)
    if not outside:
        yield "  XLA compiles all of it"
    elif len(outside) and outside.total() == len(entries):
        yield "  XLA compiles none of it"
    else:
        compiled = len(entries) - outside.total()
        yield from _wrapped(f"  XLA compiles {compiled} of {len(entries)} ops, not ", _counted(outside))
    largest = report.largest_intermediate
    if largest is not None:
        sizes = ", ".join(f"{readable(count)} at batch {rows}" for rows, count in largest.bytes_by_batch_size.items())
        where = f" of {largest.op.source}" if largest.op.source else ""
        yield f"  largest value, if variable sizes are {report.length}: {sizes} ({largest.op.type}{where})"


def _special(entries: Sequence[Entry]) -> Iterator[str]:
    """Loops, branches, and what runs row by row."""
    special = [entry for entry in entries if entry.strategy not in _ORDINARY]
    rows = Counter((entry.strategy, entry.op_type, entry.source or entry.name, entry.reason) for entry in special)
    if not rows:
        return
    wide = max(len(_times(op_type, number)) for (_, op_type, _, _), number in rows.items())
    place = max(len(where) for _, _, where, _ in rows)
    for (strategy, op_type, where, reason), number in rows.items():
        yield f"  {_times(op_type, number):{wide}}  {where:{place}}  {strategy}{reason and ': '}{reason}"
    yield ""


def _table(entries: Sequence[Entry]) -> Iterator[str]:
    """One line for ops that follow each other, stand in one source line and were treated alike."""
    lines = []
    for (depth, source, kind, strategy), group in groupby(entries, _alike):
        lines.append(
            ("  " * depth + (source or "?"), kind, strategy, _counted(Counter(item.op_type for item in group)))
        )
    heads = ("where", "across the batch", "strategy")
    widths = [max(len(head), *(len(line[k]) for line in lines)) if lines else 0 for k, head in enumerate(heads)]
    if lines:
        yield "  ".join([*(head.ljust(width) for head, width in zip(heads, widths, strict=True)), "ops"])
    for *cells, ops in lines:
        start = "".join(f"{cell:{width}}  " for cell, width in zip(cells, widths, strict=True))
        yield from _wrapped(start, ops)


def _alike(entry: Entry) -> tuple[int, str | None, str, str]:
    return entry.depth, entry.source, entry.kind, _short(entry.strategy)


def _short(strategy: str) -> str:
    return strategy.partition(",")[0]


def _counted(count: Counter[str]) -> str:
    return ", ".join(_times(name, number) for name, number in count.items())


def _times(name: str, number: int) -> str:
    return name if number == 1 else f"{name} x{number}"


def _wrapped(start: str, text: str) -> list[str]:
    width = max(_WIDTH, len(start) + 30)
    return textwrap.wrap(text, width, initial_indent=start, subsequent_indent=" " * len(start), drop_whitespace=True)


def readable(count: int) -> str:
    """Bytes in the largest unit of which there is at least one."""
    amount, unit = float(count), 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{count} bytes" if unit == 0 else f"{amount:.3g} {_UNITS[unit]}"
