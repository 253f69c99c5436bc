"""`python -m loadtest`: compare engines, attack a running server, recompute a report."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click
import orjson
from rich.console import Console

from loadtest import report
from loadtest.attack import attack
from loadtest.checking import judge
from loadtest.compare import Settings, compare, expected_replies
from loadtest.pacer import ARRIVALS, ClosedLoop, Pacer, open_loop
from loadtest.results import Summary, read_jsonl, summarise, write_jsonl
from loadtest.servers import ServerFailed
from loadtest.targets import Example, ExampleSet, target

EXAMPLES_FOLDER = Path(__file__).parent.parent / "examples"
DEFAULT_SLO_MS = 100.0
ARRIVALS_CHOICE = click.Choice(sorted(ARRIVALS))


@click.group()
def main() -> None:
    """Load tests that check every reply."""


@main.command("compare")
@click.option("--model", required=True, help="A folder of examples/, or a model file.")
@click.option("--name", help="Which model of the file.  [default: the first]")
@click.option("--engines", default="static,while_loop,per_request", show_default=True, help="Comma-separated.")
@click.option("--requests", type=click.IntRange(1), default=1000, show_default=True, help="In each attack.")
@click.option("--rounds", type=click.IntRange(1), default=2, show_default=True, help="Attacks on each engine.")
@click.option("--concurrency", type=click.IntRange(1), help="Closed loop only, over this many connections.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Open loop only, requests per second.")
@click.option("--slo-ms", type=click.FloatRange(0), help="Latency objective; 0 leaves it out.  [default: 100]")
@click.option("--arrivals", type=ARRIVALS_CHOICE, default="poisson", show_default=True)
@click.option("--examples", type=click.IntRange(1), default=500, show_default=True, help="Distinct examples.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the examples and the arrivals.")
@click.option("--timeout", "timeout_s", type=float, default=30.0, show_default=True, help="Seconds per request.")
@click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures.")
@click.option("--raw", "raw_folder", type=click.Path(path_type=Path, file_okay=False), help="Keep every record.")
def compare_command(
    model: str,
    name: str | None,
    engines: str,
    concurrency: int | None,
    rate: float | None,
    slo_ms: float | None,
    json_file: Path | None,
    **options: Any,
) -> None:
    """Start a server for each engine and send all of them the same seeded arrivals.

    Without --rate and --concurrency there are three phases: saturated over 32 connections for the throughput;
    Poisson arrivals at falling rates for the rate that each engine carries within --slo-ms (99 % of the replies);
    Poisson arrivals at half the throughput of the slowest engine for the latencies. A wrong or a lost reply makes
    the run INVALID and the exit code 1.
    """
    progress = Console(stderr=True)
    settings = Settings(
        source=_model_source(model),
        name=name,
        engines=_words(engines),
        concurrency=concurrency if concurrency is not None or rate is not None else 32,
        steady=rate is not None or concurrency is None,
        rate_per_s=rate,
        slo_ms=_objective_ms(slo_ms, rate is None and concurrency is None),
        **options,
    )

    def say(line: str) -> None:
        progress.print(line, markup=False, style="dim")

    try:
        say("computing the expected replies")
        comparison = compare(settings, expected_replies(settings), say)
    except (ServerFailed, RuntimeError) as error:
        raise click.ClickException(str(error)) from None
    report.print_comparison(comparison, report.console())
    if json_file is not None:
        json_file.write_bytes(orjson.dumps(report.as_document(comparison), option=orjson.OPT_INDENT_2))
    if not comparison.is_valid:
        raise SystemExit(1)


@main.command("bench")
@click.option("--workload", "workloads", default="lstm", show_default=True, help="Comma-separated, or 'all'.")
@click.option("--batch", "batch_sizes", default="1,8,64,256", show_default=True, help="Rows, comma-separated.")
@click.option("--columns", default="", help="Comma-separated.  [default: all]")
@click.option("--rounds", type=click.IntRange(1), default=9, show_default=True, help="Visits of each column.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the examples.")
@click.option("--threads", type=click.IntRange(1), help="Cores for each worker.  [default: all of this machine's]")
@click.option("--cell-seconds", "cell_s", type=float, default=5.0, show_default=True, help="Measuring, for each cell.")
@click.option("--prepare-seconds", "prepare_s", type=float, default=60.0, show_default=True, help="To build and check.")
@click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Write the figures.")
@click.option("--markdown", "markdown_file", type=click.Path(path_type=Path, dir_okay=False), help="Write the medians.")
def bench_command(
    workloads: str,
    batch_sizes: str,
    columns: str,
    threads: int | None,
    json_file: Path | None,
    markdown_file: Path | None,
    **options: Any,
) -> None:
    """Run one function's batches in every way there is, in process, against each other.

    Ways: one example at a time, TensorFlow's own loops, by hand, batchd's engines, DyNet and JAX (where installed:
    extra `bench`). Each answers batches that it hasn't seen, each answer is checked, and a wrong one makes the exit
    code 1.
    """
    from loadtest.bench import columns as ways
    from loadtest.bench.report import as_document, as_markdown, print_bench
    from loadtest.bench.run import Settings as BenchSettings
    from loadtest.bench.run import bench
    from loadtest.workloads import NAMES

    names = NAMES if workloads == "all" else _words(workloads)
    if unknown := [name for name in names if name not in NAMES]:
        raise click.UsageError(f"--workload {', '.join(unknown)}: choose from {', '.join(NAMES)}, or 'all'")
    progress = Console(stderr=True)
    documents = []
    try:
        plans = [
            BenchSettings(
                workload=name,
                batch_sizes=[_count(size) for size in _words(batch_sizes)],
                columns=ways.chosen_columns(_words(columns)),
                threads=threads or len(os.sched_getaffinity(0)),
                **options,
            )
            for name in names
        ]
    except (KeyError, ValueError) as error:
        raise click.UsageError(str(error.args[0])) from None
    for plan in plans:
        cells = bench(plan, lambda line: progress.print(line, markup=False, style="dim"))
        print_bench(plan, cells, report.console())
        documents.append(as_document(plan, cells))
    if json_file is not None:
        json_file.write_bytes(orjson.dumps(documents, option=orjson.OPT_INDENT_2))
    if markdown_file is not None:
        markdown_file.write_text(as_markdown(documents), encoding="utf-8")
    if not all(document["valid"] for document in documents):
        raise SystemExit(1)


@main.command("attack")
@click.argument("url")
@click.option("--model", required=True, help="Which model of the server.")
@click.option("--json", "json_text", help="Inputs of one example, as a JSON object.")
@click.option("--examples", type=click.Path(path_type=Path, exists=True), help="What loadtest.oracle wrote.")
@click.option("--requests", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--concurrency", type=click.IntRange(1), default=32, show_default=True, help="Of a closed loop.")
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="Open loop: requests per second.")
@click.option("--arrivals", type=ARRIVALS_CHOICE, default="poisson", show_default=True)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--timeout", "timeout_s", type=float, default=30.0, show_default=True, help="Seconds per request.")
@click.option("--raw", "raw_file", type=click.Path(path_type=Path, dir_okay=False), help="Keep every record.")
def attack_command(
    url: str,
    model: str,
    json_text: str | None,
    examples: Path | None,
    requests: int,
    concurrency: int,
    rate: float | None,
    arrivals: str,
    seed: int,
    timeout_s: float,
    raw_file: Path | None,
) -> None:
    """Send one attack to the server at URL, which runs already; --examples has the replies checked."""
    expected = _examples(model, json_text, examples)
    pacer: Pacer = ClosedLoop(requests, concurrency)
    if rate is not None:
        pacer = open_loop(arrivals, rate, requests, seed)
    log = attack(target(url, model, expected.examples), pacer, timeout_s=timeout_s)
    records = judge(log.exchanges, expected)
    if raw_file is not None:
        write_jsonl(records, raw_file)
    load = f"{arrivals} {rate:g}/s" if rate is not None else f"closed loop, {concurrency} connections"
    _finish(f"{model}: {load}", summarise([records]))


@main.command("report")
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, exists=True))
def report_command(files: tuple[Path, ...]) -> None:
    """Recompute the figures of each of FILES, as --raw kept them."""
    for file in files:
        report.print_summary(file.stem, summarise([read_jsonl(file)]), report.console())


def _objective_ms(given: float | None, all_phases: bool) -> float | None:
    if given is None:
        return DEFAULT_SLO_MS if all_phases else None
    return given or None


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"--batch {text}: expected whole numbers of at least 1, comma-separated")
    return int(text)


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _finish(title: str, summary: Summary) -> None:
    report.print_summary(title, summary, report.console())
    if summary.wrong or summary.lost or summary.error:
        raise SystemExit(1)


def _examples(model: str, json_text: str | None, examples: Path | None) -> ExampleSet:
    if (json_text is None) == (examples is None):
        raise click.UsageError("give either --json or --examples")
    if examples is not None:
        return ExampleSet.read(examples)
    try:
        inputs = json.loads(json_text or "")
    except json.JSONDecodeError as error:
        raise click.UsageError(f"--json: {error}") from None
    if not isinstance(inputs, dict):
        raise click.UsageError('--json: expected an object of inputs, such as \'{"text": "hello"}\'')
    return ExampleSet(model, [Example(inputs)])


def _model_source(model: str) -> str:
    if Path(model).is_file():
        return model
    file = EXAMPLES_FOLDER / model / "model.py"
    if not file.is_file():
        raise click.UsageError(f"--model {model!r}: neither a file nor a folder of {EXAMPLES_FOLDER}")
    return str(file)


if __name__ == "__main__":
    main(prog_name="python -m loadtest")
