"""Engines for functions made up in a test, run on examples and held against the function itself."""

import itertools

import numpy as np
import tensorflow as tf

from server.engines import build_engine
from server.engines.batch_result import RowError, as_array
from server.engines.settings import EngineSettings
from server.registry import collect_models, model
from vectorizer import trace

NUMBER = itertools.count()


def engine_of(kind, function, **inputs):
    """An engine of that kind for a function of these inputs."""
    with collect_models() as registered:
        model(f"program{next(NUMBER)}", inputs=inputs)(function)
    return build_engine(kind, registered[0], EngineSettings(engine=kind))


def answers(engine, examples):
    """The engine's result, each answer of which has been found to be the function's."""
    rows = [
        tuple(as_array(value, tensor.dtype) for value, tensor in zip(example, engine.inputs, strict=True))
        for example in examples
    ]
    result = engine.run(rows, engine.buckets()[-1].bucket)
    for row, got in zip(rows, result.rows, strict=True):
        try:
            wanted = engine.per_example(row)
        except tf.errors.OpError:
            assert isinstance(got, RowError)
            continue
        for one, other in zip(got, wanted, strict=True):
            assert one.shape == other.shape
            if one.dtype.kind == "f":
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
            else:
                np.testing.assert_array_equal(one, other)
    return result


def loop_of(function, *specs):
    """The function's first loop."""
    return next(op for op in trace(function, list(specs)).ops if op.type == "While")
