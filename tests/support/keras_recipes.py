"""One recipe for each layer class that `keras.layers` exports: how to build it, and what one example looks like.

The per-example function is the layer in inference mode on a batch of one, `layer(x[None])[0]`. Weights are random,
biases and moving statistics too: zeros would hide an operand that is mixed up or left out. `keras_table.py` makes the
page `docs/keras_layers.md` of them; `tests/vectorizer/test_keras_table.py` compares every one with the oracle.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf
from keras import layers

LENGTHS = (3, 6, 4, 8)  # of the examples, along each variable dimension
WORDS = ["a", "bc", "Hello world", "", "äöü a"]


@dataclass(frozen=True)
class Recipe:
    """`make()` gives the layer, `specs` those of one example's inputs; `call` calls it (on batches of one)."""

    make: Callable[[], Any]
    specs: tuple[tf.TensorSpec, ...]
    call: Callable[..., Any] | None = None
    draw: Callable[[np.random.Generator, tf.TensorSpec, tuple[int, ...]], Any] | None = None
    note: str = ""  # what this recipe stands for, where there are several
    rtol: float = 1e-4
    lengths: tuple[int, ...] = LENGTHS

    @property
    def inputs(self) -> str:
        """What one example is, in words; `n` is a size that differs between examples."""
        shapes = [", ".join("n" if size is None else str(size) for size in spec.shape) for spec in self.specs]
        names = [f"{spec.dtype.name}[{shape}]" for spec, shape in zip(self.specs, shapes, strict=True)]
        return ", ".join([*names, *([self.note] if self.note else [])])

    def function(self) -> Callable[..., Any]:
        """The layer, built and with random weights, as a function of one example."""
        layer = self.make()
        call = self.call or _call_in_inference

        def one(*example: Any) -> Any:
            outputs = call(layer, *(tf.expand_dims(item, 0) for item in example))
            return tf.nest.map_structure(lambda output: output[0], outputs)

        one(*self.examples()[-1])
        randomise(layer)
        return one

    def examples(self) -> list[tuple[Any, ...]]:
        """Four examples; the variable dimensions differ between them."""
        return [self._example(seed, length) for seed, length in enumerate(self.lengths)]

    def _example(self, seed: int, length: int) -> tuple[Any, ...]:
        generator = np.random.default_rng(seed)
        shapes = [tuple(size if size is not None else length for size in spec.shape) for spec in self.specs]
        return tuple(
            (self.draw or usual)(generator, spec, shape) for spec, shape in zip(self.specs, shapes, strict=True)
        )


def _call_in_inference(layer: Any, *inputs: Any) -> Any:
    arguments = {"training": False} if layer._call_has_training_arg else {}
    return layer(inputs[0] if len(inputs) == 1 else list(inputs), **arguments)


def separately(layer: Any, *inputs: Any) -> Any:
    """For layers that take their inputs as arguments of their own."""
    return layer(*inputs)


def randomise(layer: Any) -> None:
    """Random weights for a built layer; variances stay positive."""
    generator = np.random.default_rng(7)
    for variable in layer.variables:
        if np.issubdtype(np.dtype(variable.dtype), np.floating):
            values = generator.normal(size=variable.shape).astype("f") * 0.5
            variable.assign(np.abs(values) + 0.1 if "variance" in variable.name else values)


# -- what examples hold ------------------------------------------------------------------------------------------


def usual(generator: np.random.Generator, spec: tf.TensorSpec, shape: tuple[int, ...]) -> Any:
    if spec.dtype == tf.string:
        return generator.choice(np.array(WORDS, dtype=object), size=shape) if shape else str(generator.choice(WORDS))
    if spec.dtype.is_integer:
        return generator.integers(0, 5, shape).astype(spec.dtype.as_numpy_dtype)
    return generator.normal(size=shape).astype(spec.dtype.as_numpy_dtype)


def image_like(generator: np.random.Generator, spec: tf.TensorSpec, shape: tuple[int, ...]) -> Any:
    return generator.integers(0, 256, shape).astype(spec.dtype.as_numpy_dtype)


def some_zero_steps(generator: np.random.Generator, spec: tf.TensorSpec, shape: tuple[int, ...]) -> Any:
    values = usual(generator, spec, shape)
    values[shape[0] // 2 :] = 0
    return values


def f(*shape: int | None) -> tf.TensorSpec:
    return tf.TensorSpec(shape, tf.float32)


def i(*shape: int | None) -> tf.TensorSpec:
    return tf.TensorSpec(shape, tf.int32)


def s(*shape: int | None) -> tf.TensorSpec:
    return tf.TensorSpec(shape, tf.string)


TIME = f(None, 4)  # a sequence of any length
TWO = (TIME, TIME)
IMAGE = f(7, 6, 3)
ANY_IMAGE = f(None, None, 3)
VOLUME = f(4, 5, 4, 2)
PHOTO = f(8, 8, 3)


def _one(make: Callable[[], Any], *specs: tf.TensorSpec, **how: Any) -> list[Recipe]:
    return [Recipe(make, specs, **how)]


def _each(make: Callable[[], Any], *specs: tf.TensorSpec, **how: Any) -> list[Recipe]:
    """One recipe for each of the specs."""
    return [Recipe(make, (spec,), **how) for spec in specs]


# -- layers that need more than a constructor --------------------------------------------------------------------


def _adapted(layer: Any, data: Any) -> Any:
    layer.adapt(data)
    return layer


def _normalization() -> Any:
    return _adapted(layers.Normalization(), np.random.default_rng(0).normal(size=[20, 4]).astype("f"))


def _text(**how: Any) -> Callable[[], Any]:
    return lambda: _adapted(layers.TextVectorization(**how), ["a bc hello", "world a", "äöü"])


def _saved_model() -> Any:
    class Doubling(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32)])
        def serve(self, x: Any) -> Any:
            return tf.nn.relu(x) * 2.0

    with tempfile.TemporaryDirectory() as folder:
        module = Doubling()
        tf.saved_model.save(module, folder, signatures=module.serve)
        return layers.TFSMLayer(folder, call_endpoint="serving_default")


def _boxes(layer: Any, images: Any, boxes: Any, labels: Any) -> Any:
    found = layer({"images": images, "bounding_boxes": {"boxes": boxes, "labels": labels}}, training=False)
    return found["bounding_boxes"]


def _cell(count: int) -> Callable[..., Any]:
    """A step of an RNN cell: its input, then its states."""

    def call(layer: Any, x: Any, *states: Any) -> Any:
        output, new_states = layer(x, list(states) if count > 1 else states[0])
        return output, *tf.nest.flatten(new_states)

    return call


def _stack_of_cells(layer: Any, x: Any, first: Any, h: Any, c: Any) -> Any:
    output, states = layer(x, [first, [h, c]])
    return output, *tf.nest.flatten(states)


def _with_labels(layer: Any, images: Any, labels: Any) -> Any:
    return layer({"images": images, "labels": labels}, training=False)


def _random(name: str, *arguments: Any, spec: tf.TensorSpec = PHOTO, **how: Any) -> list[Recipe]:
    """An augmentation, in inference mode."""
    return _one(lambda: getattr(layers, name)(*arguments, **how), spec, draw=image_like)


RECIPES: dict[str, list[Recipe]] = {
    # core
    "Dense": _one(lambda: layers.Dense(3, activation="gelu"), TIME),
    "EinsumDense": _one(lambda: layers.EinsumDense("abc,cd->abd", output_shape=(None, 5), bias_axes="d"), TIME),
    "Embedding": _one(lambda: layers.Embedding(5, 4), i(None)),
    "ReversibleEmbedding": [
        *_one(lambda: layers.ReversibleEmbedding(5, 4), i(None)),
        *_one(
            lambda: layers.ReversibleEmbedding(5, 4), TIME, call=lambda layer, x: layer(x, reverse=True), note="reverse"
        ),
    ],
    "Identity": _one(lambda: layers.Identity(), TIME),
    "Lambda": _one(lambda: layers.Lambda(lambda x: x * 2.0 + 1.0), TIME),
    "Masking": _one(lambda: layers.Masking(), TIME, draw=some_zero_steps),
    "Activation": _one(lambda: layers.Activation("mish"), TIME),
    "ActivityRegularization": _one(lambda: layers.ActivityRegularization(0.1), TIME),
    "ReLU": _one(lambda: layers.ReLU(max_value=1.0, negative_slope=0.1), TIME),
    "ELU": _one(lambda: layers.ELU(), TIME),
    "LeakyReLU": _one(lambda: layers.LeakyReLU(), TIME),
    "PReLU": _one(lambda: layers.PReLU(shared_axes=[1]), TIME),
    "Softmax": [
        *_one(lambda: layers.Softmax(), TIME),
        *_one(lambda: layers.Softmax(axis=1), TIME, note="over time"),
    ],
    # reshaping
    "Flatten": _each(lambda: layers.Flatten(), f(3, 4, 2), TIME),
    "Reshape": [
        *_one(lambda: layers.Reshape((2, -1)), f(3, 4)),
        *_one(lambda: layers.Reshape((-1, 2)), TIME),
    ],
    "Permute": _one(lambda: layers.Permute((2, 1)), TIME),
    "RepeatVector": _one(lambda: layers.RepeatVector(3), f(4)),
    "ZeroPadding1D": _one(lambda: layers.ZeroPadding1D((1, 2)), TIME),
    "ZeroPadding2D": _each(lambda: layers.ZeroPadding2D(((1, 2), (0, 3))), IMAGE, ANY_IMAGE),
    "ZeroPadding3D": _one(lambda: layers.ZeroPadding3D(1), VOLUME),
    "Cropping1D": _one(lambda: layers.Cropping1D((1, 1)), TIME),
    "Cropping2D": _each(lambda: layers.Cropping2D(((1, 1), (0, 1))), IMAGE, ANY_IMAGE),
    "Cropping3D": _one(lambda: layers.Cropping3D(1), VOLUME),
    "UpSampling1D": _one(lambda: layers.UpSampling1D(2), TIME),
    "UpSampling2D": [
        *_each(lambda: layers.UpSampling2D((2, 3)), IMAGE, ANY_IMAGE),
        *_one(lambda: layers.UpSampling2D(2, interpolation="bilinear"), IMAGE, note="bilinear"),
    ],
    "UpSampling3D": _one(lambda: layers.UpSampling3D(2), VOLUME),
    # convolution
    "Conv1D": _one(lambda: layers.Conv1D(4, 3, padding="same"), TIME),
    "Conv2D": _each(lambda: layers.Conv2D(4, 3, padding="same"), IMAGE, ANY_IMAGE),
    "Conv3D": _one(lambda: layers.Conv3D(3, 2), VOLUME),
    "Conv1DTranspose": _each(lambda: layers.Conv1DTranspose(3, 3, strides=2, padding="same"), f(6, 4), TIME),
    "Conv2DTranspose": _each(lambda: layers.Conv2DTranspose(3, 3, strides=2, padding="same"), IMAGE, ANY_IMAGE),
    "Conv3DTranspose": _one(lambda: layers.Conv3DTranspose(3, 2, strides=2), VOLUME),
    "DepthwiseConv1D": _one(lambda: layers.DepthwiseConv1D(3, padding="same"), TIME),
    "DepthwiseConv2D": _each(lambda: layers.DepthwiseConv2D(3, padding="same"), IMAGE, ANY_IMAGE),
    "SeparableConv1D": _one(lambda: layers.SeparableConv1D(4, 3, padding="same"), TIME),
    "SeparableConv2D": _each(lambda: layers.SeparableConv2D(4, 3, padding="same"), IMAGE, ANY_IMAGE),
    # pooling
    "MaxPooling1D": _one(lambda: layers.MaxPooling1D(2), TIME),
    "MaxPooling2D": _each(lambda: layers.MaxPooling2D(2, padding="same"), IMAGE, ANY_IMAGE),
    "MaxPooling3D": _one(lambda: layers.MaxPooling3D(2), VOLUME),
    "AveragePooling1D": _one(lambda: layers.AveragePooling1D(2), TIME),
    "AveragePooling2D": _each(lambda: layers.AveragePooling2D(2, padding="same"), IMAGE, ANY_IMAGE),
    "AveragePooling3D": _one(lambda: layers.AveragePooling3D(2), VOLUME),
    "GlobalMaxPooling1D": _one(lambda: layers.GlobalMaxPooling1D(), TIME),
    "GlobalMaxPooling2D": _each(lambda: layers.GlobalMaxPooling2D(), IMAGE, ANY_IMAGE),
    "GlobalMaxPooling3D": _each(lambda: layers.GlobalMaxPooling3D(), VOLUME, f(None, 3, 2, 2)),
    "GlobalAveragePooling1D": _one(lambda: layers.GlobalAveragePooling1D(), TIME),
    "GlobalAveragePooling2D": _each(lambda: layers.GlobalAveragePooling2D(), IMAGE, ANY_IMAGE),
    "GlobalAveragePooling3D": _each(lambda: layers.GlobalAveragePooling3D(), VOLUME, f(None, 3, 2, 2)),
    "AdaptiveAveragePooling1D": _one(lambda: layers.AdaptiveAveragePooling1D(3), f(7, 4)),
    "AdaptiveAveragePooling2D": _one(lambda: layers.AdaptiveAveragePooling2D(3), IMAGE),
    "AdaptiveAveragePooling3D": _one(lambda: layers.AdaptiveAveragePooling3D(2), VOLUME),
    "AdaptiveMaxPooling1D": _one(lambda: layers.AdaptiveMaxPooling1D(3), f(7, 4)),
    "AdaptiveMaxPooling2D": _one(lambda: layers.AdaptiveMaxPooling2D(3), IMAGE),
    "AdaptiveMaxPooling3D": _one(lambda: layers.AdaptiveMaxPooling3D(2), VOLUME),
    # normalisation and regularisation
    "BatchNormalization": _each(lambda: layers.BatchNormalization(), TIME, IMAGE, ANY_IMAGE),
    "LayerNormalization": _one(lambda: layers.LayerNormalization(), TIME),
    "GroupNormalization": _each(lambda: layers.GroupNormalization(2), f(5, 4), TIME),
    "RMSNormalization": _one(lambda: layers.RMSNormalization(), TIME),
    "UnitNormalization": _one(lambda: layers.UnitNormalization(), TIME),
    "SpectralNormalization": _one(lambda: layers.SpectralNormalization(layers.Dense(3)), TIME),
    "Dropout": _one(lambda: layers.Dropout(0.5), TIME),
    "AlphaDropout": _one(lambda: layers.AlphaDropout(0.5), TIME),
    "GaussianDropout": _one(lambda: layers.GaussianDropout(0.5), TIME),
    "GaussianNoise": _one(lambda: layers.GaussianNoise(0.5), TIME),
    "SpatialDropout1D": _one(lambda: layers.SpatialDropout1D(0.5), TIME),
    "SpatialDropout2D": _one(lambda: layers.SpatialDropout2D(0.5), IMAGE),
    "SpatialDropout3D": _one(lambda: layers.SpatialDropout3D(0.5), VOLUME),
    # recurrent
    "LSTM": _one(lambda: layers.LSTM(5), TIME),
    "GRU": _one(lambda: layers.GRU(5, return_sequences=True), TIME),
    "SimpleRNN": _one(lambda: layers.SimpleRNN(5), TIME),
    "RNN": _one(lambda: layers.RNN([layers.LSTMCell(3), layers.GRUCell(2)]), TIME),
    "Bidirectional": _one(lambda: layers.Bidirectional(layers.LSTM(3, return_sequences=True)), TIME),
    "TimeDistributed": _one(lambda: layers.TimeDistributed(layers.Dense(3)), TIME),
    "LSTMCell": _one(lambda: layers.LSTMCell(3), f(4), f(3), f(3), call=_cell(2)),
    "GRUCell": _one(lambda: layers.GRUCell(3), f(4), f(3), call=_cell(1)),
    "SimpleRNNCell": _one(lambda: layers.SimpleRNNCell(3), f(4), f(3), call=_cell(1)),
    "StackedRNNCells": _one(
        lambda: layers.StackedRNNCells([layers.GRUCell(3), layers.LSTMCell(2)]),
        f(4),
        f(3),
        f(2),
        f(2),
        call=_stack_of_cells,
    ),
    "ConvLSTM1D": _each(lambda: layers.ConvLSTM1D(2, 3, padding="same"), f(3, 5, 2), f(None, 5, 2)),
    "ConvLSTM2D": _each(lambda: layers.ConvLSTM2D(2, 3, padding="same"), f(3, 4, 5, 2), f(None, 4, 5, 2)),
    "ConvLSTM3D": _each(lambda: layers.ConvLSTM3D(2, 2, padding="same"), f(2, 3, 4, 3, 2)),
    # attention
    "MultiHeadAttention": _one(lambda: layers.MultiHeadAttention(2, 3), *TWO, call=separately),
    "GroupQueryAttention": _one(lambda: layers.GroupQueryAttention(3, 4, 2), *TWO, call=separately),
    "Attention": _one(lambda: layers.Attention(use_scale=True), *TWO),
    "AdditiveAttention": _one(lambda: layers.AdditiveAttention(), *TWO),
    # merging
    "Add": _one(lambda: layers.Add(), *TWO),
    "Subtract": _one(lambda: layers.Subtract(), *TWO),
    "Multiply": _one(lambda: layers.Multiply(), *TWO),
    "Average": _one(lambda: layers.Average(), *TWO),
    "Maximum": _one(lambda: layers.Maximum(), *TWO),
    "Minimum": _one(lambda: layers.Minimum(), *TWO),
    "Concatenate": [
        *_one(lambda: layers.Concatenate(), *TWO),
        *_one(lambda: layers.Concatenate(axis=1), *TWO, note="along time"),
    ],
    "Dot": [
        *_one(lambda: layers.Dot(axes=2), *TWO),
        *_one(lambda: layers.Dot(axes=1, normalize=True), *TWO, note="along time"),
    ],
    # preprocessing of numbers, categories, text and sound
    "Normalization": _one(_normalization, TIME),
    "Rescaling": _one(lambda: layers.Rescaling(1 / 255, offset=-0.5), TIME),
    "Discretization": _one(lambda: layers.Discretization(bin_boundaries=[-1.0, 0.0, 1.0]), f(None)),
    "CategoryEncoding": [
        *_one(lambda: layers.CategoryEncoding(5, output_mode="multi_hot"), i(3)),
        *_one(lambda: layers.CategoryEncoding(5, output_mode="one_hot"), i(1), note="one_hot"),
        *_one(lambda: layers.CategoryEncoding(5, output_mode="count"), i(3), note="count"),
    ],
    "Hashing": _each(lambda: layers.Hashing(7), s(None), i(None)),
    "HashedCrossing": _one(lambda: layers.HashedCrossing(7), s(), i()),
    "StringLookup": _one(lambda: layers.StringLookup(vocabulary=["a", "bc"]), s(None)),
    "IntegerLookup": _one(lambda: layers.IntegerLookup(vocabulary=[1, 3, 4]), i(None)),
    "TextVectorization": [
        *_one(_text(), s()),
        *_one(_text(output_mode="multi_hot"), s(), note="multi_hot"),
        *_one(_text(output_sequence_length=4), s(), note="of fixed length"),
    ],
    "MelSpectrogram": _each(
        lambda: layers.MelSpectrogram(fft_length=16, sequence_stride=4, num_mel_bins=4, min_freq=0),
        f(32),
        f(None),
        lengths=(32, 40, 17, 24),
    ),
    "STFTSpectrogram": _each(
        lambda: layers.STFTSpectrogram(frame_length=8, frame_step=4, fft_length=16),
        f(32, 1),
        f(None, 1),
        lengths=(32, 40, 17, 24),
    ),
    # images
    "Resizing": [
        *_one(lambda: layers.Resizing(4, 5), PHOTO, draw=image_like),
        *_one(lambda: layers.Resizing(4, 5, interpolation="nearest"), PHOTO, draw=image_like, note="nearest"),
        *_one(lambda: layers.Resizing(4, 5), ANY_IMAGE, draw=image_like),
    ],
    "CenterCrop": _each(lambda: layers.CenterCrop(4, 5), PHOTO, draw=image_like),
    "AutoContrast": _random("AutoContrast"),
    "AugMix": _random("AugMix"),
    "ContrastLimitedAdaptiveHistogramEqualization": _random("ContrastLimitedAdaptiveHistogramEqualization"),
    "CutMix": _one(lambda: layers.CutMix(), PHOTO, f(3), call=_with_labels),
    "MixUp": _one(lambda: layers.MixUp(), PHOTO, f(3), call=_with_labels),
    "Equalization": [
        *_random("Equalization"),
        *_one(
            lambda: layers.Equalization(),
            PHOTO,
            draw=image_like,
            call=lambda layer, x: layer(x, training=True),
            note="training=True",
        ),
    ],
    "MaxNumBoundingBoxes": _one(
        lambda: layers.MaxNumBoundingBoxes(4, bounding_box_format="xyxy"), PHOTO, f(None, 4), f(None), call=_boxes
    ),
    "Pipeline": _one(lambda: layers.Pipeline([layers.Rescaling(2.0), layers.CenterCrop(4, 5)]), PHOTO, draw=image_like),
    "RandAugment": _random("RandAugment"),
    "RandomBrightness": _random("RandomBrightness", 0.2),
    "RandomColorDegeneration": _random("RandomColorDegeneration", 0.5),
    "RandomColorJitter": _random("RandomColorJitter", brightness_factor=0.2),
    "RandomContrast": _random("RandomContrast", 0.2),
    "RandomCrop": _random("RandomCrop", 4, 5),
    "RandomElasticTransform": _random("RandomElasticTransform"),
    "RandomErasing": _random("RandomErasing"),
    "RandomFlip": _random("RandomFlip"),
    "RandomGaussianBlur": _random("RandomGaussianBlur"),
    "RandomGrayscale": _random("RandomGrayscale"),
    "RandomHue": _random("RandomHue", 0.2),
    "RandomInvert": _random("RandomInvert"),
    "RandomPerspective": _random("RandomPerspective"),
    "RandomPosterization": _random("RandomPosterization", 4),
    "RandomRotation": _random("RandomRotation", 0.2),
    "RandomSaturation": _random("RandomSaturation", 0.2),
    "RandomSharpness": _random("RandomSharpness", 0.2),
    "RandomShear": _random("RandomShear", 0.2, 0.2),
    "RandomTranslation": _random("RandomTranslation", 0.2, 0.2),
    "RandomZoom": _random("RandomZoom", 0.2),
    "Solarization": _random("Solarization"),
    # models from elsewhere
    "TFSMLayer": _one(_saved_model, f(4)),
}

NOT_APPLICABLE = {
    "Layer": "the abstract base of all layers",
    "Wrapper": "the abstract base of wrappers",
    "InputLayer": "names an input of a model; nothing is computed",
    "InputSpec": "describes an input; not a layer",
    "JaxLayer": "needs JAX",
    "FlaxLayer": "needs JAX and Flax",
    "TorchModuleWrapper": "needs the PyTorch backend",
}
