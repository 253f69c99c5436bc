"""What users of TensorFlow's pfor reported of whole models: recurrent layers, saved programs, images."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.oracle import check
from vectorizer import grad, jacobian

R = np.random.default_rng(17)
ROWS = tf.TensorSpec([None, 3], tf.float32)
IMAGE, SEED = tf.TensorSpec([4, 4, 1], tf.float32), tf.TensorSpec([2], tf.int32)
W, U = (tf.constant(R.normal(size=(4, 8)).astype("f") * 0.5) for _ in range(2))


def draw(*shape):
    return R.normal(size=shape).astype("f")


def lstm(x):
    """A hand-written LSTM of two units over rows of variable number; its last state."""
    n = tf.shape(x)[0]
    kernel = tf.concat([W[:3], U[:2]], 0)

    def step(t, h, c):
        i, f, g, o = tf.split(tf.linalg.matvec(kernel, tf.concat([x[t], h], 0), transpose_a=True), 4)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        return t + 1, tf.sigmoid(o) * tf.tanh(c), c

    return tf.while_loop(lambda t, *_: t < n, step, (0, tf.zeros([2]), tf.zeros([2])))[1]


SEQUENCES = [(draw(n, 3),) for n in (2, 0, 3)]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The LSTM, saved and loaded again."""
    place = str(tmp_path_factory.mktemp("saved") / "lstm")
    module = tf.Module()
    module.run = tf.function(lstm, input_signature=[ROWS])
    tf.saved_model.save(module, place)
    return tf.saved_model.load(place)


def test_a_saved_loop_vectorizes(saved):
    """pfor: IndexError"""
    check(saved.run, [ROWS], SEQUENCES, rtol=1e-4)


def test_gradient_of_a_saved_loop(saved):
    """tensorflow#57343"""
    f = grad(lambda x: tf.reduce_sum(saved.run(x) ** 2))
    check(f, [ROWS], SEQUENCES[:2], rtol=1e-3, atol=1e-5, fallbacks=None)


@pytest.mark.full
def test_jacobian_of_a_saved_loop(saved):
    """tensorflow#57343"""
    check(jacobian(saved.run), [tf.TensorSpec([3, 3])], [(draw(3, 3),)] * 2, rtol=1e-3, fallbacks=None)


def test_gradients_of_a_recurrent_layer_for_each_example():
    """tensorflow#43904, privacy#127"""
    model = keras.Sequential([keras.layers.Embedding(5, 2), keras.layers.LSTM(2)])
    model(np.zeros((1, 3), np.int32))
    weights = [variable.value for variable in model.trainable_variables]

    def f(ids):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(ids[None]) ** 2)
        return [tf.convert_to_tensor(slope) for slope in tape.gradient(loss, weights)]

    examples = [(np.array(ids, np.int32),) for ids in ([1, 2, 0], [4, 4, 1])]
    check(f, [tf.TensorSpec([3], tf.int32)], examples, rtol=1e-3, atol=1e-5, fallbacks=None)


def test_a_masked_recurrent_layer():
    """tensorflow#41129"""
    model = keras.Sequential([keras.layers.Embedding(5, 3, mask_zero=True), keras.layers.LSTM(3)])
    model(np.zeros((1, 2), np.int32))
    examples = [(np.array(ids, np.int32),) for ids in ([1, 2, 0], [3], [1, 0, 2, 4])]
    check(lambda ids: model(ids[None])[0], [tf.TensorSpec([None], tf.int32)], examples, rtol=1e-4)


@pytest.mark.full
def test_jacobian_of_a_recurrent_layer():
    """tensorflow#41042"""
    layer = keras.layers.LSTM(2, return_sequences=True)
    layer.build((None, None, 3))
    examples = [(draw(3, 3),) for _ in range(2)]
    f = jacobian(lambda x: layer(x[None])[0])
    check(f, [tf.TensorSpec([3, 3])], examples, rtol=1e-3, atol=1e-4, fallbacks=None)


IMAGES = [(draw(4, 4, 1), np.array([k, 3], np.int32)) for k in range(4)]
AUGMENTED = {
    "flip": lambda image, seed: tf.image.stateless_random_flip_left_right(image, seed),
    "brightness": lambda image, seed: tf.image.stateless_random_brightness(image, 0.3, seed),
    "crop": lambda image, seed: tf.image.stateless_random_crop(image, [2, 3, 1], seed),
}


@pytest.mark.parametrize("name", AUGMENTED)
def test_each_image_is_augmented_by_its_own_seed(name):
    """tensorflow#58296, keras-cv PR#562: bit by bit what the function alone gives"""
    v = check(AUGMENTED[name], [IMAGE, SEED], IMAGES, fallbacks=None, jit=False, rtol=0, atol=0)
    check(v, None, IMAGES, fallbacks=None)  # XLA rounds a sum of products once


def test_preprocessing_layers_run_in_no_loop():
    """keras-cv#291, #258"""
    crop, scale = keras.layers.CenterCrop(2, 2), keras.layers.Rescaling(1 / 255.0, offset=-1.0)
    check(lambda image: scale(crop(image)), [IMAGE], [(image,) for image, _ in IMAGES])


def test_flipping_by_a_draw_of_its_own_runs_in_no_loop():
    """keras-cv PR#1696: one select for the whole batch"""
    f = lambda image, draw: tf.cond(draw < 0.5, lambda: tf.image.flip_left_right(image), lambda: image)
    examples = [(image, np.float32(k / 4)) for k, (image, _) in enumerate(IMAGES)]
    v = check(f, [IMAGE, tf.TensorSpec([])], examples)
    kinds = {op.type for op in v.compile().concrete.graph.get_operations()}
    assert not kinds & {"While", "StatelessWhile", "If", "StatelessIf"}
