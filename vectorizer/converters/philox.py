"""Philox-4x32-10 in integer ops: the counter-based generator behind TensorFlow's stateless random ops.

A block of four 32-bit words is a function of a 64-bit key and a 128-bit counter, and element j of a draw is made of
known words of a known block. So the draws of a whole batch, each row with its own key and counter, are one elementwise
expression, bit for bit what the kernel gives each row. (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
SC11. How TensorFlow 2.21 makes numbers of words: `core/lib/random/random_distributions.h`.)

Keys are uint64 `[R, 1]`, counters uint64 `[R, 2]`, draws `[R, count]`. Words are held in uint64, in which the product
of two of them is exact.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_SEED_KEY = (0x3EC8F720, 0x02461E29)  # with this key TensorFlow makes a key and a counter of a seed
_MANTISSA_BITS = {tf.float16: 10, tf.bfloat16: 7, tf.float32: 23, tf.float64: 52}
_WORDS_IN_BLOCK = 4

UNIFORM_DTYPES = frozenset(_MANTISSA_BITS)


def key_and_counter(seed: Any) -> tuple[Any, Any]:
    """The keys and counters of seeds `[R, 2]` (int32, int64 or unsigned): what `StatelessRandomGetKeyCounter` gives."""
    halves = seed if seed.dtype == tf.uint64 else tf.bitcast(tf.cast(seed, tf.int64), tf.uint64)
    key = [_uint64(lane) for lane in _SEED_KEY]
    mixed = _mix(_lanes(halves[:, :1], halves[:, 1:]), key)
    joined = [_joined(mixed[0], mixed[1]), _joined(mixed[2], mixed[3])]
    return joined[0], tf.concat([tf.zeros_like(joined[1]), joined[1]], 1)


def advanced(counter: Any, steps: Any) -> Any:
    """Counters moved on by `steps` blocks (uint64 `[R]`)."""
    low = counter[:, 0] + steps
    return tf.stack([low, counter[:, 1] + tf.cast(low < steps, tf.uint64)], axis=1)


def uniform(dtype: Any, key: Any, counter: Any, count: Any) -> Any:
    """Floats from [0, 1): the kernel sets the mantissa of a number between 1 and 2 and takes 1 off."""
    bits = _MANTISSA_BITS[dtype]
    if bits > 32:
        words = _pairs(key, counter, count)
        mantissa = _joined(words[..., 1], _masked(words[..., 0], bits - 32))
    else:
        mantissa = _masked(_words(key, counter, count), bits)
    return tf.cast(mantissa, dtype) * tf.constant(2.0**-bits, dtype)


def full_int(dtype: Any, key: Any, counter: Any, count: Any) -> Any:
    """Integers from all that `dtype` (32 or 64 bits) holds."""
    return _as_integer(_integer_bits(dtype, key, counter, count), dtype)


def uniform_int(dtype: Any, key: Any, counter: Any, count: Any, low: Any, high: Any) -> Any:
    """Integers from [low, high), two tensors of `dtype` that broadcast against `[R, count]`; low is less than high."""
    start, stop = _from_integer(low), _from_integer(high)
    spread = stop - start if dtype.size == 8 else _low(stop - start)
    return _as_integer(start + _integer_bits(dtype, key, counter, count) % spread, dtype)


def _uint64(value: int) -> Any:
    return tf.constant(value, tf.uint64)


def _masked(value: Any, bits: int) -> Any:
    return tf.bitwise.bitwise_and(value, _uint64(2**bits - 1))


def _low(value: Any) -> Any:
    return _masked(value, 32)


def _high(value: Any) -> Any:
    return tf.bitwise.right_shift(value, _uint64(32))


def _joined(low: Any, high: Any) -> Any:
    return tf.bitwise.bitwise_or(low, tf.bitwise.left_shift(high, _uint64(32)))


def _lanes(first: Any, second: Any) -> list[Any]:
    return [_low(first), _high(first), _low(second), _high(second)]


def _mix(counter: list[Any], key: list[Any]) -> list[Any]:
    """The four words of a block: of four lanes of the counter and two of the key, which broadcast."""
    xor = tf.bitwise.bitwise_xor
    for _ in range(_ROUNDS):
        first = counter[0] * _uint64(_MULTIPLIERS[0])
        second = counter[2] * _uint64(_MULTIPLIERS[1])
        counter = [
            xor(xor(_high(second), counter[1]), key[0]),
            _low(second),
            xor(xor(_high(first), counter[3]), key[1]),
            _low(first),
        ]
        key = [_low(lane + _uint64(step)) for lane, step in zip(key, _KEY_STEPS, strict=True)]
    return counter


def _words(key: Any, counter: Any, count: Any) -> Any:
    """The first `count` words of each row: `[R, count]`."""
    blocks = -(-count // _WORDS_IN_BLOCK)
    steps = tf.cast(tf.range(blocks), tf.uint64)[None, :]
    low = counter[:, :1] + steps
    lanes = _lanes(low, counter[:, 1:] + tf.cast(low < steps, tf.uint64))
    mixed = tf.stack(_mix(lanes, [_low(key), _high(key)]), axis=2)
    rows = key.shape[0] if key.shape[0] is not None else tf.shape(key)[0]
    return tf.reshape(mixed, [rows, blocks * _WORDS_IN_BLOCK])[:, :count]


def _pairs(key: Any, counter: Any, count: Any) -> Any:
    rows = key.shape[0] if key.shape[0] is not None else tf.shape(key)[0]
    return tf.reshape(_words(key, counter, count * 2), [rows, count, 2])


def _integer_bits(dtype: Any, key: Any, counter: Any, count: Any) -> Any:
    if dtype.size == 4:
        return _words(key, counter, count)
    words = _pairs(key, counter, count)
    return _joined(words[..., 0], words[..., 1])


def _as_integer(bits: Any, dtype: Any) -> Any:
    """The integer of `dtype` with the low bits of `bits`."""
    if dtype.size == 8:
        return tf.bitcast(bits, dtype)
    return tf.bitcast(tf.cast(_low(bits), tf.uint32), dtype)


def _from_integer(value: Any) -> Any:
    if value.dtype.size == 8:
        return tf.bitcast(value, tf.uint64)
    return tf.cast(tf.bitcast(value, tf.uint32), tf.uint64)
