"""Where XLA's kernels answer otherwise than TensorFlow's own: the same ops, spelt so that compiled programs agree.

The oracle is the per-example function run by TensorFlow. XLA's CPU kernels (TensorFlow 2.21) lose or prefer NaN in
comparisons; found by running every op of `docs/supported_ops.md` on NaN and infinities, with and without XLA
(`tests/vectorizer/test_nan_under_xla.py`, which also lists what TensorFlow itself leaves undefined).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import product
from typing import Any

import numpy as np
import tensorflow as tf

Kernel = Callable[[Sequence[Any]], list[Any]]
Respelt = Callable[[str, Kernel, Sequence[Any], Mapping[str, Any]], list[Any]]

_under_xla: ContextVar[bool] = ContextVar("under_xla", default=False)
_RESPELT: dict[str, Respelt] = {}

_FINITE = """Cholesky MatrixTriangularSolve Qr Svd AdjustHue AdjustSaturation HSVToRGB RGBToHSV Polygamma Zeta
    LRN LRNGrad MaxPoolGrad MaxPoolGradV2 MaxPool3DGrad"""
_POSITIVE = "Igamma Igammac IgammaGradA"
_FINITE_PARAMETERS = "FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3"
DOMAINS: dict[str, tuple[str, int]] = {
    **dict.fromkeys(_FINITE.split(), ("finite", 0)),
    **dict.fromkeys(_POSITIVE.split(), ("positive", 0)),
    **dict.fromkeys(_FINITE_PARAMETERS.split(), ("finite", 1)),
}
"""What operands, from the given one on, must be for XLA to answer as TensorFlow does; compiled, other rows fail."""


def outside_domain(op_type: str, position: int, tensor: Any) -> Any:
    """Where an operand isn't what `DOMAINS` wants of it (bool, as `tensor`), or None if it wants nothing."""
    kind, first = DOMAINS[op_type]
    if position < first or not tensor.dtype.is_floating or not compiling():
        return None
    finite = tf.math.is_finite(tensor)
    return tf.logical_not(tf.logical_and(finite, tensor > 0) if kind == "positive" else finite)


@contextmanager
def under_xla(compiled: bool = True) -> Iterator[None]:
    """What is emitted inside is compiled by XLA."""
    token = _under_xla.set(compiled)
    try:
        yield
    finally:
        _under_xla.reset(token)


def compiling() -> bool:
    """Whether what is emitted now is compiled by XLA."""
    return _under_xla.get()


def run(op_type: str, kernel: Kernel, tensors: Sequence[Any], attrs: Mapping[str, Any]) -> list[Any]:
    """The results of an op on `tensors`: by `kernel`, its own, or respelt if XLA's would differ."""
    inexact = tensors[0].dtype.is_floating or tensors[0].dtype.is_complex
    respelt = _RESPELT.get(op_type) if _under_xla.get() and inexact else None
    return respelt(op_type, kernel, tensors, attrs) if respelt else kernel(tensors)


def _respells(op_types: str) -> Callable[[Respelt], Respelt]:
    def register(function: Respelt) -> Respelt:
        _RESPELT.update(dict.fromkeys(op_types.split(), function))
        return function

    return register


@_respells("Maximum Minimum")
def _nan_of_either(op_type: str, kernel: Kernel, tensors: Sequence[Any], attrs: Mapping[str, Any]) -> list[Any]:
    (result,) = kernel(tensors)
    for tensor in tensors:
        result = tf.where(tf.math.is_nan(tensor), tensor, result)
    return [result]


@_respells("Relu6 FakeQuantWithMinMaxVarsPerChannel")
def _nan_of_the_only_one(op_type: str, kernel: Kernel, tensors: Sequence[Any], attrs: Mapping[str, Any]) -> list[Any]:
    (result,) = kernel(tensors)
    return [tf.where(tf.math.is_nan(tensors[0]), tensors[0], result)]


@_respells("ComplexAbs")
def _infinite_if_either_is(op_type: str, kernel: Kernel, tensors: Sequence[Any], attrs: Mapping[str, Any]) -> list[Any]:
    parts = [tf.math.real(tensors[0]), tf.math.imag(tensors[0])]
    infinite = tf.logical_or(*(tf.math.is_inf(part) for part in parts))
    (result,) = kernel(tensors)
    result = tf.where(tf.math.is_nan(parts[0] + parts[1]), tf.constant(np.nan, result.dtype), result)
    return [tf.where(infinite, tf.constant(np.inf, result.dtype), result)]


@_respells("Cholesky")
def _all_or_nothing(op_type: str, kernel: Kernel, tensors: Sequence[Any], attrs: Mapping[str, Any]) -> list[Any]:
    # Of a factor that doesn't exist TensorFlow leaves nothing, XLA the columns up to where it noticed.
    (factor,) = kernel(tensors)
    if factor.dtype.is_complex:
        return [factor]
    failed = tf.reduce_any(tf.math.is_nan(factor), [-2, -1])
    nothing = tf.linalg.band_part(tf.fill(tf.shape(factor), tf.constant(np.nan, factor.dtype)), -1, 0)
    return [tf.where(failed[..., None, None], nothing, factor)]


@_respells("Max Min")
def _nan_if_any_is(op_type: str, kernel: Kernel, tensors: Sequence[Any], attrs: Mapping[str, Any]) -> list[Any]:
    (result,) = kernel(tensors)
    spoilt = tf.reduce_any(tf.math.is_nan(tensors[0]), tensors[1], keepdims=bool(attrs["keep_dims"]))
    return [tf.where(spoilt, tf.constant(np.nan, result.dtype), result)]


@_respells("UnsortedSegmentMax UnsortedSegmentMin")
def _forget_at_nan(op_type: str, kernel: Kernel, tensors: Sequence[Any], attrs: Mapping[str, Any]) -> list[Any]:
    # TensorFlow compares each element with the extreme so far: NaN replaces it, and is replaced by what follows.
    data, ids, count = tensors
    missing = tf.math.is_nan(data)
    places = tf.reshape(tf.range(tf.shape(data)[0]), [-1] + [1] * (data.shape.rank - 1))
    last = tf.math.unsorted_segment_max(tf.where(missing, places, -1), ids, count)
    follows = places > tf.gather(last, tf.maximum(ids, 0))
    neutral = tf.constant(data.dtype.min if op_type.endswith("Max") else data.dtype.max, data.dtype)
    (result,) = kernel([tf.where(follows, data, neutral), ids, count])
    followed = tf.math.unsorted_segment_sum(tf.cast(follows, tf.int32), ids, count) > 0
    ends = tf.logical_and(last >= 0, tf.equal(followed, False))
    return [tf.where(ends, tf.constant(np.nan, result.dtype), result)]


@_respells("ArgMax ArgMin")
def _pass_over_nan(op_type: str, kernel: Kernel, tensors: Sequence[Any], attrs: Mapping[str, Any]) -> list[Any]:
    worst = tf.constant(-np.inf if op_type == "ArgMax" else np.inf, tensors[0].dtype)
    return kernel([tf.where(tf.math.is_nan(tensors[0]), worst, tensors[0]), tensors[1]])


@_respells("MaxPool MaxPoolV2")
def _from_the_lowest_finite(
    op_type: str, kernel: Kernel, tensors: Sequence[Any], attrs: Mapping[str, Any]
) -> list[Any]:
    # TensorFlow starts each window from the least finite number, and NaN is greater than nothing.
    lowest = tf.constant(tensors[0].dtype.min, tensors[0].dtype)
    return kernel([tf.where(tensors[0] > lowest, tensors[0], lowest), *tensors[1:]])


@_respells("Bucketize")
def _nan_in_the_last_bucket(
    op_type: str, kernel: Kernel, tensors: Sequence[Any], attrs: Mapping[str, Any]
) -> list[Any]:
    (result,) = kernel(tensors)
    return [tf.where(tf.math.is_nan(tensors[0]), len(attrs["boundaries"]), result)]


@_respells("UpperBound")
def _nan_behind_all(op_type: str, kernel: Kernel, tensors: Sequence[Any], attrs: Mapping[str, Any]) -> list[Any]:
    (result,) = kernel(tensors)
    return [tf.where(tf.math.is_nan(tensors[1]), tf.cast(tf.shape(tensors[0])[1], result.dtype), result)]


@_respells("ReluGrad Relu6Grad")
def _nothing_times_infinity(
    op_type: str, kernel: Kernel, tensors: Sequence[Any], attrs: Mapping[str, Any]
) -> list[Any]:
    # TensorFlow multiplies by zero, which makes NaN of a gradient that isn't finite; XLA selects.
    gradients, features = tensors
    passed = features > 0 if op_type == "ReluGrad" else tf.logical_and(features > 0, features < 6)
    return [tf.where(passed, gradients, gradients * tf.zeros([], gradients.dtype))]


@_respells("ReciprocalGrad")
def _no_gradient_stays_none(
    op_type: str, kernel: Kernel, tensors: Sequence[Any], attrs: Mapping[str, Any]
) -> list[Any]:
    # TensorFlow passes over gradients of zero; XLA multiplies, and zero times infinity isn't zero.
    (result,) = kernel(tensors)
    return [tf.where(tensors[1] == 0, tf.zeros([], result.dtype), result)]


@_respells("EluGrad SeluGrad")
def _zero_and_nan_are_not_below(
    op_type: str, kernel: Kernel, tensors: Sequence[Any], attrs: Mapping[str, Any]
) -> list[Any]:
    # XLA takes the curve's slope, not the line's, where the output is zero: for selu these are two values.
    gradients, outputs = tensors
    below = outputs < 0
    line = kernel([gradients, tf.ones_like(outputs)])
    return [tf.where(below, *kernel([gradients, tf.where(below, outputs, -tf.ones_like(outputs))]), *line)]


@_respells("FakeQuantWithMinMaxArgsGradient")
def _zero_times_infinity(op_type: str, kernel: Kernel, tensors: Sequence[Any], attrs: Mapping[str, Any]) -> list[Any]:
    (result,) = kernel(tensors)
    stopped = tf.logical_and(result == 0, tf.equal(tf.math.is_finite(tensors[0]), False))
    return [tf.where(stopped, tf.constant(np.nan, result.dtype), result)]


@_respells("ExtractImagePatches")
def _cut_out(op_type: str, kernel: Kernel, tensors: Sequence[Any], attrs: Mapping[str, Any]) -> list[Any]:
    # XLA convolves with ones and zeros, and zero times NaN is NaN: every pixel of a window would be.
    (images,) = tensors
    windows = _windows(images, attrs["ksizes"], attrs["strides"], attrs["rates"], attrs["padding"])
    return kernel(tensors) if windows is None else [tf.concat(windows, -1)]


@_respells("ResizeBilinear")
def _between_neighbours(op_type: str, kernel: Kernel, tensors: Sequence[Any], attrs: Mapping[str, Any]) -> list[Any]:
    # XLA convolves here, too.
    images, size = tensors[0], tf.get_static_value(tensors[1])
    if size is None or None in images.shape[1:3]:
        return kernel(tensors)
    result = tf.cast(images, tf.float32)
    for axis in (2, 1):
        low, high, share = _neighbours(images.shape[axis], int(size[axis - 1]), attrs)
        first = tf.gather(result, low, axis=axis)
        result = first + (tf.gather(result, high, axis=axis) - first) * np.reshape(share, [-1] + [1] * (3 - axis))
    return [result]


@_respells("ResizeBilinearGrad")
def _to_the_neighbours(op_type: str, kernel: Kernel, tensors: Sequence[Any], attrs: Mapping[str, Any]) -> list[Any]:
    result, images = tensors
    if None in images.shape[1:3] or None in result.shape[1:3]:
        return kernel(tensors)
    for axis in (1, 2):
        low, high, share = _neighbours(images.shape[axis], result.shape[axis], attrs)
        share = np.reshape(share, [-1, 1, 1, 1])
        order = [axis, *(other for other in range(4) if other != axis)]
        rows = tf.transpose(result, order)
        given = tf.math.unsorted_segment_sum(rows * (1 - share), low, images.shape[axis])
        given += tf.math.unsorted_segment_sum(rows * share, high, images.shape[axis])
        result = tf.transpose(given, np.argsort(order))
    return [tf.cast(result, images.dtype)]


def _neighbours(own: int, wanted: int, attrs: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """For each of `wanted` places along an axis of `own` pixels: the pixels before and behind, and how far between."""
    ends = attrs["align_corners"] and wanted > 1
    scale = np.float32((own - 1) / (wanted - 1) if ends else own / wanted)
    half = np.float32(0.5 if attrs["half_pixel_centers"] else 0)
    places = (np.arange(wanted, dtype=np.float32) + half) * scale - half
    low = np.clip(np.floor(places), 0, own - 1).astype(np.int32)
    high = np.minimum(np.ceil(places), own - 1).astype(np.int32)
    return low, high, places - np.floor(places)


@_respells("MaxPoolGradGrad MaxPoolGradGradV2 MaxPool3DGradGrad")
def _first_of_the_maxima(op_type: str, kernel: Kernel, tensors: Sequence[Any], attrs: Mapping[str, Any]) -> list[Any]:
    # XLA looks for the largest element of a window among numbers rounded to 16 bits.
    images, maxima, gradients, *window = tensors
    sizes, strides = map(tf.get_static_value, window) if window else (attrs["ksize"], attrs["strides"])
    cut = [_windows(each, sizes, strides, [1] * len(sizes), attrs["padding"], np.nan) for each in (images, gradients)]
    if attrs["data_format"] not in (b"NHWC", b"NDHWC") or None in cut:
        return kernel(tensors)
    result = tf.zeros_like(maxima)
    for image, gradient in reversed(list(zip(*cut, strict=True))):
        result = tf.where(image == maxima, gradient, result)
    return [result]


def _windows(
    images: Any, sizes: Sequence[int], strides: Sequence[int], rates: Sequence[int], padding: bytes, around: float = 0
) -> list[Any] | None:
    """The first element of every window, the second, and so on, each `[N, ..., C]`; None unless the shape is known."""
    if None in images.shape[1:]:
        return None
    pads, cuts = [[0, 0]], []
    for axis in range(1, images.shape.rank - 1):
        size, stride, rate = images.shape[axis], strides[axis], rates[axis]
        reach = (sizes[axis] - 1) * rate + 1
        same = padding == b"SAME"
        outputs = (size + stride - 1) // stride if same else (size - reach) // stride + 1
        missing = max((outputs - 1) * stride + reach - size, 0) if same else 0
        pads.append([missing // 2, missing - missing // 2])
        cuts.append([slice(k * rate, k * rate + (outputs - 1) * stride + 1, stride) for k in range(sizes[axis])])
    padded = tf.pad(images, [*pads, [0, 0]], constant_values=tf.constant(around, images.dtype))
    return [padded[(slice(None), *place)] for place in product(*cuts)]
