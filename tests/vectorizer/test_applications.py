"""Whole networks of `keras.applications`, with random weights: a batch equals the model's own batched output."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from vectorizer import vectorize

SHAPE = (32, 32, 3)  # the smallest that all three take
BATCH = 4


def pictures(seed, count):
    """Coarse patterns: the mean of fine noise is the same for all, and hardly anything else reaches the last layers."""
    coarse = np.random.default_rng(seed).uniform(-1, 1, (count, 4, 4, 3)).astype("f")
    return coarse.repeat(SHAPE[0] // 4, axis=1).repeat(SHAPE[1] // 4, axis=2)


def normalised(model):
    """With the statistics of some pictures: as built, all answers are nearly the same and would hide a mix-up."""
    generator = np.random.default_rng(0)
    for variable in model.variables:
        if variable.name in ("gamma", "beta", "bias"):
            variable.assign(generator.normal(variable.name == "gamma", 0.1, variable.shape))
    for layer in model.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.0
    model(pictures(2, 16), training=True)
    return model


APPLICATIONS = {"MobileNetV2": {"alpha": 0.35}, "EfficientNetB0": {}, "ResNet50": {}}


@pytest.mark.parametrize(
    ("name", "jit"),
    [
        pytest.param("MobileNetV2", False, id="MobileNetV2"),
        pytest.param("MobileNetV2", True, id="MobileNetV2_xla", marks=pytest.mark.full),
        pytest.param("EfficientNetB0", False, id="EfficientNetB0", marks=pytest.mark.full),
        pytest.param("EfficientNetB0", True, id="EfficientNetB0_xla", marks=pytest.mark.full),
        pytest.param("ResNet50", False, id="ResNet50", marks=pytest.mark.full),
        pytest.param("ResNet50", True, id="ResNet50_xla", marks=pytest.mark.full),
    ],
)
def test_application(name, jit):
    keras.utils.set_random_seed(0)
    build = getattr(keras.applications, name)
    arguments = {"weights": None, "classes": 10, "classifier_activation": None, **APPLICATIONS[name]}
    model = normalised(build(input_shape=SHAPE, **arguments))
    images = pictures(1, BATCH)
    wanted = model(images, training=False).numpy()
    assert wanted.std(axis=0).min() > 0.1

    v = vectorize(lambda image: model(image[None], training=False)[0], [tf.TensorSpec(SHAPE, tf.float32)])
    assert not v.report.fallbacks, str(v.report)
    program = v.compile(BATCH, (), jit=True) if jit else v.compile()
    (answers,), _, ok = program([images], [], BATCH)
    assert ok.numpy().all()
    np.testing.assert_allclose(answers, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
