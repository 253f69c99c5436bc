"""Who may import whom. Stated over the imports of every file, wherever in the file they stand."""

from __future__ import annotations

import ast
import resource
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OURS = ("clients", "loadtest", "server", "vectorizer")
LOAD_GENERATOR = ("attack", "checking", "connection", "pacer", "report", "results", "targets")
HEAVY = ("tensorflow", "keras")


@dataclass(frozen=True)
class Import:
    file: str
    line: int
    module: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: imports {self.module}"


def imports_of(path: Path) -> Iterator[Import]:
    """Every import of a file; those for type checkers only don't run and don't count."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    file = path.relative_to(ROOT).as_posix()
    for node in _running(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(file, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = path.relative_to(ROOT).parts[: -node.level]
                base = ".".join([*parent, *([base] if base else [])])
            for alias in node.names:
                yield Import(file, node.lineno, f"{base}.{alias.name}")


def _running(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            for other in child.orelse:
                yield other
                yield from _running(other)
            continue
        yield child
        yield from _running(child)


ALL_IMPORTS = [
    found for package in OURS for path in sorted((ROOT / package).rglob("*.py")) for found in imports_of(path)
]


def is_under(name: str, prefixes: tuple[str, ...], separator: str) -> bool:
    return any(name == prefix or name.startswith(prefix + separator) for prefix in prefixes)


@dataclass(frozen=True)
class Rule:
    """Files under `files` may import nothing under `modules`, but for what stands in `but`."""

    files: tuple[str, ...]
    modules: tuple[str, ...]
    but: tuple[str, ...] = ()

    def offences(self) -> list[str]:
        return [
            str(found)
            for found in ALL_IMPORTS
            if is_under(found.file, self.files, "/")
            and is_under(found.module, self.modules, ".")
            and not is_under(found.module, self.but, ".")
        ]


@dataclass(frozen=True)
class Home:
    """`modules` are imported only by files under `files`."""

    modules: tuple[str, ...]
    files: tuple[str, ...]

    def offences(self) -> list[str]:
        return [
            str(found)
            for found in ALL_IMPORTS
            if is_under(found.module, self.modules, ".") and not is_under(found.file, self.files, "/")
        ]


GENERATOR_FILES = tuple(f"loadtest/{name}.py" for name in LOAD_GENERATOR)

RULES = {
    "vectorizer imports no package of ours": Rule(("vectorizer",), OURS, but=("vectorizer",)),
    "clients import no package of ours": Rule(("clients",), OURS, but=("clients",)),
    "the server doesn't know the load tester": Rule(("server",), ("loadtest",)),
    "the load generator imports clients only": Rule(GENERATOR_FILES, OURS, but=("clients", "loadtest")),
    "only the oracle, workloads and bench of the load test reach the server": Rule(
        tuple(
            path.relative_to(ROOT).as_posix()
            for path in (ROOT / "loadtest").glob("*.py")
            if path.stem not in ("oracle", "workloads", "bench")
        ),
        ("server", "vectorizer", *HEAVY),
    ),
    "the engines are the only part of the server that vectorizes": Home(
        ("vectorizer",),
        (
            "vectorizer",
            "server/engines",
            "server/command_line.py",
            "loadtest/workloads",
            "loadtest/bench",
        ),
    ),
    "TensorFlow stays in the vectorizer, the engines, the engine process and the oracle": Home(
        HEAVY,
        (
            *("vectorizer", "server/engines", "server/process/child.py"),
            *("loadtest/oracle.py", "loadtest/workloads", "loadtest/bench"),
        ),
    ),
    "FastAPI appears under server/http only": Home(("fastapi", "starlette"), ("server/http",)),
    "gRPC appears under server/grpc only": Home(("grpc", "google.protobuf"), ("server/grpc",)),
    "OpenTelemetry appears in server/otel.py": Home(("opentelemetry",), ("server/otel.py",)),
    "Prometheus appears in server/metrics.py and triton_metrics.py, and for one counter in server/shadow.py": Home(
        ("prometheus_client",), ("server/metrics.py", "server/triton_metrics.py", "server/shadow.py")
    ),
    "asyncio appears where there is a network, or a process to wait for": Home(
        ("asyncio", "uvloop"),
        (
            *("clients", "loadtest", "server/http", "server/grpc", "server/process"),
            *("server/dispatcher.py", "server/attached.py", "server/waiting.py"),
            *("server/supervisor.py", "server/deployment.py", "server/shadow.py"),
            "server/watchdog.py",
        ),
    ),
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_import_directions(rule: Rule | Home) -> None:
    offences = rule.offences()
    assert not offences, "\n" + "\n".join(offences)


def test_the_scheduler_core_imports_the_standard_library_only() -> None:
    allowed = (*sys.stdlib_module_names, "server.core")
    core = [found for found in ALL_IMPORTS if found.file.startswith("server/core/")]
    offences = [str(found) for found in core if not is_under(found.module, allowed, ".")]
    assert not offences, "\n" + "\n".join(offences)


def test_the_rules_can_fail() -> None:
    """Every rule looks at files that exist, and the walk sees imports inside of functions."""
    assert {found.file.split("/")[0] for found in ALL_IMPORTS} == set(OURS)
    for name in LOAD_GENERATOR:
        assert (ROOT / "loadtest" / f"{name}.py").is_file(), name
    inside_a_function = [found for found in ALL_IMPORTS if found.file == "loadtest/oracle.py"]
    assert "tensorflow" in {found.module for found in inside_a_function}


LIGHT_MODULES = (
    "clients",
    "clients.sync_client",
    "clients.async_client",
    "clients.command_line",
    "loadtest.attack",
    "loadtest.compare",
    "loadtest.report",
    "loadtest.__main__",
    "server",
    "server.command_line",
    "server.dispatcher",
    "server.http.application",
)


@pytest.mark.parametrize("module", LIGHT_MODULES)
def test_importing_this_does_not_import_tensorflow(module: str) -> None:
    program = (
        f"import sys, importlib; importlib.import_module({module!r}); "
        "print(*sorted({'tensorflow', 'keras', 'vectorizer'} & {name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""


def test_help_answers_in_half_a_second() -> None:
    """Of processor time, the best of five: the machine may be busy, the command may not."""
    seconds = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-m", "server.command_line", "--help"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert done.returncode == 0, done.stderr
    assert "serve" in done.stdout
    assert min(seconds) < 0.5, f"took {seconds}"
