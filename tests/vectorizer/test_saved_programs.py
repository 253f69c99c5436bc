"""Programs that were saved and loaded again: a SavedModel with a loop in it, and a model in Keras's own format."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from tests.support.keras_recipes import randomise
from tests.support.oracle import check

SEQUENCE = tf.TensorSpec([None, 4], tf.float32)


def sequences(*lengths):
    generator = np.random.default_rng(0)
    return [(generator.normal(size=[n, 4]).astype("f"),) for n in lengths]


class Recurrent(tf.Module):
    """A loop over the steps of one sequence, a dense layer in it, and a loop that stops by itself."""

    def __init__(self):
        super().__init__()
        generator = np.random.default_rng(1)
        self.inner = tf.Variable(generator.normal(size=[3 + 4, 3]).astype("f") * 0.5)
        self.bias = tf.Variable(generator.normal(size=[3]).astype("f") * 0.5)

    @tf.function(input_signature=[SEQUENCE])
    def run(self, x):
        state = tf.zeros([3])
        states = tf.TensorArray(tf.float32, tf.shape(x)[0], element_shape=[3])
        for t in tf.range(tf.shape(x)[0]):
            state = tf.tanh(tf.concat([state, x[t]], 0)[None] @ self.inner + self.bias)[0]
            states = states.write(t, state)
        steps = 0
        while tf.reduce_sum(tf.abs(state)) > 0.1:
            state *= 0.8
            steps += 1
        return {"states": states.stack(), "steps": steps}


@pytest.fixture(scope="module")
def recurrent(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("recurrent"))
    module = Recurrent()
    tf.saved_model.save(module, folder, signatures={"serving_default": module.run})
    return tf.saved_model.load(folder)


def test_a_loop_in_a_saved_model(recurrent):
    v = check(recurrent.run, [SEQUENCE], sequences(5, 1, 0, 7))
    assert {entry.strategy for entry in v.report.loops} == {
        "loop to the longest row, masked by its bound",
        "loop until no row is active, masked",
    }


def test_a_signature_of_a_saved_model(recurrent):
    """A signature is called by keyword and gives its outputs by name."""
    v = check(recurrent.signatures["serving_default"], {"x": SEQUENCE}, sequences(5, 1, 0, 7))
    assert v.input_names == ("x",)
    assert v.output_names == ("states", "steps")


def test_a_saved_model_answers_like_the_module_that_was_saved(recurrent):
    (x,) = sequences(6)[0]
    module = Recurrent()
    np.testing.assert_allclose(recurrent.run(x)["states"], module.run(x)["states"], rtol=1e-6)


def network():
    inputs = keras.Input([None, 4])
    outputs = layers.LSTM(5, return_sequences=True)(layers.Conv1D(4, 3, padding="same", activation="relu")(inputs))
    model = keras.Model(inputs, layers.Dense(3, activation="softmax")(layers.GlobalMaxPooling1D()(outputs)))
    randomise(model)
    return model


def test_a_keras_model_loaded_from_its_file(tmp_path):
    network().save(tmp_path / "network.keras")
    model = keras.models.load_model(tmp_path / "network.keras")
    check(lambda x: model(x[None], training=False)[0], [SEQUENCE], sequences(5, 1, 2, 7), rtol=1e-4)


@pytest.mark.full
def test_a_keras_model_exported_for_serving(tmp_path):
    """`model.export`: the SavedModel's endpoint takes a batch; one example is a batch of one."""
    network().export(str(tmp_path / "served"), verbose=False)
    served = tf.saved_model.load(str(tmp_path / "served"))
    check(lambda x: served.serve(x[None])[0], [SEQUENCE], sequences(5, 1, 2, 7), rtol=1e-4)


def test_a_saved_text_model(tmp_path):
    """A table, a loop over the letters and a dense layer."""

    class Text(tf.Module):
        def __init__(self):
            super().__init__()
            values = tf.lookup.KeyValueTensorInitializer(["a", "b", "c"], [1, 2, 3])
            self.table = tf.lookup.StaticHashTable(values, default_value=0)
            self.vectors = tf.Variable(np.random.default_rng(1).normal(size=[4, 3]).astype("f"))

        @tf.function(input_signature=[tf.TensorSpec([], tf.string)])
        def score(self, text):
            letters = self.table.lookup(tf.strings.bytes_split(text))
            total = tf.zeros([3])
            for letter in letters:
                total = tf.nn.relu(total + tf.gather(self.vectors, letter))
            return total

    tf.saved_model.save(Text(), str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    texts = [("abc",), ("",), ("cab xyz",), ("bb",)]
    check(loaded.score, [tf.TensorSpec([], tf.string)], texts, fallbacks=None)
