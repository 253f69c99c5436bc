"""Pass 4: choose a strategy for each loop, branch and unsupported op. Data only: printable, testable, nothing runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce

import tensorflow as tf

from vectorizer.analysis import Analysis
from vectorizer.effects import Options, refusals
from vectorizer.errors import Finding
from vectorizer.kinds import Abstract, Kind
from vectorizer.program import Op, Program, Var
from vectorizer.registry import find


@dataclass(frozen=True)
class Bound:
    """The predicate is `counter < limit` (or `<=`): positions of both among the loop variables, or a constant limit."""

    counter: int
    limit: int | None
    operator: str
    constant: int | None = None


@dataclass(frozen=True)
class LoopPlan:
    """How one loop is emitted.

    `invariant` variables are bound outside; `counters` start at 0 or more and only grow; `exits` are uniform variables
    that are read after the loop; `predicate_checks` says whether evaluating the predicate can fail a row.
    """

    invariant: frozenset[int]
    variables: tuple[Abstract, ...]
    predicate: Kind
    bound: Bound | None
    counters: frozenset[int]
    exits: frozenset[int]
    predicate_checks: bool
    at_most: Bound | None = None  # as `bound`, where the predicate demands that among other things

    @property
    def strategy(self) -> str:
        """In words, for the report."""
        if self.predicate != Kind.BATCHED:
            return "loop, all rows together"
        return "loop to the longest row, masked by its bound" if self.bound else "loop until no row is active, masked"

    def raised(self, position: int | None) -> LoopPlan:
        """With one variable batched after all; None: with a predicate that differs between rows."""
        variables = list(self.variables)
        if position is None:
            for k, value in enumerate(variables):
                if k not in self.invariant:
                    variables[k] = replace(value, kind=Kind.BATCHED)
            return replace(
                self, variables=tuple(variables), predicate=Kind.BATCHED, bound=None, at_most=None, exits=frozenset()
            )
        variables[position] = replace(variables[position], kind=Kind.BATCHED)
        bounds = [None if item is None or item.counter == position else item for item in (self.bound, self.at_most)]
        return replace(
            self, variables=tuple(variables), bound=bounds[0], at_most=bounds[1], exits=self.exits - {position}
        )


@dataclass(frozen=True)
class ListGrowth:
    """How a loop's body changes the number of elements of a list.

    `most`: appended in one step, math.inf if unknown; `exact`: exactly as many in every step.
    """

    changes: bool
    most: float
    exact: bool = True

    def then(self, other: ListGrowth) -> ListGrowth:
        """One after the other."""
        exact = self.exact and other.exact
        return ListGrowth(self.changes or other.changes, self.most + other.most, exact)

    def either(self, other: ListGrowth) -> ListGrowth:
        """One or the other."""
        same = self.most == other.most and self.exact and other.exact
        return ListGrowth(self.changes or other.changes, max(self.most, other.most), same)


_UNCHANGED = ListGrowth(False, 0)


@dataclass
class Plan:
    """Strategies by op, and the ops that are refused."""

    program: Program
    analysis: Analysis
    loops: dict[Op, LoopPlan] = field(default_factory=dict)
    branch_kinds: dict[Op, list[Kind]] = field(default_factory=dict)
    lists: dict[Op, dict[int, ListGrowth]] = field(default_factory=dict)
    refused: list[Finding] = field(default_factory=list)

    def __str__(self) -> str:
        lines = []
        for op in self.program.walk():
            if op in self.loops:
                lines.append(f"{op.type} {op.where()}: {self.loops[op].strategy}")
            elif op in self.branch_kinds:
                lines.append(f"{op.type} {op.where()}: {self.branch_strategy(op)}")
            elif (
                find(op.type) is None
                and op.gradient is None
                and any(self.analysis.kind(var) == Kind.BATCHED for var in op.inputs)
            ):
                lines.append(f"{op.type} {op.where()}: looped over rows, no converter")
        return "\n".join(lines) or "every op native, no control flow"

    def branch_strategy(self, op: Op) -> str:
        """In words, for the report."""
        if self.analysis.branches[op] == Kind.BATCHED:
            return "both branches run, each row takes its own"
        return "one branch runs for all rows"


def make_plan(
    program: Program,
    analysis: Analysis,
    options: Options | None = None,
    resource_names: Mapping[Var, str] | None = None,
) -> Plan:
    """The plan of a whole program. `resource_names`: those of captured variables, for messages."""
    plan = Plan(program, analysis)
    _plan_program(plan, program, frozenset(program.outputs))
    plan.refused = refusals(program, analysis.kind, options or Options(), resource_names or {})
    return plan


def _plan_program(plan: Plan, program: Program, outputs: frozenset[Var]) -> None:
    read = {var for op in program.ops for var in op.inputs} | outputs
    for op in program.ops:
        if op.type == "While":
            plan.loops[op] = _plan_loop(plan, op, read)
            plan.lists[op] = _growing(op)
        elif op.bodies:
            plan.branch_kinds[op] = [plan.analysis.kind(var) for var in op.outputs]
        for body in op.bodies.values():
            _plan_program(plan, body, frozenset(body.outputs))


def _plan_loop(plan: Plan, op: Op, read: set[Var]) -> LoopPlan:
    facts = plan.analysis.loops[op]
    cond, body = op.bodies["cond"], op.bodies["body"]
    counters = frozenset(k for k in range(len(op.inputs)) if k not in facts.invariant and _counts_up(op, k))
    uniform = [
        k
        for k, value in enumerate(facts.variables)
        if k not in facts.invariant and value.kind < Kind.BATCHED and facts.predicate == Kind.BATCHED
    ]
    exits = [k for k in uniform if op.outputs[k] in read]
    variables = list(facts.variables)
    for k in [k for k in exits if not body.inputs[k].shape.is_fully_defined() or body.inputs[k].dtype == tf.variant]:
        # A uniform value that changes size differs in size between rows that have stopped; a list is masked by writes.
        variables[k] = replace(variables[k], kind=Kind.BATCHED)
        exits.remove(k)
    return LoopPlan(
        facts.invariant,
        tuple(variables),
        facts.predicate,
        _bound(plan, op, counters),
        counters,
        frozenset(exits),
        can_fail(cond),
        _bound(plan, op, counters, among=True),
    )


def can_fail(program: Program) -> bool:
    """Whether any op in it, nested ones included, may check something: by its rule, or by aligning ragged operands."""
    for op in program.walk():
        rule = find(op.type)
        if rule is not None and rule.checks:
            return True
        if any(var.rank is not None and None in var.shape.as_list() for var in (*op.inputs, *op.outputs)):
            return True
    return False


def _producer(program: Program, var: Var) -> Op | None:
    return next((op for op in program.ops if var in op.outputs), None)


def _counts_up(op: Op, k: int) -> bool:
    """Starts at a constant >= 0 and grows by a constant >= 1 each step."""
    start, body = op.inputs[k].constant, op.bodies["body"]
    if start is None or start.ndim != 0 or not op.inputs[k].dtype.is_integer or start < 0:
        return False
    add = _producer(body, body.outputs[k])
    if add is None or add.type not in ("Add", "AddV2") or body.inputs[k] not in add.inputs:
        return False
    steps = [_constant_step(op, body, var) for var in add.inputs if var is not body.inputs[k]]
    return len(steps) == 1 and steps[0] is not None and steps[0] >= 1


def _constant_step(op: Op, body: Program, var: Var) -> int | None:
    """What is added each time: a constant, or a loop variable that stays the constant it started as."""
    value = var.constant
    if var in body.inputs:
        position = body.inputs.index(var)
        value = op.inputs[position].constant if body.outputs[position] is var else None
    return int(value) if value is not None and value.ndim == 0 else None


def _bound(plan: Plan, op: Op, counters: frozenset[int], *, among: bool = False) -> Bound | None:
    """Recognise `counter < limit` with a counter that only grows and a limit that doesn't change.

    `among`: as one of several things that the predicate demands.
    """
    cond = op.bodies["cond"]
    wanted = [cond.outputs[0]]
    for var in wanted:
        producer = _producer(cond, var)
        if among and producer is not None and producer.type == "LogicalAnd":
            wanted += producer.inputs
    found = (_comparison(plan, op, counters, _producer(cond, var)) for var in wanted)
    return next((bound for bound in found if bound is not None), None)


def _comparison(plan: Plan, op: Op, counters: frozenset[int], compare: Op | None) -> Bound | None:
    if compare is None or compare.type not in ("Less", "LessEqual", "Greater", "GreaterEqual"):
        return None
    left, right = compare.inputs
    if compare.type.startswith("Greater"):
        left, right = right, left
    positions = {var: k for k, var in enumerate(op.bodies["cond"].inputs)}
    counter, limit = positions.get(left), positions.get(right)
    facts = plan.analysis.loops[op]
    if counter is None or counter not in counters or facts.variables[counter].kind == Kind.BATCHED:
        return None
    operator = "LessEqual" if compare.type.endswith("Equal") else "Less"
    if right.constant is not None:
        return Bound(counter, None, operator, int(right.constant))
    return Bound(counter, limit, operator) if limit in facts.invariant else None


def _growing(op: Op) -> dict[int, ListGrowth]:
    """The loop's lists that its body makes longer or shorter."""
    body = op.bodies["body"]
    counter = {body.inputs[k]: k for k in range(len(op.inputs)) if _counts_up(op, k) and op.inputs[k].constant == 0}
    steps = {var: var for var, k in counter.items() if step_of(op, k) == 1}
    found = {}
    for k, var in enumerate(body.outputs):
        if var.dtype == tf.variant:
            growth = _growth(body, var, steps)
            if growth.changes:
                found[k] = growth
    return found


def _growth(program: Program, var: Var, counters: Mapping[Var, Var]) -> ListGrowth:
    """What the ops that lead to the list `var` do to its length. `counters` are known to be 0, 1, 2, ..."""
    producer = _producer(program, var)
    if producer is None:
        return _UNCHANGED
    position = producer.outputs.index(var)
    if producer.type == "While":
        inside = _growth(producer.bodies["body"], producer.bodies["body"].outputs[position], {})
        many = ListGrowth(inside.changes, math.inf if inside.most else 0, not inside.changes)
        return many.then(_growth(program, producer.inputs[position], counters))
    if producer.bodies:
        return _growth_in_branches(program, producer, position, counters)
    own = _UNCHANGED
    if producer.type == "TensorListPopBack":
        own = ListGrowth(True, 0, exact=False)
    elif producer.type == "TensorListPushBack":
        own = ListGrowth(True, 1)
    elif producer.attrs.get("resize_if_index_out_of_bounds"):
        index = producer.inputs[1]
        length = _producer(program, index)
        appended = index in counters or (length is not None and length.type == "TensorListLength")
        own = ListGrowth(True, 1 if appended else math.inf, length is not None and appended)
    elif not producer.type.startswith("TensorList"):
        return own
    lists = [source for source in producer.inputs[:1] if source.dtype == tf.variant]
    return own.then(_growth(program, lists[0], counters)) if lists else own


def _growth_in_branches(program: Program, op: Op, position: int, counters: Mapping[Var, Var]) -> ListGrowth:
    branches = []
    for body in op.bodies.values():
        inner = {own: outer for own, outer in zip(body.inputs, op.inputs[1:], strict=True) if outer in counters}
        branches.append(_growth(body, body.outputs[position], inner))
    lists = [_growth(program, var, counters) for var in op.inputs[1:] if var.dtype == tf.variant]
    return reduce(ListGrowth.either, branches).then(reduce(ListGrowth.either, lists, _UNCHANGED))


def step_of(op: Op, k: int) -> int:
    """By how much a variable that counts up grows."""
    body = op.bodies["body"]
    add = _producer(body, body.outputs[k])
    assert add is not None
    return next(int(var.constant) for var in add.inputs if var is not body.inputs[k])
