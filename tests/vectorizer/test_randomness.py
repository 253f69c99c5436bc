"""Random numbers: what `randomness=` means, and stateless ops bit by bit."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.oracle import check
from vectorizer import VectorizationError, vectorize
from vectorizer.converters import philox

SEED = tf.TensorSpec([2], tf.int32)
X = tf.TensorSpec([3], tf.float32)
R = np.random.default_rng(5)
SEEDS = R.integers(-(2**31), 2**31 - 1, (5, 2)).astype(np.int32)
STATEFUL = {
    "uniform": lambda: tf.random.uniform([200]),
    "uniform_int": lambda: tf.cast(tf.random.uniform([200], 0, 1000, tf.int32), tf.float32),
    "normal": lambda: tf.random.normal([200]),
    "truncated_normal": lambda: tf.random.truncated_normal([200]),
    "gamma": lambda: tf.random.gamma([200], 2.0),
    "poisson": lambda: tf.random.poisson([200], 50.0),
    "categorical": lambda: tf.cast(tf.random.categorical([[0.0] * 9], 200)[0], tf.float32),
    "shuffle": lambda: tf.random.shuffle(tf.range(200.0)),
}
GENERATED = {
    "uniform": lambda g: g.uniform([200]),
    "normal": lambda g: g.normal([200]),
    "truncated_normal": lambda g: g.truncated_normal([200]),
    "integers": lambda g: tf.cast(g.uniform([200], 0, 1000, tf.int32), tf.float32),
    "binomial": lambda g: tf.cast(g.binomial([200], 90.0, 0.5), tf.float32),
}


def ones(rows):
    return np.ones((rows, 3), np.float32)


# -- refused unless asked for -----------------------------------------------------------------------------------------


def test_every_draw_is_named_with_its_line_and_what_to_try():
    def fn(x):
        return x + tf.random.normal([3]), tf.random.shuffle(x)

    with pytest.raises(VectorizationError) as caught:
        vectorize(fn, [X])
    assert [finding.op.type for finding in caught.value.findings] == ["RandomStandardNormal", "RandomShuffle"]
    assert 'randomness="different"' in str(caught.value)
    assert "test_randomness.py:" in str(caught.value)
    assert "stateless" in str(caught.value)


def test_a_draw_in_a_branch_of_a_loop_is_refused():
    def fn(x):
        for _ in tf.range(3):
            if x[0] > 0:
                x += tf.random.normal([3])
        return x

    with pytest.raises(VectorizationError, match="RandomStandardNormal"):
        vectorize(fn, [X])


def test_a_generator_is_refused():
    generator = tf.random.Generator.from_seed(1)
    with pytest.raises(VectorizationError, match="RngReadAndSkip"):
        vectorize(lambda x: x + generator.normal([3]), [X])


def test_another_word_is_refused():
    with pytest.raises(ValueError, match="expected one of error, different, same"):
        vectorize(lambda x: x, [X], randomness="any")


def test_a_draw_nobody_reads_is_none():
    def fn(x):
        tf.random.normal([3])
        return x

    check(fn, [X], [[row] for row in ones(2)])


# -- different, same --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", STATEFUL)
def test_different_rows_draw_independently(name):
    draw = STATEFUL[name]
    v = vectorize(lambda x: draw(), [X], randomness="different", strict=True)
    drawn, again = v(ones(40)).numpy(), v(ones(40)).numpy()
    alone = np.stack([draw().numpy() for _ in range(40)])
    _assert_independent(drawn, alone)
    assert not (drawn == again).all()
    assert v(ones(1)).shape == (1, 200)
    assert v(ones(0)).shape == (0, 200)


def _assert_independent(drawn, alone):
    """Rows differ, are uncorrelated, and have the distribution of what is drawn alone."""
    assert len({row.tobytes() for row in drawn}) == len(drawn)
    np.testing.assert_allclose(drawn.mean(), alone.mean(), atol=0.1 * alone.std())
    np.testing.assert_allclose(drawn.std(), alone.std(), rtol=0.1)
    between = np.corrcoef(drawn)[np.triu_indices(len(drawn), 1)]
    assert np.abs(between).mean() < 0.1


@pytest.mark.parametrize("name", STATEFUL)
def test_same_draws_once(name):
    draw = STATEFUL[name]
    v = vectorize(lambda x: (draw(), x[0] + draw()), [X], randomness="same", strict=True)
    drawn, shifted = v(ones(6))
    assert (drawn == drawn[:1]).numpy().all()
    assert (shifted == shifted[:1]).numpy().all()
    assert not (drawn[0] == v(ones(6))[0][0]).numpy().all()


@pytest.mark.parametrize("name", GENERATED)
def test_a_generator_moves_on(name):
    generator = tf.random.Generator.from_seed(3, alg="philox")
    draw = GENERATED[name]
    v = vectorize(lambda x: draw(generator), [X], randomness="different")
    drawn, again = v(ones(40)).numpy(), v(ones(40)).numpy()
    _assert_independent(drawn, np.stack([draw(generator).numpy() for _ in range(40)]))
    assert not (drawn == again).all(axis=1).any()
    same = vectorize(lambda x: draw(generator), [X], randomness="same")(ones(5)).numpy()
    assert (same == same[:1]).all()
    assert not (same[0] == drawn).all(axis=1).any()


def test_rows_of_a_generator_are_what_it_gives_one_after_the_other():
    batched, alone = (tf.random.Generator.from_seed(3, alg="philox") for _ in range(2))
    drawn = vectorize(lambda x: batched.uniform([7]), [X], randomness="different", strict=True)(ones(5))
    for row in drawn:
        np.testing.assert_array_equal(row, alone.uniform([7]))
    np.testing.assert_array_equal(batched.state, alone.state)


@pytest.mark.parametrize("words", ["different", "same"])
def test_sizes_that_differ(words):
    v = vectorize(
        lambda x: tf.random.normal([tf.shape(x)[0], 2]), [tf.TensorSpec([None])], randomness=words, strict=True
    )
    drawn = v(tf.ragged.constant([[1.0], [1.0, 2.0, 3.0], []]))
    assert [row.shape[0] for row in drawn] == [1, 3, 0]
    assert ((drawn[0] == drawn[1][:1]).numpy().all()) == (words == "same")


@pytest.mark.parametrize("words", ["different", "same"])
def test_shuffled_rows_of_different_length_keep_their_elements(words):
    v = vectorize(tf.random.shuffle, [tf.TensorSpec([None, 2])], randomness=words, strict=True)
    rows = [R.normal(size=(n, 2)).astype("f") for n in (0, 1, 4, 9)]
    for row, shuffled in zip(rows, v.map([[row] for row in rows]), strict=True):
        np.testing.assert_array_equal(np.sort(row, axis=0), np.sort(shuffled, axis=0))
        assert {tuple(item) for item in row} == {tuple(item) for item in shuffled.numpy()}


def test_same_moves_all_rows_alike():
    v = vectorize(tf.random.shuffle, [tf.TensorSpec([50])], randomness="same", strict=True)
    shuffled = v(np.tile(np.arange(50, dtype=np.float32), (4, 1))).numpy()
    assert (shuffled == shuffled[:1]).all()
    assert sorted(shuffled[0]) == list(range(50))


def test_same_is_refused_where_the_distributions_differ():
    with pytest.raises(VectorizationError, match="the distribution differs between"):
        vectorize(lambda x: tf.random.gamma([], tf.abs(x)), [X], randomness="same")


def test_parameters_of_each_row():
    v = vectorize(lambda x: tf.random.poisson([500], x), [X], randomness="different", strict=True)
    rates = np.array([[1, 10, 100], [5, 50, 500]], np.float32)
    drawn = v(rates).numpy()
    assert drawn.shape == (2, 500, 3)
    np.testing.assert_allclose(drawn.mean(axis=1), rates, rtol=0.3)


def test_ranges_of_each_row_are_looped_over():
    v = vectorize(
        lambda n: tf.random.uniform([50], 0, n, tf.int32), [tf.TensorSpec([], tf.int32)], randomness="different"
    )
    drawn = v(np.array([1, 5, 1000], np.int32)).numpy()
    assert len(v.report.fallbacks) == 1
    assert (drawn[0] == 0).all()
    assert drawn[1].max() < 5 <= drawn[2].max()


def test_each_step_of_a_loop_draws_again():
    def fn(n):
        total = tf.zeros([4])
        for _ in tf.range(n):
            total += tf.random.uniform([4], 1, 2)
        return total

    for words in ("different", "same"):
        v = vectorize(fn, [tf.TensorSpec([], tf.int32)], randomness=words)
        drawn = v(np.array([0, 1, 3, 3], np.int32)).numpy()
        assert (drawn[0] == 0).all()
        assert (drawn[1] < 2).all()
        assert ((drawn[2] > 3) & (drawn[2] < 6)).all()
        assert (drawn[2] == drawn[3]).all() == (words == "same")
        assert len(np.unique(drawn[2])) == 4


def test_compiled_programs_draw_anew():
    v = vectorize(lambda x: x + tf.random.normal([3]), [X], randomness="different", strict=True)
    program = v.compile(4, [], jit=True)
    (first,), _, _ = program([ones(4)], [], 4)
    (second,), _, _ = program([ones(4)], [], 4)
    assert len(np.unique(np.stack([first, second]))) == 24


# -- stateless --------------------------------------------------------------------------------------------------------


def test_a_seed_for_each_row():
    def fn(seed):
        return (
            tf.random.stateless_uniform([2, 3], seed),
            tf.random.stateless_uniform([5], seed, dtype=tf.float64),
            tf.random.stateless_uniform([3], seed, -4, 9, tf.int32),
            tf.random.stateless_uniform([3], seed, -4, 2**40, tf.int64),
            tf.random.stateless_uniform([3], seed, None, None, tf.int32),
            tf.random.stateless_normal([3], seed),
            tf.random.stateless_gamma([2], seed, [1.0, 2.0]),
        )

    v = vectorize(fn, [SEED])
    assert [entry.op_type for entry in v.report.fallbacks] == ["StatelessRandomNormalV2", "StatelessRandomGammaV3"]
    assert all("to the last bit" in entry.reason for entry in v.report.fallbacks)
    alone = [fn(seed) for seed in SEEDS]
    for rows in (0, 1, 2, 5):
        results = v(SEEDS[:rows])
        assert all(result.shape[0] == rows for result in results)
        for row in range(rows):
            for got, wanted in zip(results, alone[row], strict=True):
                np.testing.assert_array_equal(got[row], wanted)


def test_keys_derived_in_the_function():
    def fn(seed, n):
        inner = tf.random.fold_in(seed, n)
        first, second = tf.unstack(tf.random.split(inner, 2))
        return tf.random.stateless_uniform([3], first), tf.random.stateless_uniform([3], second)

    v = vectorize(fn, [SEED, tf.TensorSpec([], tf.int32)], strict=True)
    results = v(SEEDS, np.arange(5, dtype=np.int32))
    for row in range(5):
        for got, wanted in zip(results, fn(SEEDS[row], row), strict=True):
            np.testing.assert_array_equal(got[row], wanted)


def test_one_seed_runs_once():
    def fn(x):
        shuffled = tf.random.experimental.stateless_shuffle(x, [3, 4])
        return x + tf.random.stateless_normal([3], [1, 2]), shuffled

    v = check(fn, [X], [[row] for row in R.normal(size=(3, 3)).astype("f")])
    draw = next(entry for entry in v.report.entries if entry.op_type.startswith("StatelessRandomNormal"))
    assert draw.strategy == "once for all rows"


def test_an_empty_range_fails_its_row_only():
    def fn(seed, high):
        return tf.random.stateless_uniform([3], seed, 0, high, tf.int32)

    check(fn, [SEED, tf.TensorSpec([], tf.int32)], [[SEEDS[0], 5], [SEEDS[1], 0], [SEEDS[2], -3], [SEEDS[3], 1]])


def test_draws_in_a_loop_with_a_carried_seed():
    def fn(seed, n):
        total = tf.zeros([2])
        for k in tf.range(n):
            total += tf.random.stateless_uniform([2], seed + k)
        return total

    examples = [[SEEDS[row], n] for row, n in enumerate((0, 3, 1, 5))]
    check(fn, [SEED, tf.TensorSpec([], tf.int32)], examples)


def test_counters_carry_into_all_their_words():
    counter = tf.constant([[2**64 - 2, 2**64 - 1], [2**32 - 1, 7]], tf.uint64)
    keys = tf.constant([[5], [2**63 + 9]], tf.uint64)
    drawn = philox.full_int(tf.uint32, keys, counter, 24)
    for row in range(2):
        wanted = tf.raw_ops.StatelessRandomUniformFullIntV2(
            shape=[24], key=keys[row], counter=counter[row], alg=1, dtype=tf.uint32
        )
        np.testing.assert_array_equal(drawn[row], wanted)
