"""Random numbers.

*Stateless* ops are functions of a seed (or of a key and a counter): row i must have, bit for bit, what the function
alone draws. With a shared seed the op runs once. With a seed for each row uniform numbers and integers are computed for
the whole batch in integer ops (`philox.py`); other distributions go through the kernel's own logarithms and sines,
which no other op gives to the last bit, so those are looped over the rows. Under XLA the kernels make other numbers of
the same seed: uniform ones are computed by `philox.py` there too, the others are not compiled.

*Stateful* ops draw from hidden state: `vectorize(randomness=)` says whether rows draw "different" numbers, as one op of
a batched shape, or the "same" ones, drawn once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from vectorizer.batch import Batch
from vectorizer.converters import philox
from vectorizer.converters.shapes import dense_dims
from vectorizer.errors import Unconvertible
from vectorizer.program import Op
from vectorizer.registry import ConverterFunction, converts, replay, run_unchanged
from vectorizer.values import NotConvertible, Size, Value, batched, dimension, fill_padding, shared, size_mask
from vectorizer.xla_kernels import compiling

_PHILOX = (1, 3)  # what `alg` means: Philox, and "choose", which on CPUs and GPUs is Philox
_BLOCKS_PER_DRAW = 256  # by how much TensorFlow moves a generator's counter on for each number drawn


# -- stateless --------------------------------------------------------------------------------------------------------


@converts("StatelessRandomGetAlg", always=True)
def convert_get_algorithm(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Philox, on CPUs and GPUs."""
    return [shared(tf.constant(_PHILOX[0]))]


@converts("StatelessRandomGetKeyCounter StatelessRandomGetKeyCounterAlg", always=True)
def convert_get_key_counter(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """The key and counter that a seed stands for."""
    (seed,) = inputs
    algorithm = [shared(tf.constant(_PHILOX[0]))] if op.type.endswith("Alg") else []
    if seed.batched:
        key, counter = philox.key_and_counter(seed.tensor)
        return [batched(key), batched(counter), *algorithm]
    if not compiling():
        return run_unchanged(op, inputs)
    key, counter = philox.key_and_counter(seed.tensor[None])  # XLA's kernel takes a negative seed for another one
    return [shared(key[0]), shared(counter[0]), *algorithm]


@converts("StatelessRandomUniformV2 StatelessRandomUniform", always=True)
def convert_stateless_uniform(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Floats from [0, 1)."""
    shape, source = inputs[0], inputs[1:]
    dtype = op.outputs[0].dtype
    if not any(value.batched for value in source) and not compiling():
        return _from_one_seed(op, inputs, batch)
    key, counter = _key_and_counter(op, source)
    return [_arranged(shape, batch, lambda count: philox.uniform(dtype, key, counter, count))]


@converts("StatelessRandomUniformFullIntV2 StatelessRandomUniformFullInt", always=True)
def convert_stateless_full_int(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Integers from all that the dtype holds."""
    shape, source = inputs[0], inputs[1:]
    if not any(value.batched for value in source) and not compiling():
        return _from_one_seed(op, inputs, batch)
    key, counter = _key_and_counter(op, source)
    return [_arranged(shape, batch, lambda count: philox.full_int(op.outputs[0].dtype, key, counter, count))]


@converts("StatelessRandomUniformIntV2 StatelessRandomUniformInt", checks="the range is empty")
def convert_stateless_uniform_int(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Integers from a range; a row whose range is empty fails."""
    shape, *source, low, high = inputs
    low, high = _checked_range(shape, low, high, batch)
    if not any(value.batched for value in (*source, low, high)) and not compiling():
        return _from_one_seed(op, [shape, *source, low, high], batch)
    key, counter = _key_and_counter(op, source)
    ends = [value.tensor[:, None] if value.batched else value.tensor for value in (low, high)]

    def draw(count: Any) -> Any:
        return philox.uniform_int(op.outputs[0].dtype, key, counter, count, *ends)

    return [_arranged(shape, batch, draw)]


def _checked_range(shape: Value, low: Value, high: Value, batch: Batch) -> tuple[Value, Value]:
    """Rows whose range is empty fail, unless they draw nothing; their range is made harmless."""
    known = low.static(), high.static()
    if known[0] is not None and known[1] is not None and known[0] < known[1]:
        return low, high
    good = low.tensor < high.tensor
    count = _product(shape.elements())
    batch.check(tf.logical_or(good, (batch.rows(count) if count.batched else count.tensor) == 0))
    is_batched = low.batched or high.batched
    upper = tf.where(good, high.tensor, tf.maximum(low.tensor, low.dtype.min + 1))
    return Value(tf.where(good, low.tensor, low.dtype.min), is_batched), Value(upper, is_batched)


def _product(elements: Sequence[Value]) -> Value:
    total, is_batched = tf.constant(1, tf.int64), False
    for element in elements:
        total = total * tf.cast(element.tensor, tf.int64)
        is_batched = is_batched or element.batched
    return Value(total, is_batched)


@converts(
    "StatelessRandomNormalV2 StatelessTruncatedNormalV2 StatelessRandomNormal StatelessTruncatedNormal",
    compilable=False,
)
def convert_stateless_normal(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Normal numbers of one seed, as many as each row asks for. A seed for each row is looped over the rows."""
    if any(value.batched for value in inputs[1:]):
        raise NotConvertible(f"the seeds differ between examples, and {_ONLY_KERNEL}")
    return _from_one_seed(op, inputs, batch)


_ONLY_KERNEL = "only the kernel itself gives these numbers to the last bit"


@converts(
    """StatelessMultinomial StatelessRandomBinomial StatelessRandomGammaV2 StatelessRandomGammaV3
    StatelessRandomPoisson StatelessParameterizedTruncatedNormal""",
    compilable=False,
)
def convert_looped_draw(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Once if all operands are shared; else only the kernel itself gives a row's numbers."""
    raise NotConvertible(f"the seed or a parameter differs between examples, and {_ONLY_KERNEL}")


@converts("StatelessShuffle", compilable=False)
def convert_stateless_shuffle(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """One seed: every row in the same new order. A seed for each row is looped over the rows."""
    value, *source = inputs
    if any(item.batched for item in source) or 0 in value.sizes:
        raise NotConvertible("the seed or the number of elements differs between examples; the kernel swaps in turn")
    order = replay(op, [tf.range(dimension(value.tensor, 1)), *(item.tensor for item in source)])[0]
    return [batched(tf.gather(value.tensor, order, axis=1), value.sizes)]


@converts("RandomIndexShuffle", compilable=False)
def convert_index_shuffle(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Where a permutation by seed puts an index. The kernel takes a vector of each operand."""
    if any(value.rank for value in (inputs[0], inputs[2])) or inputs[1].rank != 1:
        raise NotConvertible("several indices of one example")
    return [batched(replay(op, [batch.rows(value) for value in inputs])[0])]


@converts("Bitcast")
def convert_bitcast(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """The same bits in another dtype; of another width, the last axis splits or joins them."""
    (value,) = inputs
    if value.rank - 1 in value.sizes and op.outputs[0].dtype.size > value.dtype.size:
        raise NotConvertible("joining the elements of an axis whose size differs between examples")
    return [batched(replay(op, [value.tensor])[0], value.sizes)]


def _key_and_counter(op: Op, source: Sequence[Value]) -> tuple[Any, Any]:
    """Keys `[R, 1]` and counters `[R, 2]` of the operands between the shape and the parameters; R is 1 if shared."""
    tensors = [value.tensor if value.batched else value.tensor[None] for value in source[:2]]
    if len(source) == 1:
        return philox.key_and_counter(tensors[0])
    algorithm = source[2].static()
    if algorithm is None or int(algorithm) not in _PHILOX:
        raise NotConvertible("the generator's algorithm isn't Philox, or isn't known when the program is built")
    return tensors[0], tensors[1]


def _from_one_seed(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """All rows read from one sequence of numbers, each as many as its shape asks for."""
    if not inputs[0].batched:
        return run_unchanged(op, inputs)
    rest = [value.tensor for value in inputs[1:]]

    def draw(count: Any) -> Any:
        return replay(op, [tf.cast(tf.reshape(count, [1]), inputs[0].dtype), *rest])[0][None]

    return [_arranged(inputs[0], batch, draw)]


def _arranged(shape: Value, batch: Batch, draw: Callable[[Any], Any]) -> Value:
    """`draw(count)`, `[R, count]`, in a shape that may differ between rows: each fills its own, last axis fastest."""
    dims, sizes = dense_dims(shape.elements(), batch)
    total: Any = 1
    for dim in dims:
        total = total * dim
    flat = draw(total)
    if not sizes:
        if flat.shape[0] == 1:
            return shared(tf.reshape(flat[0], dims))
        return batched(tf.reshape(flat, [batch.size, *dims]))
    rows = tf.reshape(flat, [dimension(flat, 0), *dims]) if set(sizes) == {0} else _by_own_strides(flat, dims, sizes)
    return batched(tf.broadcast_to(rows, [batch.size, *dims]), sizes)


def _by_own_strides(flat: Any, dims: Sequence[Any], sizes: dict[int, Size]) -> Any:
    rank = len(dims)
    place: Any = tf.zeros([1] * (rank + 1), tf.int32)
    for axis, dim in enumerate(dims):
        lengths = tf.reshape(sizes[axis].lengths, [-1] + [1] * rank) if axis in sizes else dim
        along = tf.reshape(tf.range(dim), [1] * (axis + 1) + [-1] + [1] * (rank - axis - 1))
        place = place * lengths + along
    place = tf.minimum(place, dimension(flat, 1) - 1)  # padding reads anything
    return tf.gather(flat[0], place) if flat.shape[0] == 1 else tf.gather(flat, place, axis=1, batch_dims=1)


# -- stateful ---------------------------------------------------------------------------------------------------------


def _draws(names: str, *, compilable: bool = True) -> Callable[[ConverterFunction], ConverterFunction]:
    """Registers a rule for stateful ops. Where rows must draw the same, a loop over the rows can't stand in."""

    def register(function: ConverterFunction) -> ConverterFunction:
        def convert_random(op: Op, inputs: Sequence[Value], batch: Batch) -> Sequence[Value]:
            try:
                return function(op, inputs, batch)
            except NotConvertible as reason:
                if batch.randomness == "same":
                    raise Unconvertible(op, f"can't be drawn once for all rows: {reason}") from reason
                raise

        return converts(names, compilable=compilable, always=True)(convert_random)

    return register


def _draw_shaped(op: Op, inputs: Sequence[Value], batch: Batch, at: int) -> list[Value]:
    """Draws of a shape (operand `at`) from one distribution."""
    shape = inputs[at]
    if any(value.batched for k, value in enumerate(inputs) if k != at):
        raise NotConvertible("the distribution's parameters differ between examples")

    def drawn(dims: Any) -> Any:
        tensors = [value.tensor for value in inputs]
        tensors[at] = tf.cast(tf.stack(dims), shape.dtype)
        return replay(op, tensors)[0]

    if batch.randomness == "same":
        if not shape.batched:
            return run_unchanged(op, inputs)
        return [_arranged(shape, batch, lambda count: drawn([count])[None])]
    dims, sizes = dense_dims(shape.elements() if shape.shape != [0] else (), batch)
    return [batched(drawn([batch.size, *dims]), sizes)]


@_draws("RandomUniform RandomUniformInt RandomStandardNormal TruncatedNormal")
def _convert_shape_first(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    return _draw_shaped(op, inputs, batch, 0)


@_draws(
    """StatefulUniform StatefulUniformInt StatefulUniformFullInt StatefulStandardNormalV2
    StatefulTruncatedNormal""",
    compilable=False,
)
def _convert_of_generator(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    return _draw_shaped(op, inputs, batch, len(op.definition.input_arg) - 1 if len(inputs) < 4 else 2)


@_draws("RandomGamma RandomPoissonV2", compilable=False)
def _convert_with_parameters(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    shape, parameters = inputs
    if batch.randomness == "same":
        return run_unchanged(op, inputs)
    if shape.batched:
        raise NotConvertible("the number of draws differs between examples")
    count = shape.shape[0]
    if count is None:
        raise NotConvertible("a shape of unknown length")
    if not parameters.batched:
        full = tf.concat([tf.constant([batch.size]) if isinstance(batch.size, int) else batch.size[None]], 0)
        return [batched(replay(op, [tf.concat([tf.cast(full, shape.dtype), shape.tensor], 0), parameters.tensor])[0])]
    harmless = fill_padding(parameters, sorted(parameters.sizes), 1)
    drawn = replay(op, [shape.tensor, harmless])[0]  # [*shape, B, *parameters]
    order = [count, *range(count), *range(count + 1, count + parameters.rank + 1)]
    return [batched(tf.transpose(drawn, order), {axis + count: size for axis, size in parameters.sizes.items()})]


@_draws("Multinomial")
def _convert_multinomial(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    logits, samples = inputs
    if batch.randomness == "same":
        return run_unchanged(op, inputs)
    if logits.sizes or samples.batched:
        raise NotConvertible("the number of classes or of draws differs between examples")
    rows = batch.rows(logits)
    count, classes = dimension(rows, 1), dimension(rows, 2)
    drawn = replay(op, [tf.reshape(rows, [batch.size * count, classes]), samples.tensor])[0]
    return [batched(tf.reshape(drawn, [batch.size, count, samples.tensor]))]


@_draws("RandomShuffle")
def _convert_shuffle(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Each row in the order of random keys, padding last."""
    (value,) = inputs
    if value.rank == 0 or (batch.randomness == "same" and not value.batched):
        return run_unchanged(op, inputs) if not value.batched else [value]
    rows = batch.rows(value)
    count = dimension(rows, 1)
    keys = tf.random.uniform([1 if batch.randomness == "same" else batch.size, count], dtype=tf.float64)
    if 0 in value.sizes:
        keys = tf.where(size_mask(value.sizes[0], 1, 0), keys, 2)
    order = tf.argsort(keys, axis=1)
    if order.shape[0] == 1:
        return [batched(tf.gather(rows, order[0], axis=1), value.sizes)]
    return [batched(tf.gather(rows, order, axis=1, batch_dims=1), value.sizes)]


@_draws("RngReadAndSkip RngSkip", compilable=False)
def _convert_generator_skip(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Moves the generator on for the whole batch; the rows' counters are spread over what was skipped."""
    resource, algorithm, delta = inputs
    each = tf.reduce_max(delta.tensor) if delta.batched else delta.tensor
    if batch.randomness == "same":
        return [shared(state) for state in replay(op, [resource.tensor, algorithm.tensor, each])]
    if op.type == "RngReadAndSkip" and int(algorithm.static() or 0) not in _PHILOX:
        raise NotConvertible("the generator's algorithm isn't Philox, or isn't known when the program is built")
    states = replay(op, [resource.tensor, algorithm.tensor, each * tf.cast(batch.size, each.dtype)])
    if not states:
        return []
    state = tf.bitcast(states[0], tf.uint64)[None]
    steps = tf.cast(tf.range(batch.size), tf.uint64) * tf.cast(each, tf.uint64) * _BLOCKS_PER_DRAW
    counters = philox.advanced(state[:, :2], steps)
    rows = tf.concat([counters, tf.broadcast_to(state[:, 2:], [batch.size, 1])], 1)
    return [batched(tf.bitcast(rows, states[0].dtype))]


@_draws(
    """ParameterizedTruncatedNormal StatefulRandomBinomial SampleDistortedBoundingBox
    SampleDistortedBoundingBoxV2 NonDeterministicInts AllCandidateSampler FixedUnigramCandidateSampler
    LearnedUnigramCandidateSampler LogUniformCandidateSampler ThreadUnsafeUnigramCandidateSampler
    UniformCandidateSampler""",
    compilable=False,
)
def _convert_each_row(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    if batch.randomness == "same" and not any(value.batched for value in inputs):
        return run_unchanged(op, inputs)
    raise NotConvertible("each row draws its own numbers, and the kernel draws for one example at a time")
