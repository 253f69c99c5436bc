"""Every workload's ways of computing give the answers of plain numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from loadtest.workloads import NAMES, problem, workload
from loadtest.workloads.problem import Problem, Workload
from server.engines.assembly import Assembly
from vectorizer import vectorize

COUNT = 6


def examples_and_answers(which: Problem) -> tuple[list[Any], list[Any]]:
    examples = which.examples(np.random.default_rng(1), COUNT)
    return examples, [which.reference(*example) for example in examples]


def padded_batch(which: Workload, examples: list[Any]) -> tuple[Assembly, list[Any], list[Any]]:
    assembly = Assembly(which.problem.inputs, which.problem.outputs, tuple(which.problem.output_lengths))
    batch = assembly.stack(examples, len(examples), None)
    return assembly, batch.inputs, batch.lengths


def split(which: Workload, assembly: Assembly, outputs: Any, lengths: list[Any]) -> list[Any]:
    dims = which.problem.variable_dims
    own = [lengths[dims.index(like)] for like in which.problem.output_lengths.values()]
    return assembly.split([np.asarray(output) for output in outputs], own, COUNT)


@pytest.mark.parametrize("name", NAMES)
def test_examples_are_what_the_problem_says_they_are(name: str) -> None:
    which = problem(name)
    examples, answers = examples_and_answers(which)
    again = which.examples(np.random.default_rng(1), COUNT)
    for example, same, answer in zip(examples, again, answers, strict=True):
        for tensors, arrays in ((which.inputs, example), (which.outputs, answer)):
            assert [array.dtype.name for array in arrays] == [tensor.dtype for tensor in tensors]
            for tensor, array in zip(tensors, arrays, strict=True):
                sizes = zip(tensor.shape, array.shape, strict=True)
                assert all(size in (None, actual) for size, actual in sizes), tensor.name
        assert all(np.array_equal(a, b) for a, b in zip(example, same, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_the_specs_are_those_of_the_problem(name: str) -> None:
    which = workload(name)
    found = [(key, spec.dtype.name, spec.shape.as_list()) for key, spec in which.specs.items()]
    assert found == [(tensor.name, tensor.dtype, tensor.shape) for tensor in which.problem.inputs]


@pytest.mark.parametrize("name", NAMES)
def test_the_function_itself_and_vectorized_answer_as_numpy_does(name: str) -> None:
    which = workload(name)
    examples, expected = examples_and_answers(which.problem)
    vectorized = vectorize(which.function, which.specs, strict=True, **which.options)
    alone = [_flat(vectorized.per_example(**dict(zip(which.specs, example, strict=True)))) for example in examples]
    assert which.problem.difference(alone, expected) is None
    assert which.problem.difference([_flat(one) for one in vectorized.map(examples)], expected) is None


@pytest.mark.parametrize("name", [name for name in NAMES if workload(name).hand_batched])
def test_batched_by_hand_it_answers_as_numpy_does(name: str) -> None:
    which = workload(name)
    examples, expected = examples_and_answers(which.problem)
    assembly, inputs, lengths = padded_batch(which, examples)
    outputs = tf.function(which.hand_batched)(inputs, lengths)
    assert which.problem.difference(split(which, assembly, outputs, lengths), expected) is None


@pytest.mark.parametrize("name", [name for name in NAMES if workload(name).padded])
def test_padded_it_answers_as_numpy_does(name: str) -> None:
    which = workload(name)
    examples, expected = examples_and_answers(which.problem)
    assembly, inputs, lengths = padded_batch(which, examples)
    function = tf.function(which.padded)
    rows = [function([a[row] for a in inputs], [n[row] for n in lengths]) for row in range(COUNT)]
    outputs = [np.stack(column) for column in zip(*rows, strict=True)]
    assert which.problem.difference(split(which, assembly, outputs, lengths), expected) is None


def test_a_wrong_answer_is_seen() -> None:
    which = problem("tagger")
    _, expected = examples_and_answers(which)
    off = [*expected[:3], (expected[3][0] + 1e-3,), *expected[4:]]
    assert "row 3: 'output' is off by 0.001" in str(which.difference(off, expected))
    cut = [(expected[0][0][:-1],), *expected[1:]]
    assert "row 0: 'output' has shape" in str(which.difference(cut, expected))
    assert which.difference(expected[1:], expected) == "5 answers to 6 examples"


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(KeyError, match="choose one of mlp, lstm"):
        problem("rnn")


def _flat(result: Any) -> tuple[Any, ...]:
    return tuple(np.asarray(tensor) for tensor in tf.nest.flatten(result))
