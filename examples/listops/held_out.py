"""Which lists training never meets: one in ten, chosen by a fingerprint that ignores the arguments' order.

Every operator here gives the same value for its arguments in any order, so [MAX 1 2] and [MAX 2 1] fall on
the same side. Training contains no held-out list, not even as a part of another; a test tree is one.
"""

from typing import TypeVar

import numpy as np
from expression import SYMBOLS, Expression, random_expression

# Python integers and arrays of uint64 go through the same arithmetic modulo 2**64.
Fingerprint = TypeVar("Fingerprint", int, np.ndarray)

_MODULO_2_64 = 2**64 - 1


def mixed(number: Fingerprint) -> Fingerprint:
    """Scatters a number below 2**64, so that sums of fingerprints hardly collide."""
    number = ((number ^ (number >> 31)) * 0x9E3779B97F4A7C15) & _MODULO_2_64
    return number ^ (number >> 29)


def fingerprint(expression: Expression) -> int:
    """A number below 2**64, the same for expressions that differ in their arguments' order only."""
    if isinstance(expression, int):
        return mixed(expression + 1)
    operator, arguments = expression
    return mixed((SYMBOLS.index(operator) + sum(map(fingerprint, arguments))) & _MODULO_2_64)


def is_held_out(number: int | np.ndarray) -> bool | np.ndarray:
    """Whether a list of this fingerprint is kept from training."""
    return number % 10 == 0


def held_out_expressions(count: int, nesting: int, seed: int = 0) -> list[Expression]:
    """Random held-out expressions, exactly ``nesting`` (at least 1) lists deep."""
    generator = np.random.default_rng([seed, nesting])
    found: list[Expression] = []
    while len(found) < count:
        expression = random_expression(generator, nesting)
        if is_held_out(fingerprint(expression)):
            found.append(expression)
    return found
