"""The table of supported ops, for people: what `batchd ops` prints and `docs/supported_ops.md` holds."""

from __future__ import annotations

from vectorizer.registry import supported_ops

_CONTROL_FLOW = (
    "While",
    "StatelessWhile",
    "If",
    "StatelessIf",
    "Case",
    "StatelessCase",
    "PartitionedCall",
    "StatefulPartitionedCall",
)
_COLUMNS = ("op", "family", "fails a row when", "XLA")


def op_rows() -> list[tuple[str, str, str, str]]:
    """(op type, family, what is checked, whether XLA compiles it), by name; control flow is not a converter's."""
    rows = [(op.name, op.family.replace("_", " "), op.checks, "yes" if op.compilable else "") for op in supported_ops()]
    return sorted(rows + [(name, "control flow", "", "yes") for name in _CONTROL_FLOW])


def as_text() -> str:
    """The table in columns."""
    rows = [_COLUMNS, *op_rows()]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def as_markdown() -> str:
    """The page `docs/supported_ops.md`."""
    rows = op_rows()
    lines = [
        "# Supported ops",
        "",
        f"The {len(rows)} TensorFlow op types that are vectorized natively. Made by `batchd ops --markdown`; a test",
        "keeps it current. Any other op runs once for each row of the batch, which the report says (`batchd explain`),",
        "or is refused where it has side effects. Random ops of the families *looped draw* and *stateless normal* run",
        "once for all rows if they share the seed, else once for each, because of the last bit.",
        "",
        "*Fails a row when*: these ops raise in TensorFlow. In a batch the condition is checked for each row, the row",
        "is flagged in `ok` and answered by the function itself; its neighbours are not touched. *XLA*: whether the op",
        "can be compiled; the others (text, mostly) run before and after the compiled part.",
        "",
        "| " + " | ".join(_COLUMNS) + " |",
        "|---|---|---|---|",
        *(f"| `{name}` | {family} | {checks} | {xla} |" for name, family, checks, xla in rows),
    ]
    return "\n".join(lines) + "\n"
