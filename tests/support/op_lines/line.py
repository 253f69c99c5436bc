"""What a line of the table of op lines is, and what its operands may hold."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import tensorflow as tf

from vectorizer.tf_internals import raw_op_arguments

WORDS = ["", "a", "Hello World", "  x ", "ab12", "äöü", "日本"]


@dataclass(frozen=True)
class Line:
    """`fn` over operands of `specs` covers `ops`. `draw(generator, spec, shape)` overrides what the operands
    hold.
    """

    ops: str
    fn: Callable
    specs: tuple
    draw: Callable | None = None
    least: int = 0  # the smallest size drawn for variable dimensions
    shared: bool = True  # whether operands are also tried as one value for all rows
    fixed: bool = True  # False where sizes follow from the data alone: with fixed shapes there may be no room
    rtol: float = 2e-5
    atol: float = 1e-5
    fallbacks: int | None = 0
    name: str = field(default="")
    options: dict = field(default_factory=dict)  # of vectorize


def f(*shape, dtype=tf.float32):
    return tf.TensorSpec(shape, dtype)


def i(*shape, dtype=tf.int32):
    return tf.TensorSpec(shape, dtype)


def b(*shape):
    return tf.TensorSpec(shape, tf.bool)


def s(*shape):
    return tf.TensorSpec(shape, tf.string)


# -- what operands hold --------------------------------------------------------------------------------------


def usual(generator, spec, shape):
    if spec.dtype == tf.string:
        return generator.choice(np.array(WORDS, dtype=object), size=shape) if shape else str(generator.choice(WORDS))
    if spec.dtype == tf.bool:
        return generator.random(shape) < 0.5
    if spec.dtype.is_integer:
        return generator.integers(0, 3, shape).astype(spec.dtype.as_numpy_dtype)
    values = generator.normal(size=shape) * 2
    if spec.dtype.is_complex:
        values = values + 1j * generator.normal(size=shape)
    return values.astype(spec.dtype.as_numpy_dtype)


def positive(generator, spec, shape):
    return np.abs(usual(generator, spec, shape)) + spec.dtype.as_numpy_dtype(0.1)


def within_one(generator, spec, shape):
    return generator.uniform(-0.95, 0.95, shape).astype(spec.dtype.as_numpy_dtype)


def above_one(generator, spec, shape):
    return positive(generator, spec, shape) + spec.dtype.as_numpy_dtype(1)


def below_one(generator, spec, shape):
    return generator.uniform(0.05, 0.95, shape).astype(spec.dtype.as_numpy_dtype)


def with_specials(generator, spec, shape):
    values = np.array(usual(generator, spec, shape))
    specials = generator.choice([np.nan, np.inf, -np.inf, 0.0], size=shape)
    return np.where(generator.random(shape) < 0.4, specials, values).astype(spec.dtype.as_numpy_dtype)


def extreme_integers(generator, spec, shape):
    limits = [spec.dtype.max, spec.dtype.min, 0, 1, 7, spec.dtype.max - 1]
    return generator.choice(np.array(limits, spec.dtype.as_numpy_dtype), size=shape)


def signed_integers(generator, spec, shape):
    values = generator.integers(-9, 9, shape)
    return np.where(values == 0, 5, values).astype(spec.dtype.as_numpy_dtype)


def small_shift(generator, spec, shape):
    return generator.integers(0, 8, shape).astype(spec.dtype.as_numpy_dtype)


def ties(generator, spec, shape):
    return generator.integers(0, 2, shape).astype(spec.dtype.as_numpy_dtype)


def numerals(generator, spec, shape):
    return generator.choice(np.array(["12", "-7", " 3 ", "+0"], dtype=object), size=shape) if shape else "12"


# -- raw ops -------------------------------------------------------------------------------------------------


def raw(name, *operands, **attrs):
    return getattr(tf.raw_ops, name)(**dict(zip(raw_op_arguments(name), operands, strict=False)), **attrs)


def each(names, **attrs):
    """All the ops of a group, each one output."""

    def apply(*operands):
        return {name: raw(name, *operands, **attrs) for name in names.split()}

    return apply
