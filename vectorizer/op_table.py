"""The table of supported ops, for people: what `batchd ops` prints and `docs/supported_ops.md` holds."""

from __future__ import annotations

from vectorizer.registry import Compilable, SupportedOp, supported_ops
from vectorizer.xla_kernels import DOMAINS

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
_OF_TENSORFLOW_1 = "refused: TensorFlow 1 only; write it with tf.TensorArray in TensorFlow 2"
_ELSEWHERE = {
    **dict.fromkeys(
        [
            "TensorArrayV3",
            "TensorArrayGradV3",
            "TensorArrayReadV3",
            "TensorArrayWriteV3",
            "TensorArrayGatherV3",
            "TensorArrayScatterV3",
            "TensorArraySizeV3",
            "StackPushV2",
            "StackPopV2",
        ],
        _OF_TENSORFLOW_1,
    ),
    "TopK": "never met: TensorFlow 2 has no kernel for it and emits TopKV2",
    "LogicalXor": "never met: TensorFlow 2 makes it of LogicalAnd, LogicalOr and LogicalNot",
    "XlaEinsum": "never met: made by TensorFlow's bridge to XLA only, after tracing",
    "XlaSharding": "never met: made by TensorFlow's bridge to XLA only, after tracing",
    "_EagerConst": "never met: exists outside of traced functions only",
}
_COLUMNS = ("op", "family", "fails a row when", "XLA")


def op_rows() -> list[tuple[str, str, str, str]]:
    """(op type, family, what is checked, whether XLA compiles it), by name; control flow is not a converter's."""
    rows = [(op.name, op.family.replace("_", " "), _checks(op), _under_xla(op.compilable)) for op in supported_ops()]
    return sorted(rows + [(name, "control flow", "", "yes") for name in _CONTROL_FLOW])


def _checks(op: SupportedOp) -> str:
    kind, _ = DOMAINS.get(op.name, ("", None))
    return "; ".join(filter(None, [op.checks, kind and f"compiled: a number isn't {kind}"]))


def _under_xla(compilable: Compilable) -> str:
    return "partly" if callable(compilable) else "yes" if compilable else ""


def accounted_for() -> dict[str, str]:
    """What becomes of every op type that the table or its appendix names: a family, or why there is none."""
    return {name: family for name, family, *_ in op_rows()} | _ELSEWHERE


def as_text() -> str:
    """The table in columns."""
    rows = [_COLUMNS, *op_rows()]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, "", *(f"{name}  {reason}" for name, reason in sorted(_ELSEWHERE.items()))])


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
        "can be compiled (*partly*: it depends on its attributes); the others (text, mostly) run before and after the",
        "compiled part.",
        "",
        "| " + " | ".join(_COLUMNS) + " |",
        "|---|---|---|---|",
        *(f"| `{name}` | {family} | {checks} | {xla} |" for name, family, checks, xla in rows),
        "",
        "## Without a converter, for a reason",
        "",
        "Op types that TensorFlow's own `pfor` converts and that have no place here:",
        "",
        "| op | why |",
        "|---|---|",
        *(f"| `{name}` | {reason} |" for name, reason in sorted(_ELSEWHERE.items())),
    ]
    return "\n".join(lines) + "\n"
