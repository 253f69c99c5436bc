"""Inference graphs of Keras layers: each is applied to one example, and must be vectorized without a
fallback.

Weights are random, biases and moving statistics too: zeros would hide an operand that is mixed up or left
out.
"""

import numpy as np
import pytest
import tensorflow as tf
from keras import layers

from tests.support.keras_recipes import randomise
from tests.support.oracle import check

LENGTHS = (1, 4, 7, 2)


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype("f")


def applied(layer, spec):
    """`layer` as a function of one example, with random weights."""

    def one(x):
        return layer(x[tf.newaxis])[0]

    shape = [size if size is not None else 5 for size in spec.shape]
    layer(np.zeros([1, *shape], spec.dtype.as_numpy_dtype))
    randomise(layer)
    return one


ACTIVATIONS = """relu relu6 gelu silu softmax log_softmax elu selu celu leaky_relu tanh sigmoid softplus
    softsign hard_sigmoid hard_silu exponential linear mish log_sigmoid glu hard_tanh tanh_shrink
    squareplus soft_shrink sparse_plus""".split()

FIXED = {
    "dense": ([5], lambda: layers.Dense(4)),
    "dense_on_matrix": ([3, 5], lambda: layers.Dense(4, activation="relu")),
    "einsum_dense": (
        [3, 5],
        lambda: layers.EinsumDense("abc,cd->abd", output_shape=(None, 4), bias_axes="d"),
    ),
    "conv1d": ([9, 3], lambda: layers.Conv1D(4, 3)),
    "conv1d_same_stride": ([9, 3], lambda: layers.Conv1D(4, 3, strides=2, padding="same")),
    "conv1d_dilated": ([9, 3], lambda: layers.Conv1D(4, 3, dilation_rate=2, padding="same")),
    "conv1d_causal": ([9, 3], lambda: layers.Conv1D(4, 3, padding="causal")),
    "conv1d_causal_dilated": ([9, 3], lambda: layers.Conv1D(4, 2, dilation_rate=3, padding="causal")),
    "conv1d_groups": ([9, 4], lambda: layers.Conv1D(4, 3, groups=2)),
    "conv2d": ([7, 6, 3], lambda: layers.Conv2D(4, 3, activation="relu")),
    "conv2d_same": ([7, 6, 3], lambda: layers.Conv2D(4, (3, 2), padding="same")),
    "conv2d_same_stride": ([7, 6, 3], lambda: layers.Conv2D(4, 3, strides=(2, 3), padding="same")),
    "conv2d_dilated": ([7, 6, 3], lambda: layers.Conv2D(4, 2, dilation_rate=(2, 2))),
    "conv2d_transpose": ([5, 4, 3], lambda: layers.Conv2DTranspose(4, 3, strides=2, padding="same")),
    "conv3d": ([4, 4, 4, 2], lambda: layers.Conv3D(3, 2)),
    "depthwise_conv1d": ([9, 3], lambda: layers.DepthwiseConv1D(3, depth_multiplier=2)),
    "depthwise_conv2d": ([7, 6, 3], lambda: layers.DepthwiseConv2D(3, depth_multiplier=2, padding="same")),
    "depthwise_conv2d_stride": ([7, 7, 3], lambda: layers.DepthwiseConv2D(3, strides=2)),
    "separable_conv1d": ([9, 3], lambda: layers.SeparableConv1D(4, 3)),
    "separable_conv2d": ([7, 6, 3], lambda: layers.SeparableConv2D(4, 3, padding="same")),
    "max_pooling1d": ([9, 3], lambda: layers.MaxPooling1D(2)),
    "max_pooling1d_same": ([9, 3], lambda: layers.MaxPooling1D(3, strides=2, padding="same")),
    "max_pooling2d": ([7, 6, 3], lambda: layers.MaxPooling2D()),
    "max_pooling2d_same": ([7, 6, 3], lambda: layers.MaxPooling2D(3, strides=2, padding="same")),
    "average_pooling1d": ([9, 3], lambda: layers.AveragePooling1D(2)),
    "average_pooling2d": ([7, 6, 3], lambda: layers.AveragePooling2D(2)),
    "average_pooling2d_same": ([7, 6, 3], lambda: layers.AveragePooling2D(3, strides=2, padding="same")),
    "global_max_pooling1d": ([9, 3], lambda: layers.GlobalMaxPooling1D()),
    "global_max_pooling2d": ([7, 6, 3], lambda: layers.GlobalMaxPooling2D(keepdims=True)),
    "global_average_pooling1d": ([9, 3], lambda: layers.GlobalAveragePooling1D()),
    "global_average_pooling2d": ([7, 6, 3], lambda: layers.GlobalAveragePooling2D()),
    "batch_normalization": ([5], lambda: layers.BatchNormalization()),
    "batch_normalization_images": ([7, 6, 3], lambda: layers.BatchNormalization()),
    "layer_normalization": ([5], lambda: layers.LayerNormalization()),
    "layer_normalization_of_matrix": ([4, 5], lambda: layers.LayerNormalization(axis=[1, 2])),
    "group_normalization": ([4, 6], lambda: layers.GroupNormalization(2)),
    "rms_normalization": ([4, 6], lambda: layers.RMSNormalization()),
    "unit_normalization": ([4, 6], lambda: layers.UnitNormalization()),
    "dropout": ([5], lambda: layers.Dropout(0.5)),
    "spatial_dropout1d": ([5, 3], lambda: layers.SpatialDropout1D(0.5)),
    "gaussian_noise": ([5], lambda: layers.GaussianNoise(0.5)),
    "flatten": ([3, 4, 2], lambda: layers.Flatten()),
    "reshape": ([3, 4], lambda: layers.Reshape((2, -1))),
    "permute": ([3, 4, 2], lambda: layers.Permute((3, 1, 2))),
    "repeat_vector": ([4], lambda: layers.RepeatVector(3)),
    "zero_padding1d": ([4, 3], lambda: layers.ZeroPadding1D((1, 2))),
    "zero_padding2d": ([4, 3, 2], lambda: layers.ZeroPadding2D(((1, 2), (0, 3)))),
    "cropping1d": ([6, 2], lambda: layers.Cropping1D((1, 2))),
    "cropping2d": ([6, 5, 2], lambda: layers.Cropping2D(((1, 2), (0, 1)))),
    "up_sampling1d": ([4, 3], lambda: layers.UpSampling1D(2)),
    "up_sampling2d": ([4, 3, 2], lambda: layers.UpSampling2D((2, 3))),
    "up_sampling2d_bilinear": ([4, 3, 2], lambda: layers.UpSampling2D(2, interpolation="bilinear")),
    "rescaling": ([4, 3], lambda: layers.Rescaling(1 / 255, offset=-0.5)),
    "normalization": ([4, 3], lambda: layers.Normalization(mean=0.5, variance=2.0)),
    "prelu": ([4, 3], lambda: layers.PReLU()),
    "lstm": ([6, 4], lambda: layers.LSTM(5)),
    "gru": ([6, 4], lambda: layers.GRU(5)),
    "simple_rnn": ([6, 4], lambda: layers.SimpleRNN(5, return_sequences=True)),
    "bidirectional": ([6, 4], lambda: layers.Bidirectional(layers.LSTM(3, return_sequences=True))),
    "lstm_backwards": ([6, 4], lambda: layers.LSTM(5, go_backwards=True)),
    "lstm_unrolled": ([4, 3], lambda: layers.LSTM(5, unroll=True)),
    "time_distributed": ([6, 4], lambda: layers.TimeDistributed(layers.Dense(3))),
    "conv_lstm1d": ([3, 5, 2], lambda: layers.ConvLSTM1D(2, 3, padding="same")),
}

# What a newcomer would try first; the rest is in the long tier.
QUICK = """dense conv1d_causal conv1d_dilated conv2d_same_stride depthwise_conv2d separable_conv2d
    max_pooling2d_same average_pooling2d_same global_average_pooling2d batch_normalization_images
    layer_normalization flatten reshape zero_padding2d up_sampling2d lstm gru bidirectional""".split()


def tiered(cases):
    return [pytest.param(name, marks=[] if name in QUICK else pytest.mark.full) for name in cases]


@pytest.mark.parametrize("name", tiered(FIXED))
def test_fixed_shapes(name):
    shape, make = FIXED[name]
    spec = tf.TensorSpec(shape, tf.float32)
    check(applied(make(), spec), [spec], [(normal(k, *shape),) for k in range(3)], rtol=1e-4)


@pytest.mark.parametrize("half", [pytest.param(0, id="first_half"), pytest.param(1, id="second_half")])
def test_activations(half):
    """Many at once: each is one output."""
    names = ACTIVATIONS[half::2]
    spec = tf.TensorSpec([4, 6], tf.float32)

    def all_of_them(x):
        return {name: layers.Activation(name)(x[tf.newaxis])[0] for name in names}

    check(all_of_them, [spec], [(normal(k, 4, 6) * 3,) for k in range(3)])


SEQUENCES = {
    "dense_over_time": lambda: layers.Dense(3, activation="gelu"),
    "conv1d_causal": lambda: layers.Conv1D(4, 3, padding="causal"),
    "conv1d_same": lambda: layers.Conv1D(4, 3, padding="same"),
    "conv1d_dilated": lambda: layers.Conv1D(4, 3, padding="same", dilation_rate=2),
    "conv1d_same_stride": lambda: layers.Conv1D(4, 3, strides=2, padding="same"),
    "conv1d_valid": lambda: layers.Conv1D(4, 3, strides=2),
    "average_pooling1d_same_stride": lambda: layers.AveragePooling1D(3, strides=2, padding="same"),
    "separable_conv1d": lambda: layers.SeparableConv1D(4, 3, padding="same"),
    "depthwise_conv1d": lambda: layers.DepthwiseConv1D(3, padding="same"),
    "max_pooling1d": lambda: layers.MaxPooling1D(3, strides=1, padding="same"),
    "average_pooling1d": lambda: layers.AveragePooling1D(3, strides=1, padding="same"),
    "global_max_pooling1d": lambda: layers.GlobalMaxPooling1D(),
    "global_average_pooling1d": lambda: layers.GlobalAveragePooling1D(),
    "layer_normalization": lambda: layers.LayerNormalization(),
    "batch_normalization": lambda: layers.BatchNormalization(),
    "softmax_over_time": lambda: layers.Softmax(axis=1),
    "zero_padding1d": lambda: layers.ZeroPadding1D((1, 2)),
    "up_sampling1d": lambda: layers.UpSampling1D(2),
    "lstm": lambda: layers.LSTM(5),
    "lstm_sequences": lambda: layers.LSTM(5, return_sequences=True),
    "gru": lambda: layers.GRU(5),
    "gru_sequences": lambda: layers.GRU(5, return_sequences=True),
    "gru_reset_before": lambda: layers.GRU(5, reset_after=False),
    "simple_rnn": lambda: layers.SimpleRNN(5),
    "simple_rnn_sequences": lambda: layers.SimpleRNN(5, return_sequences=True),
    "bidirectional_lstm": lambda: layers.Bidirectional(layers.LSTM(3)),
    "bidirectional_gru_sequences": lambda: layers.Bidirectional(layers.GRU(3, return_sequences=True)),
    "lstm_backwards": lambda: layers.LSTM(5, go_backwards=True, return_sequences=True),
    "time_distributed": lambda: layers.TimeDistributed(layers.Dense(3)),
}
QUICK_SEQUENCES = """conv1d_causal conv1d_same global_average_pooling1d lstm gru_sequences
    bidirectional_lstm bidirectional_gru_sequences""".split()


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK_SEQUENCES else pytest.mark.full) for name in SEQUENCES],
)
def test_variable_time(name):
    spec = tf.TensorSpec([None, 4], tf.float32)
    check(applied(SEQUENCES[name](), spec), [spec], [(normal(n, n, 4),) for n in LENGTHS], rtol=1e-4)


def attention(layer):
    def one(x):
        return layer(x[tf.newaxis], x[tf.newaxis])[0]

    layer(np.zeros([1, 5, 4], "f"), np.zeros([1, 5, 4], "f"))
    randomise(layer)
    return one


@pytest.mark.parametrize("length", [5, None])
def test_multi_head_attention(length):
    spec = tf.TensorSpec([length, 4], tf.float32)
    lengths = LENGTHS if length is None else (length,) * 3
    examples = [(normal(k, n, 4),) for k, n in enumerate(lengths)]
    check(attention(layers.MultiHeadAttention(2, 3)), [spec], examples, rtol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("length", [5, None])
def test_causal_attention(length):
    layer = layers.MultiHeadAttention(2, 3)
    attention(layer)
    spec = tf.TensorSpec([length, 4], tf.float32)
    lengths = LENGTHS if length is None else (length,) * 3
    examples = [(normal(k, n, 4),) for k, n in enumerate(lengths)]
    check(lambda x: layer(x[None], x[None], use_causal_mask=True)[0], [spec], examples, rtol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize(("query", "memory"), [(None, None), (None, 5), (4, None)])
def test_attention_to_another_sequence(query, memory):
    layer = layers.MultiHeadAttention(2, 3)
    attention(layer)
    specs = [tf.TensorSpec([query, 4], tf.float32), tf.TensorSpec([memory, 4], tf.float32)]
    examples = [(normal(k, query or n, 4), normal(k + 9, memory or 8 - n, 4)) for k, n in enumerate(LENGTHS)]
    check(lambda x, y: layer(x[None], y[None])[0], specs, examples, rtol=1e-4)


@pytest.mark.parametrize("length", [5, None])
def test_embedding(length):
    layer = layers.Embedding(11, 4)
    layer(np.zeros([1, 5], "int32"))
    randomise(layer)
    lengths = LENGTHS if length is None else (length,) * 3
    generator = np.random.default_rng(0)
    examples = [(generator.integers(0, 11, n).astype("int32"),) for n in lengths]
    examples.append((np.full(lengths[0], 11, "int32"),))  # out of range: this row alone fails
    check(lambda ids: layer(ids[None])[0], [tf.TensorSpec([length], tf.int32)], examples)


@pytest.mark.parametrize("cell", [layers.LSTM, pytest.param(layers.GRU, marks=pytest.mark.full)])
@pytest.mark.parametrize("length", [6, None])
def test_masked_sequence(cell, length):
    """`Embedding(mask_zero=True)`: steps whose id is 0 don't move the state."""
    embedding, recurrent = layers.Embedding(9, 4, mask_zero=True), cell(5)

    def one(ids):
        return recurrent(embedding(ids[None]))[0]

    one(np.array([1, 2, 0]))
    randomise(embedding)
    randomise(recurrent)
    rows = [[1, 2, 3, 0, 0, 0], [4, 0, 5, 6, 0, 0], [1, 2, 3, 4, 5, 6]]
    examples = [(np.array(row[: length or 2 + 2 * k], "int32"),) for k, row in enumerate(rows)]
    check(one, [tf.TensorSpec([length], tf.int32)], examples, rtol=1e-4)


@pytest.mark.full
def test_masking_layer():
    recurrent = layers.LSTM(5)

    def one(x):
        return recurrent(layers.Masking()(x[None]))[0]

    one(np.ones([3, 4], "f"))
    randomise(recurrent)
    examples = []
    for n in LENGTHS:
        x = normal(n, n, 4)
        x[n // 2 :] = 0
        examples.append((x,))
    check(one, [tf.TensorSpec([None, 4], tf.float32)], examples, rtol=1e-4)


MERGES = {
    "concatenate": lambda: layers.Concatenate(),
    "concatenate_rows": lambda: layers.Concatenate(axis=1),
    "add": lambda: layers.Add(),
    "subtract": lambda: layers.Subtract(),
    "multiply": lambda: layers.Multiply(),
    "average": lambda: layers.Average(),
    "maximum": lambda: layers.Maximum(),
    "minimum": lambda: layers.Minimum(),
    "dot": lambda: layers.Dot(axes=2),
}


@pytest.mark.parametrize("length", [5, None])
def test_merging(length):
    """Each is one output."""
    lengths = LENGTHS if length is None else (length,) * 3
    merges = {name: make() for name, make in MERGES.items()}
    examples = [(normal(k, n, 4), normal(k + 9, n, 4)) for k, n in enumerate(lengths)]

    def all_of_them(x, y):
        return {name: layer([x[None], y[None]])[0] for name, layer in merges.items()}

    check(all_of_them, [tf.TensorSpec([length, 4], tf.float32)] * 2, examples)


def test_transformer_block():
    norms = [layers.LayerNormalization(), layers.LayerNormalization()]
    mixing, wide, narrow = (
        layers.MultiHeadAttention(2, 4),
        layers.Dense(16, activation="gelu"),
        layers.Dense(8),
    )

    def block(x):
        batch = x[None]
        seen = norms[0](batch)
        batch = batch + mixing(seen, seen)
        return (batch + narrow(wide(norms[1](batch))))[0]

    block(np.zeros([3, 8], "f"))
    for layer in (*norms, mixing, wide, narrow):
        randomise(layer)
    check(
        block,
        [tf.TensorSpec([None, 8], tf.float32)],
        [(normal(n, n, 8),) for n in LENGTHS],
        rtol=1e-4,
        atol=1e-4,
    )
