"""A benchmark as a table for people and a document for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from loadtest.bench.run import Cell, Settings
from loadtest.report import machine
from loadtest.workloads import problem

_SECONDS = ("build_s", "schedule_s", "gather_s", "assembly_s", "compute_s", "split_s")


def print_bench(settings: Settings, cells: Sequence[Cell], console: Console) -> None:
    """The table of milliseconds, the table of what explains them, and what went wrong."""
    about = problem(settings.workload).about
    cores = f"{settings.threads} core{'s' if settings.threads > 1 else ''}"
    console.print(f"{settings.workload}: {about}", markup=False, style="bold")
    console.print(f"ms a batch, median (first..third quartile); {cores}, DyNet on one thread", markup=False)
    console.print(_times(settings, cells))
    if any("nodes" in cell.mean_figures for cell in cells):
        console.print(_explanation(cells))
    for cell in cells:
        reason = cell.detail or ("" if cell.note.startswith(("from batch", "over")) else cell.note)
        if reason:
            line = reason.strip().splitlines()[0][:200]
            console.print(f"{cell.column}, batch {cell.rows}: {line}", markup=False, style="dim", soft_wrap=True)
    for cell in cells:
        if cell.wrong:
            line = f"WRONG: {cell.column}, batch {cell.rows}: {cell.wrong}"
            console.print(line, markup=False, style="bold red", soft_wrap=True)


def _times(settings: Settings, cells: Sequence[Cell]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", no_wrap=True)
    for rows in settings.batch_sizes:
        table.add_column(f"batch {rows}", justify="right", no_wrap=True)
    by_place = {(cell.column, cell.rows): cell for cell in cells}
    for column in settings.columns:
        table.add_row(column.name, *(_text(by_place[column.name, rows]) for rows in settings.batch_sizes))
    return table


def _text(cell: Cell) -> str:
    if cell.wrong:
        return "[bold red]wrong[/]"
    if cell.median_s is None or cell.quartiles_s is None or cell.note:
        return "–" if cell.note.startswith(("–", "from batch")) or "installed" in cell.note else cell.note
    low, high = cell.quartiles_s
    return f"{_ms(cell.median_s)} ({_ms(low)}..{_ms(high)})"


def _ms(seconds: float) -> str:
    ms = seconds * 1e3
    return f"{ms:.2f}" if ms < 10 else f"{ms:.1f}" if ms < 100 else f"{ms:,.0f}"


def _explanation(cells: Sequence[Cell]) -> Table:
    """Launches, padding and where the time goes, of batchd's own columns."""
    title = "what explains it: means, the right half in ms"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    seconds = [name for name in _SECONDS if any(name in cell.mean_figures for cell in cells)]
    table.add_column("", no_wrap=True)
    for heading in ("batch", "launches", "nodes", "padding", *(name.removesuffix("_s") for name in seconds)):
        table.add_column(heading, justify="right", no_wrap=True)
    for cell in cells:
        figures = cell.mean_figures
        if "launches" in figures and not cell.note and not cell.wrong:
            counts = [f"{figures[name]:,.0f}" if figures.get(name) else "" for name in ("launches", "nodes")]
            padding = f"{figures['padding_ratio']:.0%}" if "padding_ratio" in figures else ""
            # An engine that says what its assembly is made of needs no sum.
            parts = [
                name for name in seconds if name in figures and not (name == "assembly_s" and "build_s" in figures)
            ]
            times = [_ms(figures[name]) if name in parts else "" for name in seconds]
            table.add_row(cell.column, str(cell.rows), *counts, padding, *times)
    return table


def as_markdown(documents: Sequence[dict[str, Any]]) -> str:
    """The medians in ms of several benchmarks as Markdown tables, from what `as_document` made; for the docs."""
    return "\n".join(_markdown(document) for document in documents)


def _markdown(document: dict[str, Any]) -> str:
    cells = {(cell["column"], cell["rows"]): cell for cell in document["cells"]}
    sizes = document["settings"]["batch_sizes"]
    lines = [
        f"`{document['workload']}`: {document['about']}.",
        "",
        f"| ms, batch of | {' | '.join(map(str, sizes))} |",
        f"|---|{'---|' * len(sizes)}",
    ]
    for column in document["settings"]["columns"]:
        medians = [cells[column, rows]["median_s"] for rows in sizes]
        if any(medians):
            lines.append(f"| `{column}` | {' | '.join(_ms(m) if m else '–' for m in medians)} |")
    return "\n".join([*lines, ""])


def as_document(settings: Settings, cells: Sequence[Cell]) -> dict[str, Any]:
    """Everything that the tables show, every single run, and what it was measured on; JSON-able."""
    return {
        "workload": settings.workload,
        "about": problem(settings.workload).about,
        "valid": not any(cell.wrong for cell in cells),
        "settings": {**asdict(settings), "columns": [column.name for column in settings.columns]},
        "cells": [
            {
                **asdict(cell),
                "median_s": cell.median_s,
                "quartiles_s": cell.quartiles_s,
                "figures": cell.mean_figures,
            }
            for cell in cells
        ],
        "machine": machine(),
    }
