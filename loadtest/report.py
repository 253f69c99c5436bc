"""A comparison, or one attack, as a table for people and a document for programs."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from loadtest.compare import Comparison, Phase
from loadtest.results import Summary

WIDTH_OF_A_FILE = 120
THREAD_VARIABLES = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")


def console() -> Console:
    """Standard output, wide enough for the table where it isn't a terminal."""
    is_terminal = Console().is_terminal
    return Console(width=None if is_terminal else WIDTH_OF_A_FILE)


def print_comparison(comparison: Comparison, console: Console) -> None:
    """One table, then the verdict."""
    table = _table(f"{comparison.model}: the same arrivals for each engine")
    title = None
    for phase in comparison.phases:
        if phase.title != title:
            title = phase.title
            table.add_section()
            table.add_row(title)
        table.add_row(f"  {phase.engine}", *_cells(phase.summary, phase.mean_batch_size, _spread(phase)))
    console.print(table)
    for remark in comparison.remarks:
        console.print(f"note: {remark}", markup=False, soft_wrap=True)
    if comparison.is_valid:
        console.print("every reply was checked against the per-example function: all right", soft_wrap=True)
    else:
        console.print("INVALID", style="bold red")
        for fault in comparison.faults:
            console.print(fault, markup=False, soft_wrap=True)


def print_summary(title: str, summary: Summary, console: Console) -> None:
    """One attack as a table of one row."""
    table = _table("")
    table.add_row(title, *_cells(summary, summary.mean_batch_size, None))
    console.print(table)
    for line in summary.examples_of_failure:
        console.print(line, markup=False, soft_wrap=True)


def _table(title: str) -> Table:
    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("load, engine", no_wrap=True)
    for heading in ("req/s", "p50 ms", "p99 ms", "mean batch", "ok", "shed", "timeout", "error", "wrong"):
        table.add_column(heading, justify="right", no_wrap=heading != "mean batch")
    return table


def _cells(summary: Summary, mean_batch_size: float | None, spread: str | None) -> list[str]:
    throughput = f"{summary.throughput_per_s:,.0f}" + (f" ({spread})" if spread else "")
    latencies = [_number(summary.latency_ms[quantile], ".2f") for quantile in ("p50", "p99")]
    counts = (summary.ok, summary.shed, summary.timeout, summary.error, summary.wrong)
    return [throughput, *latencies, _number(mean_batch_size, ".1f"), *(f"{count:,}" for count in counts)]


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _spread(phase: Phase) -> str | None:
    """Lowest and highest round; None for one round, or where the rate was given."""
    rates = phase.throughputs_per_s
    rate_was_given = phase.title.startswith(("steady", "within"))
    return None if len(rates) < 2 or rate_was_given else f"{min(rates):,.0f}..{max(rates):,.0f}"


def as_document(comparison: Comparison) -> dict[str, Any]:
    """Everything that the table shows and what it was measured on; JSON-able."""
    settings = asdict(comparison.settings)
    settings["raw_folder"] = str(comparison.settings.raw_folder) if comparison.settings.raw_folder else None
    return {
        "model": comparison.model,
        "valid": comparison.is_valid,
        "faults": list(comparison.faults),
        "remarks": list(comparison.remarks),
        "settings": settings,
        "rate_per_s": comparison.rate_per_s,
        "started_in_s": comparison.started_in_s,
        "phases": [
            {
                "load": phase.title,
                "engine": phase.engine,
                "mean_batch_size": phase.mean_batch_size,
                "throughput_of_round_per_s": phase.throughputs_per_s,
                "generator_cpu_share": phase.generator_cpu_share,
                **asdict(phase.summary),
            }
            for phase in comparison.phases
        ],
        "machine": machine(),
    }


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "commit": _commit(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        "tensorflow": _version("tensorflow"),
        "batchd": _version("batchd"),
        "threads": {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
    }


def _commit() -> str | None:
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    return done.stdout.strip() or None


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
