"""XLA's persistent compile cache: where it is kept, and the flags that switch it on. No TensorFlow.

The flags are read when TensorFlow is imported, so the engine process sets them first. An entry holds machine
code: the directory is keyed by TensorFlow's version and the CPU's features. Each model has a directory of its
own, and each process works in a private copy of it (hard links), because a new file is the only sign of a compile
that TensorFlow gives (`compile_watch.py`): processes that share a model must not count each other's. What a process
has compiled by the time it is ready goes into the model's directory; the oldest entries go when there are too many.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import shutil
from collections.abc import MutableMapping
from pathlib import Path

_MOST_ENTRIES = 400


def cache_directory(location: str, model: str | None) -> Path:
    """Returns the directory of compiled programs of one model: `$XDG_CACHE_HOME/batchd/xla/...`."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    place = Path(location).resolve() if location.endswith(".py") else location
    key = hashlib.sha256(f"{place}\n{model or ''}".encode()).hexdigest()[:12]
    return root / "batchd" / "xla" / machine_key() / f"{Path(location).stem}-{key}"


def machine_key() -> str:
    """Returns what compiled programs are tied to: TensorFlow's version and the CPU's features."""
    return f"{_tensorflow_version()}-{_cpu_key()}"


def enable_cache(directory: Path, environment: MutableMapping[str, str]) -> bool:
    """Adds XLA's flags to `environment` and makes the directory; False where it can't be written."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    if not os.access(directory, os.W_OK) or any(character.isspace() for character in str(directory)):
        return False  # TF_XLA_FLAGS is split at white space
    flags = f"--tf_xla_persistent_cache_directory={directory} --tf_xla_persistent_cache_read_only=false"
    environment["TF_XLA_FLAGS"] = f"{environment.get('TF_XLA_FLAGS', '')} {flags}".strip()
    return True


def open_private_copy(directory: Path) -> Path:
    """Returns this process's own directory, holding all entries of the model's; raises OSError if it can't be made.

    Directories that processes have left behind without a word are removed.
    """
    directory.mkdir(parents=True, exist_ok=True)
    for left in directory.parent.glob(f"{directory.name}.run-*"):
        if not Path(f"/proc/{left.suffix.removeprefix('.run-')}").exists():
            shutil.rmtree(left, ignore_errors=True)
    private = directory.with_name(f"{directory.name}.run-{os.getpid()}")
    private.mkdir(exist_ok=True)
    _link_entries(directory, private)
    return private


def publish(private: Path, directory: Path) -> None:
    """Adds what a process has compiled to the model's directory."""
    _link_entries(private, directory)
    entries = sorted(directory.iterdir(), key=lambda entry: entry.stat().st_mtime_ns)
    for entry in entries[:-_MOST_ENTRIES]:
        entry.unlink(missing_ok=True)


def _link_entries(source: Path, target: Path) -> None:
    for entry in source.iterdir():
        try:
            os.link(entry, target / entry.name)
        except (FileExistsError, FileNotFoundError):
            continue  # there already, or pruned by another process meanwhile


def _tensorflow_version() -> str:
    for distribution in ("tensorflow", "tensorflow-cpu", "tf-nightly"):
        try:
            return f"tf{importlib.metadata.version(distribution)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return "tf"


def _cpu_key() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    features = sorted({line for line in lines if line.startswith(("flags", "Features", "model name"))})
    return hashlib.sha256("\n".join([platform.machine(), *features]).encode()).hexdigest()[:12]
