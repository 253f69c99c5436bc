"""The listops example: what its per-example function answers, how often it is right, what it refuses."""

import numpy as np
import pytest
import tensorflow as tf

SIGNATURE = [tf.TensorSpec([None], tf.int32), tf.TensorSpec([None, 4], tf.int32)]
NONE = [-1, -1, -1, -1]


@pytest.fixture
def listops(load_example):
    return tf.function(load_example("listops", "model").listops, input_signature=SIGNATURE)


@pytest.fixture
def expression(load_example):
    return load_example("listops", "expression")


def test_evaluates_every_digit_and_a_tree(listops, expression) -> None:
    for text in [*map(str, range(10)), "[MAX 2 9 [MIN 4 7] 0]", "[MIN 5 [SM 8 7]]"]:
        tree = expression.parse(text)
        outputs = listops(*map(tf.constant, expression.to_arrays(tree)))
        assert int(outputs["value"]) == expression.evaluate(tree), text
        assert outputs["value"].dtype == tf.int32
        assert outputs["probabilities"].shape == [10]
        assert float(tf.reduce_sum(outputs["probabilities"])) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("nesting", [1, 2, 3, 4])
def test_held_out_accuracy(load_example, listops, expression, nesting: int) -> None:
    trees = load_example("listops", "held_out").held_out_expressions(200, nesting)
    predicted = [int(listops(*map(tf.constant, expression.to_arrays(tree)))["value"]) for tree in trees]
    assert np.mean(np.array(predicted) == [expression.evaluate(tree) for tree in trees]) >= 0.9


@pytest.mark.parametrize(
    ("symbols", "children", "message"),
    [
        ([], np.zeros([0, 4]), "at least one node"),
        ([1, 2], [NONE], "one row a node"),
        ([1], [[-2, -1, -1, -1]], "-1 for none"),
        ([1], [[0, -1, -1, -1]], "come before its parent"),
        ([1, 2, 10], [NONE, NONE, [0, 3, -1, -1]], "come before its parent"),
        ([14], [NONE], r"indices = 14 is not in \[0, 14\)"),
        ([-1], [NONE], r"indices = -1 is not in \[0, 14\)"),
    ],
)
def test_malformed_trees_raise(listops, symbols, children, message: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        listops(tf.constant(symbols, tf.int32), tf.constant(children, tf.int32))


def test_samples_are_sound_trees_of_many_sizes(load_example) -> None:
    model = load_example("listops", "model")
    generator = np.random.default_rng(0)
    sizes = set()
    for _ in range(200):
        sample = model.sample_tree(generator)
        symbols, children = sample["symbols"], sample["children"]
        sizes.add(len(symbols))
        assert symbols.dtype == children.dtype == np.int32
        assert children.shape == (len(symbols), 4)
        assert (children < np.arange(len(symbols))[:, None]).all()
        assert (((children >= 0).sum(axis=1) >= 2) == (symbols >= 10)).all()
    assert min(sizes) == 1
    assert max(sizes) >= 20


def test_training_evaluates_as_the_expressions_do_and_meets_none_held_out(load_example, expression) -> None:
    train = load_example("listops", "train")
    held_out = load_example("listops", "held_out")
    nodes: list = list(range(10))
    for operators, children, values in train.random_levels(np.random.default_rng(0)):
        level = [
            (list(expression.OPERATORS)[operator], tuple(nodes[child] for child in row if child >= 0))
            for operator, row in zip(operators, children, strict=True)
        ]
        assert [expression.evaluate(node) for node in level[:50]] == values[:50].tolist()
        assert len(level) == train.LISTS_PER_LEVEL
        assert not any(held_out.is_held_out(held_out.fingerprint(node)) for node in level)
        nodes.extend(level)
    assert {expression.depth(node) for node in nodes[-50:]} == {train.TRAINED_DEPTH}


def test_held_out_expressions_are_one_in_ten_whatever_the_order(load_example, expression) -> None:
    held_out = load_example("listops", "held_out")
    generator = np.random.default_rng(0)
    trees = [expression.random_expression(generator, 2) for _ in range(2000)]
    share = np.mean([held_out.is_held_out(held_out.fingerprint(tree)) for tree in trees])
    assert share == pytest.approx(0.1, abs=0.02)
    one, other = (held_out.fingerprint(expression.parse(f"[SM {x}]")) for x in ("1 [MAX 2 3]", "[MAX 3 2] 1"))
    assert one == other
