"""NaN and infinities in every op that compiles: the batch answers as the function does, or the op is listed.

The lines of the table of ops get operands full of NaN, infinities and zeros; plain, with fixed shapes, and under XLA.
"""

import random

import numpy as np
import pytest
import tensorflow as tf

from tests.support.op_lines import LINES
from tests.support.op_lines.line import Line, raw, usual
from tests.support.oracle import check
from vectorizer import Vectorized, vectorize
from vectorizer.xla_kernels import DOMAINS

ROWS = 3
UNDEFINED = {
    "Cast": "TensorFlow documents NaN and numbers out of range as undefined when cast to an integer",
    "MaxPool3D": "TensorFlow's kernel answers by the number of channels",
    "MaxPool3DGradGrad": "by the maxima of MaxPool3D",
    "LowerBound": "searching among numbers that NaN leaves unsorted",
    "NonMaxSuppressionV3": "which of two boxes without finite extent overlaps the other",
}
RUN_ALONE = set(
    """TopKV2 InvertPermutation MatrixInverse Lu MatrixSolve MatrixSquareRoot MatrixSolveLs
    AdjustHue AdjustSaturation AdjustContrastv2""".split()
)
"""Their rows with NaN or infinities may fail, and are then answered by the function itself."""


def defined(line: Line) -> bool:
    applies = line.fixed and line.fallbacks == 0
    return applies and line.ops.split()[0] not in UNDEFINED and any(spec.dtype.is_floating for spec in line.specs)


def picky(v: Vectorized) -> str:
    ops = {op.type for op in v.program.walk()}
    return "always" if ops & RUN_ALONE else "compiled" if ops & set(DOMAINS) else "never"


def kinds() -> list[Line]:
    """One line of each group of ops, dtypes and ranks."""
    found: dict[tuple, Line] = {}
    for line in filter(defined, LINES):
        what = tuple((spec.dtype.name, spec.shape.rank, None in spec.shape.as_list()) for spec in line.specs)
        found.setdefault((line.ops, line.name, what), line)
    return list(found.values())


def spoilt(generator, line, spec, size):
    shape = [size if n is None else n for n in spec.shape.as_list()]
    try:
        values = (line.draw or usual)(generator, spec, shape)
    except (TypeError, ValueError):
        values = usual(generator, spec, shape)
    if not spec.dtype.is_floating:
        return values
    specials = [np.nan, np.nan, 0.0, -0.0]
    if spec.dtype != tf.float64:  # TensorFlow's own erf of infinity is NaN in double precision
        specials += [np.inf, -np.inf]
    return np.where(generator.random(shape) < 0.25, generator.choice(specials, size=shape), values)


def run(number):
    line, generator = CASES[number], np.random.default_rng(number)
    rows = []
    for _ in range(ROWS):
        size = int(generator.integers(max(line.least, 1), 5))
        rows.append([spoilt(generator, line, spec, size) for spec in line.specs])
    with np.errstate(all="ignore"):
        v = vectorize(line.fn, line.specs, **line.options)
        check(v, None, rows, rtol=1e-3, atol=1e-4, picky=picky(v))


CASES = kinds()
NAMES = [f"{number}-{line.name or line.ops.split()[0]}" for number, line in enumerate(CASES)]
SAMPLE = random.Random(1).sample(range(len(CASES)), 30)


@pytest.mark.parametrize("number", SAMPLE, ids=lambda number: NAMES[number])
def test_sample(number):
    run(number)


@pytest.mark.full
@pytest.mark.sweep
@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda number: NAMES[number])
def test_all(number):
    run(number)


SPECIALS = [np.nan, np.inf, -np.inf, 0.0, -1.13, 1.5, 7.0]


@pytest.mark.parametrize(
    "op", "Maximum Minimum ReciprocalGrad ReluGrad Relu6Grad EluGrad SeluGrad Greater LessEqual Equal".split()
)
def test_pairs_of_specials(op):
    pairs = [(np.float32(left), np.float32(right)) for left in SPECIALS for right in SPECIALS]
    check(lambda x, y: raw(op, x, y), [tf.TensorSpec([])] * 2, pairs)


@pytest.mark.parametrize("op", ["Relu", "Relu6", "Elu", "Selu", "Sigmoid", "Softplus", "LeakyRelu"])
def test_activations_of_specials(op):
    check(lambda x: raw(op, x), [tf.TensorSpec([])], [(np.float32(item),) for item in SPECIALS])


@pytest.mark.parametrize("shape", [[5], [None]])
def test_extremes_of_a_vector_with_nan(shape):
    def extremes(x):
        bucket = tf.raw_ops.Bucketize(input=x, boundaries=[0.0, 2.0])
        clipped = tf.raw_ops.ClipByValue(t=x, clip_value_min=-1.0, clip_value_max=1.0)
        return (
            tf.reduce_max(x),
            tf.reduce_min(x),
            tf.argmax(x),
            tf.argmin(x),
            bucket,
            clipped,
            tf.clip_by_value(x, 0, 2),
        )

    rows = [[1, np.nan, 3, 0, 2], [np.nan] * 5, [np.nan, -np.inf, -np.inf, 2, 2], [3, 1, 2, np.inf, np.nan]]
    check(extremes, [tf.TensorSpec(shape)], [(np.float32(row),) for row in rows])


def test_windows_with_nan():
    row = np.array([1, np.nan, np.nan, -np.inf, -np.inf, np.inf, 3], "f")[:, None]
    check(lambda x: tf.nn.max_pool1d(x[None], 2, 1, "VALID"), [tf.TensorSpec([7, 1])], [(row,), (row[::-1],)])


def test_place_of_nan_among_sorted_numbers():
    numbers = tf.constant([1.0, 2.0, 3.0, np.inf])
    sides = lambda x: (tf.searchsorted(numbers, x, "left"), tf.searchsorted(numbers, x, "right"))
    check(sides, [tf.TensorSpec([4])], [(np.array([np.nan, -np.inf, np.inf, 2], "f"),)])


@pytest.mark.parametrize("jit", [False, True])
def test_a_branch_on_nan_takes_the_other_side(jit):
    """TensorFlow's graph optimizer makes `x <= 0` of `not x > 0`: a row with NaN would take no branch at all."""
    v = vectorize(lambda x: tf.cond(x > 0, lambda: x * 2, lambda: tf.constant(-1.0)), [tf.TensorSpec([])])
    outputs, _, ok = v.compile(3, [], jit=jit)([np.array([np.nan, 1, -1], "f")], [], 3)
    assert outputs[0].numpy().tolist() == [-1, 2, -1]
    assert ok.numpy().all()


@pytest.mark.parametrize("jit", [False, True])
def test_not_of_a_comparison_with_nan(jit):
    fn = lambda x: tf.logical_not(x > 0)
    x = np.array([np.nan, 1, -1], "f")
    outputs, _, _ = vectorize(fn, [tf.TensorSpec([])]).compile(3, [], jit=jit)([x], [], 3)
    assert outputs[0].numpy().tolist() == [bool(fn(tf.constant(item))) for item in x] == [True, False, True]


def test_sorted_numbers_with_nan_are_the_functions_own():
    """TensorFlow's order of them is an accident: compiled or ragged, the row fails and the function answers."""
    v = vectorize(lambda x: tf.sort(x), [tf.TensorSpec([None])])
    rows = [np.float32(row) for row in ([3, np.nan, 1, 0], [2, 1], [1, np.nan, -np.inf, 7, np.nan, 2])]
    _, _, ok = v.compile()([np.full([1, 2], np.nan, "f")], [np.int32([0])], 1)
    assert ok.numpy().tolist() == [True]
    for row, answer in zip(rows, v.map([(row,) for row in rows]), strict=True):
        np.testing.assert_array_equal(answer, v.per_example(row))


def test_complex_infinity_with_nan():
    check(lambda x, y: tf.abs(tf.complex(x, y)), [tf.TensorSpec([])] * 2, [(a, b) for a in SPECIALS for b in SPECIALS])
