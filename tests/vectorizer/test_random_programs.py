"""No answer is ever wrong: random programs against the per-example function, every tenth under XLA too.

A program costs some 0.3 s, most of it tracing. So what is compared depends on its seed: the flexible program always,
the one of fixed shapes for every tenth, and under XLA for another tenth.
"""

import pytest

from tests.support.oracle import check
from tests.support.random_programs import SPECS, examples, program, spoilt_examples

QUICK, FULL = range(200), range(200, 2000)


def run(seed):
    check(
        program(seed),
        SPECS,
        examples(seed, 6),
        jit=seed % 10 == 0,
        fixed=seed % 10 == 5,
        fallbacks=None,
        slack=60,
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("seed", QUICK)
def test_random_program(seed):
    run(seed)


@pytest.mark.full
@pytest.mark.sweep
@pytest.mark.parametrize("seed", FULL)
def test_random_program_of_the_full_sweep(seed):
    run(seed)


SPOILT_QUICK, SPOILT_FULL = range(5000, 5012), range(5012, 5250)


def run_spoilt(seed):
    """NaN makes sorting fail its row when compiled (`test_nan_under_xla.py`); nothing else does."""
    jit, fixed = seed % 5 == 0, seed % 5 == 2
    rows = spoilt_examples(seed, 6)
    check(
        program(seed),
        SPECS,
        rows,
        jit=jit,
        fixed=fixed,
        fallbacks=None,
        slack=60,
        rtol=1e-3,
        atol=1e-3,
        picky="compiled",
    )


@pytest.mark.parametrize("seed", SPOILT_QUICK)
def test_random_program_of_nan_and_infinity(seed):
    run_spoilt(seed)


@pytest.mark.full
@pytest.mark.sweep
@pytest.mark.parametrize("seed", SPOILT_FULL)
def test_random_program_of_nan_and_infinity_of_the_full_sweep(seed):
    run_spoilt(seed)
