"""Fenced code blocks and tables of Markdown pages, as data."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FIRST_WORDS = 50


@dataclass(frozen=True)
class Block:
    """One fenced block. `output`: the block that follows it with nothing but white space between, if one does."""

    file: str
    line: int
    language: str
    text: str
    output: Block | None = None

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text[:_FIRST_WORDS].splitlines()[0]}"


def blocks_of(path: Path, root: Path) -> list[Block]:
    """The page's fenced blocks, in order; what is shown as output of another is that block's `output`."""
    page = path.read_text(encoding="utf-8")
    name = path.relative_to(root).as_posix()
    found: list[Block] = []
    following: tuple[int, Block] | None = None
    for match in reversed(list(_FENCE.finditer(page))):
        language, text = match[1], match[2].rstrip("\n")
        line = page.count("\n", 0, match.start()) + 1
        output = None
        if following and language in ("sh", "python") and following[1].language not in ("sh", "python"):
            between = page[match.end() : following[0]]
            output = following[1] if not between.strip() else None
        if output is not None:
            found.remove(output)
        block = Block(name, line, language, text, output)
        found.append(block)
        following = (match.start(), block)
    return found[::-1]


def table_rows(page: str, first_heading: str) -> list[list[str]]:
    """The cells of the table whose first heading is this, without backticks; the headings are left out."""
    lines = page.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {first_heading} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().strip("`") for cell in line.strip("|").split(" | ")])
    return rows
