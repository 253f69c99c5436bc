"""Which digit is in this picture? A small convolutional network, written for one 8x8 image."""

from pathlib import Path

import numpy as np
import tensorflow as tf

from server import model

_weights = np.load(Path(__file__).with_name("weights.npz"))


def _parameter(name: str) -> tf.Tensor:
    """One weight array: stored as float16, computed with as float32."""
    return tf.constant(_weights[name].astype(np.float32), name=name)


FILTERS_1 = _parameter("filters_1")  # [3, 3, 1, channels]
BIAS_1 = _parameter("bias_1")
FILTERS_2 = _parameter("filters_2")  # [3, 3, channels, channels]
BIAS_2 = _parameter("bias_2")
HIDDEN_KERNEL = _parameter("hidden_kernel")  # [4 * 4 * channels, hidden]
HIDDEN_BIAS = _parameter("hidden_bias")
OUTPUT_KERNEL = _parameter("output_kernel")  # [hidden, 10]
OUTPUT_BIAS = _parameter("output_bias")

# "7", row by row, as scikit-learn's digits look: ink from 0 to 16.
_SEVEN = (
    (0, 0, 8, 14, 15, 15, 6, 0),
    (0, 0, 12, 9, 8, 15, 7, 0),
    (0, 0, 0, 0, 3, 15, 2, 0),
    (0, 0, 3, 7, 12, 15, 8, 0),
    (0, 0, 11, 16, 16, 11, 4, 0),
    (0, 0, 0, 9, 13, 1, 0, 0),
    (0, 0, 1, 15, 6, 0, 0, 0),
    (0, 0, 10, 13, 0, 0, 0, 0),
)


def sample_image(generator: np.random.Generator) -> dict[str, np.ndarray]:
    """A pen stroke of random strength: a seven, shifted and turned, with noise."""
    image = np.rot90(np.array(_SEVEN, np.float32), k=int(generator.integers(4)))
    image = np.roll(image, generator.integers(-1, 2, size=2), axis=(0, 1)) * generator.uniform(0.5, 1.0)
    noisy = image + generator.normal(0.0, 1.0, image.shape)
    return {"image": np.clip(np.round(noisy), 0, 16).astype(np.float32)}


@model(
    name="digits",
    inputs={"image": tf.TensorSpec([8, 8], tf.float32)},
    samples=sample_image,
    max_batch_size=64,
)
def digits(image: tf.Tensor) -> dict[str, tf.Tensor]:
    """The digit (int32) in an image [8, 8] of ink from 0 to 16, and the probability of each digit [10]."""
    # tf.nn.conv2d wants a stack of images with channels: a stack of one.
    x = image[tf.newaxis, :, :, tf.newaxis] / 16.0
    x = tf.nn.relu(tf.nn.conv2d(x, FILTERS_1, strides=1, padding="SAME") + BIAS_1)
    x = tf.nn.relu(tf.nn.conv2d(x, FILTERS_2, strides=1, padding="SAME") + BIAS_2)
    x = tf.nn.max_pool2d(x, ksize=2, strides=2, padding="VALID")
    hidden = tf.nn.relu(tf.tensordot(tf.reshape(x, [-1]), HIDDEN_KERNEL, 1) + HIDDEN_BIAS)
    logits = tf.tensordot(hidden, OUTPUT_KERNEL, 1) + OUTPUT_BIAS
    return {
        "digit": tf.argmax(logits, output_type=tf.int32),
        "probabilities": tf.nn.softmax(logits),
    }
