"""Which op types do more than compute their outputs, and what is refused for it.

A batch runs an op once where the function alone runs it once for each example. For an op that only computes nobody can
tell the difference; one that draws random numbers, writes, or talks to the world is listed here with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from vectorizer.errors import Finding
from vectorizer.kinds import Kind
from vectorizer.program import Op, Program, Var

Randomness = Literal["error", "different", "same"]


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


DRAWS = _names(
    """RandomUniform RandomUniformInt RandomStandardNormal TruncatedNormal ParameterizedTruncatedNormal RandomGamma
    RandomPoissonV2 RandomShuffle Multinomial SampleDistortedBoundingBox
    SampleDistortedBoundingBoxV2 NonDeterministicInts RngReadAndSkip RngSkip StatefulUniform StatefulUniformInt
    StatefulUniformFullInt StatefulStandardNormalV2 StatefulTruncatedNormal
    StatefulRandomBinomial AllCandidateSampler FixedUnigramCandidateSampler LearnedUnigramCandidateSampler
    LogUniformCandidateSampler ThreadUnsafeUnigramCandidateSampler UniformCandidateSampler"""
)
SHAPED_DRAWS = _names(
    """RandomUniform RandomUniformInt RandomStandardNormal TruncatedNormal ParameterizedTruncatedNormal RandomGamma
    RandomPoissonV2"""
)  # their first operand is a shape
SUMMED = frozenset({"AssignAddVariableOp", "AssignSubVariableOp"})
WRITES = SUMMED | _names(
    """AssignVariableOp AssignVariableXlaConcatND ResourceScatterUpdate ResourceScatterAdd ResourceScatterSub
    ResourceScatterMul ResourceScatterDiv ResourceScatterMin ResourceScatterMax ResourceScatterNdUpdate
    ResourceScatterNdAdd ResourceScatterNdSub ResourceScatterNdMin ResourceScatterNdMax ResourceStridedSliceAssign
    ResourceCountUpTo LookupTableInsertV2 LookupTableRemoveV2 LookupTableImportV2 InitializeTableV2
    InitializeTableFromTextFileV2 StackPushV2 StackPopV2"""
)
CALLS_PYTHON = frozenset({"PyFunc", "PyFuncStateless", "EagerPyFunc"})
CHECKS_AND_PRINTS = frozenset({"Assert", "CheckNumerics", "CheckNumericsV2", "PrintV2", "Print"})
_OUTSIDE = frozenset({"ReadFile", "WriteFile", "IteratorGetNext"})
_READS = _names(
    """VarHandleOp ReadVariableOp VarIsInitializedOp VariableShape DisableCopyOnRead ResourceGather ResourceGatherNd
    HashTableV2 MutableHashTableV2 MutableHashTableOfTensorsV2 MutableDenseHashTableV2 AnonymousHashTable
    AnonymousMutableHashTable AnonymousMutableHashTableOfTensors AnonymousMutableDenseHashTable LookupTableFindV2
    LookupTableSizeV2 LookupTableExportV2 StatelessRandomGetAlg DeepCopy Empty GuaranteeConst DeviceIndex Timestamp
    CudnnRNN CudnnRNNV2 CudnnRNNV3 CudnnRNNParamsSize"""
)

_HOW_TO_DRAW = (
    "draws random numbers from hidden state; say what that means in a batch: "
    'randomness="different" (each row its own) or "same" (one draw for all rows), '
    "or use tf.random.stateless_* with a seed that is an input"
)


def has_own_effect(op: Op) -> bool:
    """Whether `op` must run although nobody reads its outputs (nested ops not counted)."""
    if op.type in DRAWS:
        return op.type == "RngSkip"
    return op.type in CHECKS_AND_PRINTS or _acts(op)


def _acts(op: Op) -> bool:
    """Whether it changes something outside of the program."""
    if op.type in WRITES or op.type in CALLS_PYTHON or op.type in _OUTSIDE:
        return True
    stateful = op.definition is not None and op.definition.is_stateful
    return stateful and not op.bodies and op.type not in DRAWS | _READS | CHECKS_AND_PRINTS


@dataclass(frozen=True)
class Options:
    """What the caller of `vectorize` allows: how to draw, and whether `assign_add` sums over the rows."""

    randomness: Randomness = "error"
    sum_assign_add: bool = False

    def __post_init__(self) -> None:
        if self.randomness not in get_args(Randomness):
            raise ValueError(f"randomness={self.randomness!r}: expected one of {', '.join(get_args(Randomness))}")


def refusals(
    program: Program, kind: Callable[[Var], Kind], options: Options, resource_names: Mapping[Var, str]
) -> list[Finding]:
    """Every op of `program`, nested ones included, that a batch can't do as the examples alone would.

    `kind` tells what a value is across the batch; `resource_names` has the variables' names, by what captures them.
    """
    names = dict(resource_names)
    findings = []
    for op, nested in _walk(program, names):
        reason = _draw_refused(op, kind, options) if op.type in DRAWS else _act_refused(op, nested, options, names)
        if reason:
            findings.append(Finding(op, reason))
    if options.sum_assign_add:
        findings += _read_after_sum(program, names)
    return findings


def _walk(program: Program, names: dict[Var, str], nested: bool = False) -> Iterator[tuple[Op, bool]]:
    """All ops, and whether they are inside a loop or branch; `names` is completed on the way in."""
    for op in program.ops:
        yield op, nested
        operands = op.inputs if op.type == "While" else op.inputs[1:]
        for body in op.bodies.values():
            names.update({inner: names[var] for inner, var in zip(body.inputs, operands, strict=True) if var in names})
            yield from _walk(body, names, nested=True)


def _draw_refused(op: Op, kind: Callable[[Var], Kind], options: Options) -> str:
    if options.randomness == "error":
        return _HOW_TO_DRAW
    if options.randomness == "same" and any(kind(var) == Kind.BATCHED for var in _parameters(op)):
        return (
            'draws once for all rows (randomness="same"), but the distribution differs between them; '
            'use randomness="different", or draw from a standard distribution and transform that'
        )
    return ""


def _parameters(op: Op) -> tuple[Var, ...]:
    """The operands that say how the numbers are distributed, not how many there are."""
    if op.type in ("RngReadAndSkip", "RngSkip", "RandomShuffle"):
        return ()
    return op.inputs[3:] if op.type.startswith("Stateful") else op.inputs[op.type in SHAPED_DRAWS :]


def _act_refused(op: Op, nested: bool, options: Options, names: Mapping[Var, str]) -> str:
    if op.type in CALLS_PYTHON:
        return "calls back into Python, which can't be vectorized; write it with TensorFlow ops, or move it out"
    if op.type in WRITES:
        return _write_refused(op, nested, options, names)
    return "has side effects; move it out of the model" if _acts(op) else ""


def _write_refused(op: Op, nested: bool, options: Options, names: Mapping[Var, str]) -> str:
    name = f"'{names[op.inputs[0]]}'" if op.inputs and op.inputs[0] in names else "state"
    if op.type not in SUMMED:
        return f"writes {name} for each example; keep the function free of side effects, update state outside of it"
    if not options.sum_assign_add:
        return (
            f"writes {name} for each example; update it outside of the function, or say sum_assign_add=True to have "
            "the rows' values summed and added once for the batch"
        )
    return f"adds to {name} inside a loop or branch; move it behind, where it can be summed over the rows" * nested


def _read_after_sum(program: Program, names: Mapping[Var, str]) -> list[Finding]:
    """Reads of a variable behind the write: one example would see its own addition only, the batch sees all."""
    written: set[str] = set()
    findings = []
    for op, _ in _walk(program, dict(names)):
        resource = names.get(op.inputs[0]) if op.inputs else None
        if op.type in SUMMED and resource is not None:
            written.add(resource)
        elif op.type in _READS and resource in written:
            findings.append(
                Finding(op, f"reads '{resource}' after adding to it, where each example would see its own sum only")
            )
    return findings
