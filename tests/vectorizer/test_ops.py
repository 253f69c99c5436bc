"""Every registered op against the oracle: one line per op, or per group of ops that share a function.

From each line of the table (`tests/support/op_lines/`) grow cases: fixed and variable dimensions, dtypes, each
operand in turn shared by all rows; each case is run on batches of 0, 1, 2 and 5 rows. The quick tier takes a sample in
which every op occurs.
"""

import random
import zlib
from dataclasses import dataclass

import numpy as np
import pytest
import tensorflow as tf

from tests.support.op_lines import LINES
from tests.support.op_lines.line import Line, usual
from tests.support.oracle import check, check_flexible
from vectorizer import supported_ops, trace, vectorize

ROWS = 5
NEVER_IN_A_PROGRAM = {"Identity", "Rank"}  # normalising drops the one and folds the other


@dataclass(frozen=True)
class Case:
    """One line with the given operand shared by all rows (None: all batched)."""

    number: int
    line: Line
    shared: int | None

    @property
    def name(self):
        specs = ",".join(f"{spec.dtype.name}{spec.shape.as_list()}" for spec in self.line.specs).replace(" ", "")
        what = self.line.name or "+".join(self.line.ops.split()[:2])
        return f"{self.number}-{what}-{specs}" + ("" if self.shared is None else f"-shared{self.shared}")

    def run(self, jit):
        line = self.line
        generator = np.random.default_rng(zlib.crc32(self.name.encode()))
        draw = line.draw or usual
        rows = []
        for _ in range(ROWS):
            size = int(generator.integers(line.least, 6))
            rows.append([self._operand(generator, draw, spec, size) for spec in line.specs])
        specs, fn = list(line.specs), line.fn
        if self.shared is not None:
            constant = tf.constant(rows[0][self.shared], specs.pop(self.shared).dtype)
            for row in rows:
                row.pop(self.shared)
            position = self.shared

            def fn(*operands):
                return line.fn(*operands[:position], constant, *operands[position:])

        v = vectorize(fn, specs, **line.options)
        if line.fixed:
            check(v, None, rows, jit=jit, fallbacks=line.fallbacks, rtol=line.rtol, atol=line.atol)
        for count in (0, 1, 2) if line.fixed else (0, 1, 2, ROWS):
            check_flexible(v, rows[:count], rtol=line.rtol, atol=line.atol)

    @staticmethod
    def _operand(generator, draw, spec, size):
        # A group's own way of drawing is for operands of the first one's dtype; indices stay indices.
        shape = [size if n is None else n for n in spec.shape]
        try:
            return draw(generator, spec, shape)
        except (TypeError, ValueError):
            return usual(generator, spec, shape)


def all_cases():
    found = []
    for line in LINES:
        choices = [None]
        if line.shared and len(line.specs) > 1:
            choices += [k for k, spec in enumerate(line.specs) if None not in spec.shape]
        for shared in choices:
            found.append(Case(len(found), line, shared))
    return found


def sample(cases, count):
    """Seeded: cases until every op is covered, then any."""
    shuffled = random.Random(0).sample(cases, len(cases))
    covered, chosen, rest = set(), [], []
    for case in sorted(shuffled, key=lambda case: -len(case.line.ops.split())):  # few cases that cover many ops each
        ops = set(case.line.ops.split())
        (rest if ops <= covered else chosen).append(case)
        covered |= ops
    rest = random.Random(1).sample(rest, len(rest))
    return chosen + rest[: max(count - len(chosen), 0)]


CASES = all_cases()
SAMPLE = sample(CASES, 130)


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in SAMPLE])
def test_sample(case):
    case.run(jit=case.number % 5 == 0)


@pytest.mark.full
@pytest.mark.sweep
@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])
def test_all(case):
    case.run(jit=True)


def test_every_registered_op_has_a_line():
    covered = {name for line in LINES for name in line.ops.split()}
    missing = sorted({op.name for op in supported_ops()} - covered)
    assert not missing, f"registered, but no line in LINES: {missing}"


LEFT_PLAIN = {
    "MatrixInverse MatrixSolve": "compiled, a singular matrix isn't noticed",
    "StatelessRandomNormal StatelessRandomNormalV2 StatelessTruncatedNormal": "compiled, it draws other numbers",
    "StatelessTruncatedNormalV2 StatelessParameterizedTruncatedNormal StatelessMultinomial": "the same",
    "RngReadAndSkip RngSkip ParameterizedTruncatedNormal": "a generator's state is kept once for all rows",
    "StatefulUniform StatefulStandardNormalV2 StatefulTruncatedNormal StatefulUniformFullInt": "the same",
    "StatefulUniformInt": "the same",
    "AssignAddVariableOp AssignSubVariableOp": "written once, by the plain program",
}


@pytest.mark.full
def test_what_compiles_for_one_example_compiles_for_a_batch():
    """Of the ops that a compiled batch leaves to TensorFlow, XLA has no kernel; or the reason is here."""
    reasons = {name for names in LEFT_PLAIN for name in names.split()}
    plain = {op.name for op in supported_ops() if op.compilable is False} - reasons
    unforced = []
    for line in {line.ops: line for line in LINES if set(line.ops.split()) & plain}.values():
        if any(spec.dtype == tf.string for spec in line.specs):
            continue
        operands = [
            np.ones([2 if n is None else n for n in spec.shape], spec.dtype.as_numpy_dtype) for spec in line.specs
        ]
        try:
            tf.function(line.fn, jit_compile=True)(*[tf.constant(item) for item in operands])
            unforced.append(line.ops)
        except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError):
            pass
    assert not unforced, unforced


@pytest.mark.full
def test_lines_hold_the_ops_they_claim():
    """A line that names an op which its function doesn't make would cover nothing."""
    absent = {}
    for line in LINES:
        claimed = absent.setdefault(line.ops, set(line.ops.split()) - NEVER_IN_A_PROGRAM)
        if claimed:
            claimed -= {op.type for op in trace(line.fn, line.specs).walk()}
    assert not any(absent.values()), {ops: missing for ops, missing in absent.items() if missing}


def test_every_registered_name_is_an_op():
    unknown = [op.name for op in supported_ops() if not hasattr(tf.raw_ops, op.name)]
    assert not unknown, unknown
