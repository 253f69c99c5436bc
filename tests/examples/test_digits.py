"""The digits example: what its per-example function answers, and how often it is right."""

import numpy as np
import pytest
import tensorflow as tf


@pytest.fixture
def held_out(load_example):
    _, split = load_example("digits", "dataset").train_and_held_out()
    return split


@pytest.fixture
def digits(load_example):
    return tf.function(load_example("digits", "model").digits)


def test_outputs_have_the_promised_types(load_example, digits) -> None:
    sample = load_example("digits", "model").sample_image(np.random.default_rng(0))
    assert sample["image"].shape == (8, 8)
    assert sample["image"].dtype == np.float32
    outputs = digits(tf.constant(sample["image"]))
    assert (outputs["digit"].dtype, outputs["digit"].shape) == (tf.int32, [])
    assert (outputs["probabilities"].dtype, outputs["probabilities"].shape) == (tf.float32, [10])
    assert float(tf.reduce_sum(outputs["probabilities"])) == pytest.approx(1.0, abs=1e-5)


def test_held_out_accuracy(digits, held_out) -> None:
    assert len(held_out.digits) == 360
    predicted = [int(digits(tf.constant(image))["digit"]) for image in held_out.images]
    assert np.mean(np.array(predicted) == held_out.digits) >= 0.97


def test_split_keeps_training_and_test_apart(load_example) -> None:
    train, test = load_example("digits", "dataset").train_and_held_out()
    assert not {image.tobytes() for image in train.images} & {image.tobytes() for image in test.images}
    assert set(np.bincount(test.digits)) <= {34, 35, 36, 37}
