"""`@model` without TensorFlow: specs are duck-typed, so numpy dtypes stand in."""

from types import SimpleNamespace

import numpy as np
import pytest

from server import model
from server.errors import ModelLoadError
from server.registry import collect_models, models_in


def spec(shape, dtype="float32"):
    return SimpleNamespace(shape=shape, dtype=SimpleNamespace(name=dtype))


def test_the_function_comes_back_unchanged_and_its_spec_is_kept():
    def double(x, y):
        return x

    with collect_models() as found:
        same = model(name="a.b-c_1", inputs={"x": spec((None, 3)), "y": spec((), "string")}, rtol=0.1)(double)
    assert same is double
    (kept,) = found
    assert (kept.name, kept.version, kept.max_batch_size, kept.rtol) == ("a.b-c_1", "1", 64, 0.1)
    assert [(t.name, t.dtype, t.shape) for t in kept.input_tensors] == [
        ("x", "float32", [None, 3]),
        ("y", "string", []),
    ]
    assert models_in({"anything": double}) == [kept]
    with pytest.raises(AttributeError):
        kept.name = "other"


def test_the_default_name_is_the_functions_own():
    with collect_models() as found:

        @model(inputs={"x": spec(())})
        def some_name(x, scale=2.0):
            return x

    assert found[0].name == "some_name"


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"name": "a/b"}, "can't stand in a URL"),
        ({"name": ""}, "can't stand in a URL"),
        ({"name": "-a"}, "can't stand in a URL"),
        ({"version": "1 2"}, "version '1 2' can't stand in a URL"),
        ({"max_batch_size": 0}, "max_batch_size must be 1 to 4096, got 0"),
        ({"max_length": 0}, "max_length must be a whole number of at least 1, got 0"),
        ({"max_batch_size": 2.0}, "must be a whole number"),
        ({"rtol": -1}, "rtol must be at least 0"),
        ({"samples": []}, "samples must be a non-empty list"),
        ({"samples": "text"}, "samples must be a non-empty list"),
        ({"inputs": {}}, "inputs must map each parameter"),
        ({"inputs": {"z": spec(())}}, "input 'z' is not a parameter.*parameter 'x' has no input"),
        ({"inputs": {"x": [1, 2]}}, "expected a tf.TensorSpec"),
        ({"inputs": {"x": spec((), "bfloat16")}}, "dtype bfloat16 can't be served"),
        ({"inputs": {"x": spec((), "complex64")}}, "dtype complex64 can't be served"),
        ({"inputs": {"x": spec(None)}}, "number of dimensions must be known"),
    ],
)
def test_what_does_not_fit_is_refused_with_a_reason(changes, sentence):
    def function(x):
        return x

    with pytest.raises(ModelLoadError, match=sentence):
        model(**{"name": "m", "inputs": {"x": spec(())}, **changes})(function)


def test_two_models_of_one_name_are_refused():
    def first(x):
        return x

    def second(x):
        return x

    model(name="twice", inputs={"x": spec(())})(first)
    with pytest.raises(ModelLoadError, match=r"two models are named 'twice': at .*py:\d+ and at .*py:\d+"):
        model(name="twice", inputs={"x": spec(())})(second)


def test_running_the_same_definition_again_replaces_it():
    def make(factor):
        @model(name="again", inputs={"x": spec(())})
        def function(x):
            return factor * x

        return function

    make(1)
    latest = make(2)
    assert [kept.name for kept in models_in({"f": latest})] == ["again"]


def test_samples_may_be_an_array():
    with collect_models() as found:

        @model(name="with_array", inputs={"x": spec((2,))}, samples=np.zeros((3, 2)))
        def function(x):
            return x

    assert len(found[0].samples) == 3
