"""Lines for random, printing and summing ops. Draws from seeds are compared bit by bit, others by their shape."""

import numpy as np
import tensorflow as tf

from tests.support.op_lines.line import Line, f, i, raw, usual

DIFFERENT = {"randomness": "different"}
PHILOX = 1
SEED_DTYPES = (tf.int32, tf.int64)
_generator = tf.random.Generator.from_seed(7, alg="philox")
_total = tf.Variable(tf.zeros([2]), name="total")


def seeds(generator, spec, shape):
    if spec.dtype.is_integer and spec.shape.as_list() == [2]:
        return generator.integers(-(2**31), 2**31 - 1, shape).astype(spec.dtype.as_numpy_dtype)
    return usual(generator, spec, shape)


def bits(value):
    """Floats as integers, which are compared exactly."""
    same = {2: tf.int16, 4: tf.int32, 8: tf.int64}[value.dtype.size]
    return tf.bitcast(value, same)


def shape_of(value):
    """Drawn numbers without what was drawn: true everywhere."""
    return tf.equal(value, value)


def sized(x, *rest):
    return tf.stack([tf.shape(x)[0], *rest])


def key(seed):
    return tf.raw_ops.StatelessRandomGetKeyCounter(seed=seed)


def uniform_of_seed():
    for dtype in (tf.float16, tf.bfloat16, tf.float32, tf.float64):
        yield Line(
            "StatelessRandomUniformV2 Bitcast",
            lambda seed, dtype=dtype: [
                bits(raw("StatelessRandomUniformV2", shape, *key(seed), PHILOX, dtype=dtype))
                for shape in ([], [1], [2, 3], [9])
            ],
            (i(2),),
            draw=seeds,
            name=f"uniform-{dtype.name}",
        )
        yield Line(
            "StatelessRandomUniform",
            lambda seed, dtype=dtype: bits(raw("StatelessRandomUniform", [5], seed, dtype=dtype)),
            (i(2, dtype=tf.int64),),
            draw=seeds,
            name=f"uniform-v1-{dtype.name}",
        )
    for name, shape in (("front", (4,)), ("front2", (2, 3))):
        yield Line(
            "StatelessRandomUniformV2",
            lambda seed, x, shape=shape: bits(tf.random.stateless_uniform(sized(x, *shape), seed)),
            (i(2), f(None)),
            draw=seeds,
            name=f"uniform-{name}",
        )
    yield Line(
        "StatelessRandomUniformV2",
        lambda seed, x, y: bits(tf.random.stateless_uniform(tf.stack([2, tf.shape(x)[0], tf.shape(y)[0]]), seed)),
        (i(2), f(None), f(None)),
        draw=seeds,
        name="uniform-behind",
    )


def integers_of_seed():
    for dtype in (tf.int32, tf.int64, tf.uint32, tf.uint64):
        yield Line(
            "StatelessRandomUniformFullIntV2 StatelessRandomUniformFullInt",
            lambda seed, dtype=dtype: (
                raw("StatelessRandomUniformFullIntV2", [2, 3], *key(seed), PHILOX, dtype=dtype),
                raw("StatelessRandomUniformFullInt", [5], seed, dtype=dtype),
            ),
            (i(2),),
            draw=seeds,
            name=f"full-{dtype.name}",
        )
    for dtype in (tf.int32, tf.int64):
        yield Line(
            "StatelessRandomUniformIntV2 StatelessRandomUniformInt",
            lambda seed, low, high: (
                tf.random.stateless_uniform([2, 3], seed, low, high, dtype=low.dtype),
                raw("StatelessRandomUniformInt", [5], seed, low, high),
                tf.random.stateless_uniform([3], seed, low.dtype.min, low.dtype.max, dtype=low.dtype),
            ),
            (i(2), i(dtype=dtype), i(dtype=dtype)),
            draw=seeds,
            name=f"range-{dtype.name}",
        )
    yield Line(
        "StatelessRandomUniformFullIntV2 StatelessRandomUniformIntV2",
        lambda seed, x: (
            tf.random.stateless_uniform(sized(x, 2), seed, None, None, tf.int32),
            tf.random.stateless_uniform(tf.stack([3, tf.shape(x)[0]]), seed, -5, 9, tf.int64),
        ),
        (i(2), f(None)),
        draw=seeds,
        name="integers-ragged",
    )


def keys():
    for dtype in SEED_DTYPES:
        yield Line(
            "StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg StatelessRandomGetAlg",
            lambda seed: (*key(seed), *tf.raw_ops.StatelessRandomGetKeyCounterAlg(seed=seed), algorithm(seed)),
            (i(2, dtype=dtype),),
            draw=seeds,
        )


def algorithm(seed):
    return raw("StatelessRandomUniformV2", [2], *key(seed), tf.raw_ops.StatelessRandomGetAlg(), dtype=tf.float32)


def looped_by_seed():
    draws = {
        "StatelessRandomNormalV2": lambda seed, x: tf.random.stateless_normal([3], seed),
        "StatelessTruncatedNormalV2": lambda seed, x: tf.random.stateless_truncated_normal([3], seed),
        "StatelessRandomNormal": lambda seed, x: raw("StatelessRandomNormal", [3], seed, dtype=tf.float32),
        "StatelessTruncatedNormal": lambda seed, x: raw("StatelessTruncatedNormal", [3], seed, dtype=tf.float64),
        "StatelessMultinomial": lambda seed, x: tf.random.stateless_categorical(x[None], 4, seed),
        "StatelessRandomBinomial": lambda seed, x: tf.random.stateless_binomial([3], seed, 5.0, tf.sigmoid(x[0])),
        "StatelessRandomGammaV3": lambda seed, x: tf.random.stateless_gamma([3, 2], seed, tf.abs(x) + 1),
        "StatelessRandomGammaV2": lambda seed, x: raw("StatelessRandomGammaV2", [3, 2], seed, tf.abs(x) + 1),
        "StatelessRandomPoisson": lambda seed, x: tf.random.stateless_poisson([3, 2], seed, tf.abs(x) + 1),
        "StatelessParameterizedTruncatedNormal": lambda seed, x: tf.random.stateless_parameterized_truncated_normal(
            [2], seed, x, 1.0, x - 1, x + 1
        ),
        "StatelessShuffle": lambda seed, x: raw("StatelessShuffle", tf.concat([x, x], 0), *key(seed), PHILOX),
    }
    for name, fn in draws.items():
        yield Line(name, fn, (i(2), f(2)), draw=seeds, fallbacks=None, rtol=1e-7, name=name)
    for name in ("stateless_normal", "stateless_truncated_normal"):
        yield Line(
            "StatelessRandomNormalV2" if name == "stateless_normal" else "StatelessTruncatedNormalV2",
            lambda x, y, name=name: (
                bits(getattr(tf.random, name)(sized(x, 2), [3, 4])),
                bits(getattr(tf.random, name)(tf.stack([2, tf.shape(x)[0], tf.shape(y)[0]]), [5, 6])),
            ),
            (f(None), f(None)),
            name=f"{name}-ragged",
        )
    yield Line(
        "RandomIndexShuffle",
        lambda index, seed: raw("RandomIndexShuffle", index, seed, 9),
        (i(), i(3, dtype=tf.uint32)),
        fallbacks=None,
    )


def stateful():
    resource = _generator.state.handle
    philox = tf.constant(PHILOX, tf.int64)
    draws = {
        "RandomUniform RandomStandardNormal TruncatedNormal RandomUniformInt": lambda x: (
            *(raw(n, sized(x, 2), dtype=tf.float32) for n in ("RandomUniform", "RandomStandardNormal")),
            raw("TruncatedNormal", [2, 3], dtype=tf.float64),
            raw("RandomUniformInt", [3], 1, 9),
        ),
        "RandomShuffle": lambda x: tf.sort(tf.random.shuffle(x)),
        "RandomGamma RandomPoissonV2": lambda x: (
            raw("RandomGamma", [2], tf.abs(x) + 1),
            raw("RandomPoissonV2", [2, 3], tf.abs(x) + 1),
            raw("RandomGamma", [2], [1.0, 2.0]),
        ),
        "RngReadAndSkip RngSkip": lambda x: (
            _generator.uniform([3]),
            _generator.uniform(sized(x)),
            _skipped(resource, philox),
        ),
        "StatefulUniform StatefulStandardNormalV2 StatefulTruncatedNormal StatefulUniformFullInt StatefulUniformInt": (
            lambda x: (
                *(
                    raw(n, resource, philox, tf.cast(sized(x), tf.int64), dtype=tf.float32)
                    for n in ("StatefulUniform", "StatefulStandardNormalV2", "StatefulTruncatedNormal")
                ),
                raw("StatefulUniformFullInt", resource, philox, [2], dtype=tf.int64),
                raw("StatefulUniformInt", resource, philox, [2], 1, 9),
            )
        ),
    }
    for ops, fn in draws.items():
        yield Line(
            ops,
            lambda x, fn=fn: tf.nest.map_structure(shape_of, fn(x)),
            (f(None),),
            options=DIFFERENT,
            fallbacks=None,
            name=ops.split()[0],
        )
    yield Line(
        "Multinomial",
        lambda x: shape_of(tf.random.categorical(x, 4)),
        (f(2, 3),),
        options=DIFFERENT,
        name="categorical",
    )


def _skipped(resource, algorithm):
    tf.raw_ops.RngSkip(resource=resource, algorithm=algorithm, delta=tf.constant(3, tf.int64))
    return algorithm


def stateful_of_each_row():
    resource, philox = _generator.state.handle, tf.constant(PHILOX, tf.int64)
    classes = {"num_true": 1, "num_sampled": 2, "unique": True}
    draws = {
        "ParameterizedTruncatedNormal": lambda x: raw("ParameterizedTruncatedNormal", [2], x[0], 1.0, -9.0, 9.0),
        "StatefulRandomBinomial": lambda x: raw("StatefulRandomBinomial", resource, philox, [2], 5.0, 0.5),
        "SampleDistortedBoundingBoxV2 SampleDistortedBoundingBox": lambda x: (
            *raw("SampleDistortedBoundingBoxV2", [9, 9, 3], [[[0.0, 0.0, 1.0, 1.0]]], 0.1),
            *raw("SampleDistortedBoundingBox", [9, 9, 3], [[[0.0, 0.0, 1.0, 1.0]]]),
        ),
        "NonDeterministicInts": lambda x: raw("NonDeterministicInts", [3]),
        "UniformCandidateSampler LogUniformCandidateSampler LearnedUnigramCandidateSampler": lambda x: [
            part
            for name in ("Uniform", "LogUniform", "LearnedUnigram")
            for part in raw(f"{name}CandidateSampler", _true_class(x), **classes, range_max=9)
        ],
        "AllCandidateSampler ThreadUnsafeUnigramCandidateSampler FixedUnigramCandidateSampler": lambda x: [
            *raw("AllCandidateSampler", _true_class(x), **classes),
            *raw("ThreadUnsafeUnigramCandidateSampler", _true_class(x), **classes, range_max=9),
            *raw("FixedUnigramCandidateSampler", _true_class(x), **classes, range_max=3, unigrams=[1.0, 2.0, 3.0]),
        ],
    }
    for ops, fn in draws.items():
        yield Line(
            ops,
            lambda x, fn=fn: tf.nest.map_structure(shape_of, fn(x)),
            (f(2),),
            options=DIFFERENT,
            fallbacks=None,
            name=ops.split()[0],
        )


def _true_class(x):
    return tf.cast(tf.abs(x[:1, None]) > 1, tf.int64)


def effects():
    yield Line(
        "StringFormat",
        lambda x, y: tf.stack([tf.strings.format("{} and {}", (x, y)), tf.strings.format("{}", y, summarize=1)]),
        (f(), f(None)),
    )
    yield Line("PrintV2 StringFormat", _printed, (f(2),), name="print")
    yield Line("Print", lambda x: raw("Print", x, [x], message="printed:"), (f(2),), name="print1")
    yield Line(
        "AssignAddVariableOp AssignSubVariableOp",
        _summed,
        (f(2),),
        options={"sum_assign_add": True},
        name="sum",
    )


def _printed(x):
    tf.print("row", x)
    return x


def _summed(x):
    _total.assign_add(x)
    _total.assign_sub(tf.constant(np.ones(2, np.float32)))
    return x


def random_lines():
    return [
        *uniform_of_seed(),
        *integers_of_seed(),
        *keys(),
        *looped_by_seed(),
        *stateful(),
        *stateful_of_each_row(),
        *effects(),
    ]
