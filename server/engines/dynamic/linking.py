"""From what was appended to what can be scheduled and launched: loops over nodes, compiled by Numba.

Values are numbered; a node's number is that of its first result, so numbers are in topological order. `base` is the
first number that hasn't run yet. A template's instance numbers its values from `first` on: node k of the template is
`first + offsets[k]`, and an operand coded c >= 0 is `first + c`, one coded c < 0 the instance's input `-c - 1`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from server.engines.dynamic.compiled import compiled


@compiled
def mark(
    firsts: Any,
    examples: Any,
    signatures: Any,
    offsets: Any,
    arities: Any,
    widths: Any,
    base: int,
    signature_of: Any,
    arity_of: Any,
    maker: Any,
    example_of: Any,
) -> None:
    """Fills in, by value, the signature, arity and example of nodes, and which node makes it."""
    for node in range(len(signatures)):
        for instance in range(len(firsts)):
            place = firsts[instance] + offsets[node] - base
            signature_of[place] = signatures[node]
            arity_of[place] = arities[node]
            example_of[place] = examples[instance]
            for result in range(widths[node]):
                maker[place + result] = place


@compiled
def link(
    firsts: Any, inputs: Any, offsets: Any, arities: Any, codes: Any, base: int, starts: Any, operands: Any
) -> None:
    """Fills in the nodes' operands, as value numbers. `inputs` [inputs of the template, instances]."""
    for instance in range(len(firsts)):
        first = firsts[instance]
        at = 0
        for node in range(len(offsets)):
            start = starts[first + offsets[node] - base]
            for k in range(arities[node]):
                code = codes[at]
                at += 1
                operands[start + k] = first + code if code >= 0 else inputs[-code - 1, instance]


@compiled
def compact(signature_of: Any, arity_of: Any, local: Any) -> tuple[Any, Any, Any, Any, Any]:
    """Nodes numbered one after the other: number by place (-1 for no node), their places, signatures (`local` gives
    each another index), where their operands start, and the same by place."""
    count = 0
    total = 0
    number = np.full(len(signature_of), -1, np.int64)
    starts_by_place = np.zeros(len(signature_of), np.int64)
    for place in range(len(signature_of)):
        starts_by_place[place] = total
        if signature_of[place] >= 0:
            number[place] = count
            count += 1
            total += arity_of[place]
    places = np.empty(count, np.int64)
    signatures = np.empty(count, np.int64)
    starts = np.empty(count + 1, np.int64)
    used = 0
    for place in range(len(signature_of)):
        node = number[place]
        if node >= 0:
            places[node] = place
            signature = signature_of[place]
            if local[signature] < 0:
                local[signature] = used
                used += 1
            signatures[node] = local[signature]
            starts[node] = starts_by_place[place]
    starts[count] = total
    return number, places, signatures, starts, starts_by_place


@compiled
def producers(operands: Any, base: int, maker: Any, number: Any) -> Any:
    """Which node makes each operand; -1 for what was there before."""
    found = np.full(len(operands), -1, np.int64)
    for edge in range(len(operands)):
        place = operands[edge] - base
        if place >= 0 and maker[place] >= 0:
            found[edge] = number[maker[place]]
    return found


@compiled
def place(
    order: Any,
    borders: Any,
    signatures: Any,
    places: Any,
    base: int,
    starts: Any,
    operands: Any,
    packed: Any,
    write_starts: Any,
    writes: Any,
    slot: Any,
    free: Any,
) -> tuple[Any, Any, Any, Any]:
    """Gives every result its row in its arena, in the order of launches, and says where operands lie.

    `slot` [values] and `free` [arenas] are updated. Returns: of each launch's results, one after the other, the first
    row; of each launch's operands, one after the other, the first row if they are a run of rows, else -1; where the
    rows of that operand begin; and the rows.
    """
    launches = len(borders) - 1
    results = 0
    reads = 0
    for launch in range(launches):
        node = order[borders[launch]]
        signature = signatures[node]
        results += write_starts[signature + 1] - write_starts[signature]
        arity = starts[node + 1] - starts[node]
        reads += min(arity, 1) if packed[signature] else arity
    first_rows = np.empty(results, np.int64)
    runs = np.empty(reads, np.int64)
    begins = np.empty(reads + 1, np.int64)
    rows = np.empty(len(operands), np.int64)
    result, read, at = 0, 0, 0
    for launch in range(launches):
        begin, end = borders[launch], borders[launch + 1]
        signature = signatures[order[begin]]
        node = order[begin]
        arity = starts[node + 1] - starts[node]
        outer = min(arity, 1) if packed[signature] else arity
        inner = arity if packed[signature] else 1
        for k in range(outer):
            begins[read] = at
            run = True
            for position in range(begin, end):
                start = starts[order[position]] + k
                for j in range(inner):
                    rows[at] = slot[operands[start + j]]
                    if at > begins[read] and rows[at] != rows[at - 1] + 1:
                        run = False
                    at += 1
            runs[read] = rows[begins[read]] if run else -1
            read += 1
        for k in range(write_starts[signature + 1] - write_starts[signature]):
            arena = writes[write_starts[signature] + k]
            first_rows[result] = free[arena]
            result += 1
            for position in range(begin, end):
                slot[base + places[order[position]] + k] = free[arena]
                free[arena] += 1
    begins[read] = at
    return first_rows, runs, begins, rows
