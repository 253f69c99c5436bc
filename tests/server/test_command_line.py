"""The command: instant help, options from the settings, and no TensorFlow in the HTTP process."""

from __future__ import annotations

import subprocess
import sys
import time

from click.testing import CliRunner

from server.command_line import main
from server.settings import Settings


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_help_is_instant_and_imports_nothing_heavy():
    durations_s = []
    for _ in range(3):
        started_at = time.monotonic()
        answer = run("-m", "server.command_line", "--help")
        durations_s.append(time.monotonic() - started_at)
        assert answer.returncode == 0
    assert min(durations_s) < 0.5
    for command in ("serve", "predict", "explain", "ops"):
        assert f"  {command} " in answer.stdout
    heavy = "{'numpy', 'fastapi', 'pydantic', 'tensorflow', 'uvicorn', 'rich', 'httpx'}"
    answer = run("-c", f"import sys, server.command_line; print(sorted(set(sys.modules) & {heavy}))")
    assert answer.stdout.strip() == "[]"


def test_the_http_process_never_imports_tensorflow():
    answer = run(
        "-c",
        "import sys, server.http.serve; print([m for m in sys.modules if 'tensorflow' in m])",
    )
    assert answer.stdout.strip() == "[]", answer.stderr


def test_every_setting_is_an_option():
    answer = CliRunner().invoke(main, ["serve", "--help"], terminal_width=200)
    assert answer.exit_code == 0
    for name in Settings.model_fields:
        assert (f"--{name.replace('_', '-')}" in answer.output) != Settings.secret(name)
    assert "[0 to 65535; default: 8000]" in answer.output


def test_wrong_settings_are_a_usage_error():
    answer = CliRunner().invoke(main, ["serve", "model.py", "--port", "99999"])
    assert answer.exit_code == 2
    assert "setting 'port' (from flag): Input should be less than or equal to 65535" in answer.output
    answer = CliRunner().invoke(main, ["serve"])
    assert answer.exit_code == 2
    assert "FILE|MODULE" in answer.output


def test_version():
    assert CliRunner().invoke(main, ["--version"]).output.startswith("batchd ")
