"""Trials: the same examples in many batches, whose answers must have the same bits as in the first.

A *probe* is an example under test. Its reference is what the first program says when the probe is alone in its batch.
Then the probes wander: each takes every row, among the other probes and junk, in full and partly filled batches, with
junk in the padding, the same batch twice, and two batches at once in two threads. Bits are compared, not values: -0.0
isn't 0.0. Any NaN equals any other, since which one it is depends on operands' order and no one reads it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import inf

import numpy as np

from server.engines.assembly import Assembled
from server.engines.batch_result import Array, Example
from server.engines.reproducible.company import Company
from server.engines.reproducible.programs import FixedProgram, Observed, Programs

FEWEST_TRIALS = 8
"""Batches that each program has to pass, whatever they take."""
ENOUGH_TRIALS = 32
"""Batches after which a program has passed, if every probe has been in every row by then."""
_MOST_TRIALS = 400
_FEWEST_PROBES = 4
_COMPANY = 1 / 3


@dataclass(frozen=True, eq=False)
class Difference:
    """A probe that got other bits as row `row` of `batch` than `reference` gave it alone, in `alone`.

    `output`: which of all that the programs return; None where only one of them refuses the row.
    """

    program: FixedProgram
    reference: FixedProgram
    alone: Assembled
    batch: Assembled
    row: int
    output: int | None
    expected: Observed
    got: Observed


class Trials:
    """The trials of one level of lengths. Counts what it did: `batches`, `comparisons`, `seconds`, and pairs seen."""

    def __init__(
        self,
        programs: Programs,
        reference: FixedProgram,
        probes: Sequence[Example],
        company: Company,
        *,
        seed: int,
        seconds: float,
    ) -> None:
        """Takes as many of the probes as `seconds` allow, and their references."""
        self.batches = self.comparisons = 0
        self.seconds = 0.0
        self._programs, self._reference, self._company = programs, reference, company
        self._rng = np.random.default_rng(seed)
        self._probes: list[Example] = []
        self._alone: list[Assembled] = []
        self._expected: list[Observed] = []
        give_up_at = inf
        for probe in probes:
            self._refer(probe, is_last_hope=probe is probes[-1] and not self._probes)
            give_up_at = min(give_up_at, time.perf_counter() + seconds)  # counts from the first, which compiles
            if time.perf_counter() > give_up_at and len(self._probes) >= _FEWEST_PROBES:
                break
        self._pairs_seen = self._pairs = 0

    def _refer(self, probe: Example, *, is_last_hope: bool) -> None:
        """Takes a probe, unless the program raises on it as a whole: the function itself answers it then, always."""
        batch = self._programs.pad([probe], self._reference)
        try:
            expected = self._programs.observe(self._reference, batch)[0]
        except Exception:
            if is_last_hope:
                raise
            return
        self._probes.append(probe)
        self._alone.append(batch)
        self._expected.append(expected)

    @property
    def positions(self) -> float:
        """Of all pairs of a probe and a row, over all programs, the share that was compared."""
        return self._pairs_seen / self._pairs if self._pairs else 1.0

    def refused(self) -> list[Example]:
        """Returns the probes that the reference refuses: the function itself answers them."""
        pairs = zip(self._probes, self._expected, strict=True)
        return [probe for probe, expected in pairs if expected is None]

    def run(self, program: FixedProgram, seconds: float) -> Difference | None:
        """Compares until every probe has been in every row, or the time is up; returns the first difference.

        Raises what the program raises on a full batch of probes.
        """
        missing = {(probe, row) for probe in range(len(self._probes)) for row in range(program.rows)}
        pairs = len(missing)
        self._programs.observe(program, self._arrange(program, 0)[1])  # compiles it, where it hasn't run yet
        started_at = time.perf_counter()
        give_up_at = started_at + seconds
        with ThreadPoolExecutor(2) as pool:
            for trial in range(_MOST_TRIALS):
                late = time.perf_counter() > give_up_at
                if trial >= FEWEST_TRIALS and (late or (trial >= ENOUGH_TRIALS and not missing)):
                    break
                batches = [self._arrange(program, trial + k) for k in range(2 if trial % 4 == 3 else 1)]
                if trial % 5 == 4:
                    batches.append(batches[0])
                answers = list(pool.map(lambda made: self._observe(program, made[1]), batches))
                for (members, batch), observed in zip(batches, answers, strict=True):
                    if observed is None:
                        continue
                    difference = self._compare(program, members, batch, observed)
                    if difference:
                        self.seconds += time.perf_counter() - started_at
                        return difference
                    missing -= {(probe, row) for row, probe in enumerate(members) if probe is not None}
        self.seconds += time.perf_counter() - started_at
        self._pairs += pairs
        self._pairs_seen += pairs - len(missing)
        return None

    def _observe(self, program: FixedProgram, batch: Assembled) -> list[Observed] | None:
        """None where the program raises as a whole, as it may for junk: each row is run by itself then."""
        try:
            return self._programs.observe(program, batch)
        except Exception:
            return None

    def _arrange(self, program: FixedProgram, trial: int) -> tuple[list[int | None], Assembled]:
        """Returns which probe each real row holds (None: junk), and the padded batch."""
        rng = self._rng
        count = len(self._probes)
        rows = program.rows if trial % 2 == 0 else int(rng.integers(1, program.rows + 1))
        order = np.random.default_rng(trial // count).permutation(count)
        members: list[int | None] = [int(order[(row + trial) % count]) for row in range(rows)]
        if trial % 2 and self._company.may_be_junk:
            members = [None if rng.random() < _COMPANY else member for member in members]
        examples = [
            self._company.stranger(rng, program.lengths) if member is None else self._probes[member]
            for member in members
        ]
        batch = self._programs.pad(examples, program)
        if trial % 3 == 2:
            batch = self._company.with_junk(rng, batch, program.lengths)
        return members, batch

    def _compare(
        self, program: FixedProgram, members: Sequence[int | None], batch: Assembled, observed: Sequence[Observed]
    ) -> Difference | None:
        self.batches += 1
        for row, (member, got) in enumerate(zip(members, observed, strict=True)):
            if member is None:
                continue
            self.comparisons += 1
            expected = self._expected[member]
            output = _first_unequal(expected, got)
            if output is not False:
                alone = self._alone[member]
                return Difference(program, self._reference, alone, batch, row, output, expected, got)
        return None


def _first_unequal(expected: Observed, got: Observed) -> int | bool | None:
    """Which output differs in its bits; None where only one refuses; False where all are equal."""
    if expected is None or got is None:
        return False if expected is got else None
    for output, (one, other) in enumerate(zip(expected, got, strict=True)):
        if not bits_equal(one, other):
            return output
    return False


def bits_equal(one: Array, other: Array) -> bool:
    """Whether two arrays have the same shape, dtype and bits, but for NaNs, which all are equal."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.dtype.kind != "f":
        return bool(np.array_equal(one, other))
    one, other = np.ascontiguousarray(one), np.ascontiguousarray(other)
    if one.tobytes() == other.tobytes():
        return True
    bits = f"u{one.dtype.itemsize}"
    same = one.reshape(-1).view(bits) == other.reshape(-1).view(bits)
    return bool((same | (np.isnan(one) & np.isnan(other)).reshape(-1)).all())
