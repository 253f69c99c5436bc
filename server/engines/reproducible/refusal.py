"""Why a model can't be served reproducibly, for its owner: what differed, the op to blame, and what to try."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from server.engines.assembly import Assembled
from server.engines.reproducible.choosing import Chooser
from server.engines.reproducible.programs import FixedProgram, Observed
from server.engines.reproducible.trials import Difference
from server.errors import CertificationError
from server.model_description import TensorDescription
from vectorizer.first_difference import PaddedBatch, first_difference

_TRY = (
    "Try another max_batch_size (with 16 or a multiple, rows tend to fill the CPU's vector registers evenly), "
    "--intra-op-threads 1, or another way to write that op; engine='per_request' answers each example alone, "
    "reproducibly; without reproducible=True the model is served within its tolerance."
)


def refusal(model: str, vectorized: Any, outputs: Sequence[TensorDescription], chooser: Chooser) -> CertificationError:
    """The error for a model of which no program passed."""
    notes = [f"{_KINDS[kind]}: {note}" for kind, note in chooser.notes.items()]
    lines = [f"model '{model}' can't be served reproducibly: {'; '.join(notes) or 'no program may be tried'}"]
    if chooser.differences:
        last = chooser.differences[-1].program.kind
        difference = next(each for each in chooser.differences if each.program.kind == last)
        lines += [f"  {_show(difference, outputs)}", f"  {_blame(vectorized, chooser.differences)}"]
    return CertificationError("\n".join([*lines, _TRY]))


def unsteady(model: str) -> CertificationError:
    """The error for a model whose function itself answers one example differently from run to run."""
    return CertificationError(
        f"model '{model}' can't be served reproducibly: its function, run alone, gives one example other bits from "
        "run to run. Try --intra-op-threads 1 and --inter-op-threads 1, or leave out what draws random numbers."
    )


_KINDS = {"xla": "compiled by XLA", "plain": "plain TensorFlow"}


def _show(difference: Difference, outputs: Sequence[TensorDescription]) -> str:
    where = (
        f"alone in a batch of {_size(difference.reference)}, and as row {difference.row} of {difference.batch.rows} in "
        f"a batch of {_size(difference.program)} ({_KINDS[difference.program.kind]})"
    )
    if difference.output is None:
        return f"the same example is refused in one place and answered in another: {where}"
    expected, got = _array(difference.expected, difference.output), _array(difference.got, difference.output)
    served = difference.output < len(outputs)
    name = f"output '{outputs[difference.output].name}'" if served else "a value that an output is made of"
    return f"{name} of the same example has other bits {where}: {_apart(expected, got)}"


def _blame(vectorized: Any, differences: Sequence[Difference]) -> str:
    """Names the first op that differs, in the plain program if that was tried."""
    for difference in sorted(differences, key=lambda difference: difference.program.kind):
        op = first_difference(
            vectorized,
            _padded(difference.alone, difference.reference),
            0,
            _padded(difference.batch, difference.program),
            difference.row,
        )
        if op is not None:
            return f"the first op whose result differs while its operands don't: `{op.type}` {op.where()}"
    return "run op by op, no op differs: it is the compiled program as a whole that does"


def _padded(batch: Assembled, program: FixedProgram) -> PaddedBatch:
    return PaddedBatch(batch.inputs, batch.lengths, batch.rows, program.lengths or None)


def _size(program: FixedProgram) -> str:
    lengths = f" of lengths {', '.join(map(str, program.lengths))}" if program.lengths else ""
    return f"{program.rows} rows{lengths}"


def _array(observed: Observed, output: int) -> Any:
    return None if observed is None else observed[output]


def _apart(one: Any, other: Any) -> str:
    if one.shape != other.shape:
        return f"shape {list(one.shape)} and {list(other.shape)}"
    differing = np.flatnonzero(np.asarray(one != other).reshape(-1))
    first = int(differing[0]) if differing.size else 0
    a, b = one.reshape(-1)[first], other.reshape(-1)[first]
    text = f"{a!r} and {b!r}" if one.dtype == object else f"{a} and {b}"
    return f"{text} at element {first}, the first of {differing.size} of {one.size}"
