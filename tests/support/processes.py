"""What Linux says of a process: its children, its memory."""

from __future__ import annotations

import re
from pathlib import Path


def children(pid: int) -> set[int]:
    """The processes that it started and that still run."""
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def resident_bytes(pid: int) -> int:
    """Its resident memory; 0 for a process that is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    found = re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0
