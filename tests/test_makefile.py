"""The Makefile and `.ci/run`, with a `python3` that only writes down what it is asked for."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TWO_PROCESSES = "--numprocesses 2 --dist loadfile"
EXAMPLES = ("digits", "language", "listops")

# `python3 -m venv .venv` makes a .venv whose programs log their arguments, and pytest's closing line too.
FAKE_PYTHON = """#!/bin/sh
echo "python3 $*" >> "$LOG"
mkdir -p .venv/bin
for name in python batchd ruff mypy; do
cat > .venv/bin/$name <<'PROGRAM'
#!/bin/sh
echo "$(basename "$0") $*" >> "$LOG"
case "$*" in *pytest*) echo; echo "===== 3 passed in 0.12s ====="; exit ${PYTEST_STATUS:-0};; esac
case "$(basename "$0") $*" in "ruff check") exit ${RUFF_STATUS:-0};; esac
PROGRAM
chmod +x .venv/bin/$name
done
"""


class Checkout:
    """A copy of the files under test, where every program that make starts is a fake."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        for name in ("Makefile", "pyproject.toml", ".ci"):
            source = ROOT / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, folder / name)
        fakes = folder / "fakes"
        fakes.mkdir()
        python = fakes / "python3"
        python.write_text(FAKE_PYTHON)
        python.chmod(python.stat().st_mode | stat.S_IXUSR)
        self.environment = {**os.environ, "LOG": str(self.log), "PATH": f"{fakes}:{os.environ['PATH']}"}
        for name in ("HOST", "PORT", "PYTHON", "MAKEFLAGS", "MAKELEVEL"):
            self.environment.pop(name, None)

    def run(self, *command: str, **environment: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
        """The finished process, and what it made the fakes do."""
        self.log.write_text("")
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        return done, [line.rstrip() for line in self.log.read_text().splitlines()]


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


SERVE = "batchd serve " + " ".join(f"examples/{name}/model.py" for name in EXAMPLES)
INSTALL = ["python3 -m venv .venv", "python -m pip install --quiet -e ."]
INSTALL_DEV = ["python3 -m venv .venv", "python -m pip install --quiet -e .[dev]"]


def test_serve_installs_once(checkout: Checkout) -> None:
    _, first = checkout.run("make", "serve")
    assert first == [*INSTALL, f"{SERVE} --host 127.0.0.1 --port 8000"]
    _, second = checkout.run("make", "serve", "HOST=0.0.0.0", "PORT=9001")
    assert second == [f"{SERVE} --host 0.0.0.0 --port 9001"]


def test_serve_installs_again_when_the_requirements_change(checkout: Checkout) -> None:
    checkout.run("make", "serve")
    later = time.time() + 10
    os.utime(checkout.folder / "pyproject.toml", (later, later))
    assert checkout.run("make", "serve")[1][:2] == INSTALL


def test_host_and_port_come_from_the_environment_too(checkout: Checkout) -> None:
    assert checkout.run("make", "serve", PORT="8123")[1][-1].endswith("--port 8123")


def test_developers_need_not_install_twice(checkout: Checkout) -> None:
    assert checkout.run("make", "test")[1] == [*INSTALL_DEV, f"python -m pytest -m not full {TWO_PROCESSES}"]
    parts = [
        f"python -m pytest -m not sweep and not alone {TWO_PROCESSES}",
        "python -m pytest -m alone",
        "python -m pytest -m sweep --numprocesses 2 --dist load",
    ]
    assert checkout.run("make", "test-all")[1] == parts
    failed, commands = checkout.run("make", "test-all", PYTEST_STATUS="1")
    assert (failed.returncode != 0, commands) == (True, parts), "a part that fails doesn't hide the others"
    assert checkout.run("make", "lint")[1] == ["ruff check", "ruff format --check", "mypy"]
    assert checkout.run("make", "bench")[1] == ["python -m loadtest compare --model language"]
    assert checkout.run("make", "serve")[1] == [f"{SERVE} --host 127.0.0.1 --port 8000"]


def test_an_install_that_fails_leaves_no_stamp(checkout: Checkout) -> None:
    done, _ = checkout.run("make", "serve", "PYTHON=false")
    assert done.returncode != 0
    assert checkout.run("make", "serve")[1][:2] == INSTALL


def test_clean(checkout: Checkout) -> None:
    checkout.run("make", "test")
    (checkout.folder / "server" / "__pycache__").mkdir(parents=True)
    checkout.run("make", "clean")
    assert not (checkout.folder / ".venv").exists()
    assert not (checkout.folder / "server" / "__pycache__").exists()


def test_make_alone_lists_the_targets(checkout: Checkout) -> None:
    done, started = checkout.run("make")
    assert started == []
    for target in ("serve", "test", "test-all", "lint", "bench", "clean"):
        assert f"\n{target} " in f"\n{done.stdout}"


def test_the_models_served_exist() -> None:
    for name in EXAMPLES:
        assert (ROOT / "examples" / name / "model.py").is_file()


def test_ci_runs_lint_then_tests_and_ends_with_the_closing_line(checkout: Checkout) -> None:
    done, started = checkout.run(str(checkout.folder / ".ci" / "run"))
    assert done.returncode == 0
    assert started == [
        *INSTALL_DEV,
        *("ruff check", "ruff format --check", "mypy"),
        f"python -m pytest -m not full {TWO_PROCESSES}",
    ]
    assert done.stdout.splitlines()[-1] == "===== 3 passed in 0.12s ====="


def test_ci_fails_when_a_test_does_and_still_ends_with_the_closing_line(checkout: Checkout) -> None:
    done, _ = checkout.run(str(checkout.folder / ".ci" / "run"), PYTEST_STATUS="1")
    assert done.returncode != 0
    assert done.stdout.splitlines()[-1] == "===== 3 passed in 0.12s ====="


def test_ci_fails_when_lint_does(checkout: Checkout) -> None:
    done, started = checkout.run(str(checkout.folder / ".ci" / "run"), RUFF_STATUS="1")
    assert done.returncode != 0
    assert not any("pytest" in line for line in started)


def test_ci_runs_from_anywhere(checkout: Checkout, tmp_path: Path) -> None:
    done = subprocess.run(
        [checkout.folder / ".ci" / "run"],
        cwd=tmp_path.parent,
        env=checkout.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
