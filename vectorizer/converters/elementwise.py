"""Ops that work on each element alone: the kernel is the same, the operands are aligned first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from vectorizer.batch import Batch
from vectorizer.converters.alignment import agree, align
from vectorizer.program import Op
from vectorizer.registry import converts, replay, run_unchanged
from vectorizer.values import Value, batched, negated, vector

UNARY = """
    Abs Acos Acosh Asin Asinh Atan Atanh BesselI0e BesselI1e Cast Ceil ComplexAbs Angle Conj Cos Cosh Digamma
    Elu Erf Erfc Erfinv Exp Expm1 Floor Identity Imag Inv Invert IsFinite IsInf IsNan LeakyRelu Lgamma Log
    Log1p Ndtri Neg OnesLike PopulationCount PreventGradient Real Reciprocal Relu Relu6 Rint Round
    Rsqrt Selu Sigmoid Sign Sin Sinh Snapshot Softplus Softsign Sqrt Square StopGradient Tan Tanh ZerosLike
    FakeQuantWithMinMaxArgs DataFormatDimMap
"""
UNARY_WITHOUT_XLA = """
    BesselI0 BesselI1 BesselJ0 BesselJ1 BesselK0 BesselK0e BesselK1 BesselK1e BesselY0 BesselY1 Dawsn Expint
    FresnelCos FresnelSin Spence
    AsString EncodeBase64 StaticRegexFullMatch StaticRegexReplace StringLength StringLower StringStrip
    StringToHashBucket StringToHashBucketFast StringToHashBucketStrong StringUpper UnicodeScript
"""
BINARY = """
    Add AddV2 Atan2 BitwiseAnd BitwiseOr BitwiseXor Complex DivNoNan Equal Greater GreaterEqual Igamma
    IgammaGradA Igammac LeftShift Less LessEqual LogicalAnd LogicalOr Maximum Minimum MulNoNan Mul NextAfter
    NotEqual Polygamma RealDiv RightShift SquaredDifference Sub Xdivy Xlog1py Xlogy Zeta
"""
BINARY_OF_ONE_SHAPE = """
    ApproximateEqual EluGrad LeakyReluGrad ReciprocalGrad Relu6Grad ReluGrad RsqrtGrad SeluGrad SigmoidGrad
    SoftplusGrad SoftsignGrad SqrtGrad TanhGrad FakeQuantWithMinMaxArgsGradient
"""

_COUNTS = (tf.int32, tf.int64)  # what sizes are counted in; smaller integers wrap around, and no bound holds


@converts(UNARY)
@converts(UNARY_WITHOUT_XLA, compilable=False)
def convert_unary(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """One operand; its Sizes are the result's."""
    (value,) = inputs
    if value.parts is not None:
        return [vector([_scalar(op, [part], batch) for part in value.parts])]
    (tensor,) = replay(op, [value.tensor])
    keeps_number = op.type in ("Cast", "StopGradient", "Identity") and tensor.dtype in _COUNTS
    return [
        Value(
            tensor,
            True,
            value.sizes,
            size=value.size if keeps_number else None,
            upper=value.upper if keeps_number else None,
        )
    ]


@converts("LogicalNot")
def convert_not(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """As the function does it eagerly: of a comparison with NaN that fails, true."""
    (value,) = inputs
    return [batched(negated(value.tensor), value.sizes)]


@converts(BINARY)
def convert_binary(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Two operands that broadcast."""
    return _binary_if_batched(op, inputs, batch)


@converts(BINARY_OF_ONE_SHAPE)
@converts("InvGrad", compilable=False)
def convert_binary_of_one_shape(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Two operands, by a kernel that doesn't broadcast: a shared one is repeated for every row."""
    return [_scalar(op, [Value(batch.rows(value), True, value.sizes) for value in inputs], batch)]


def _scalar(op: Op, inputs: Sequence[Value], batch: Batch) -> Value:
    """Align, run the kernel; small integer arithmetic keeps its bounds."""
    if not any(value.batched for value in inputs):
        return run_unchanged(op, inputs)[0]
    tensors, sizes = align(inputs, batch)
    (tensor,) = replay(op, tensors)
    size = upper = None
    if tensor.dtype in _COUNTS and all(value.rank == 0 for value in inputs):
        size, upper = _integer_facts(op, inputs)
    return Value(tensor, True, sizes, size=size, upper=upper)


def _by_parts(op: Op, inputs: Sequence[Value], batch: Batch) -> Value | None:
    """Elementwise arithmetic on shape vectors, element by element."""
    counts = {value.shape[0] for value in inputs if value.rank == 1}
    if len(counts - {1}) > 1 or None in counts or any(value.rank > 1 for value in inputs):
        return None
    count = max(size for size in counts if size is not None)
    columns = []
    for value in inputs:
        elements = value.elements() if value.rank == 1 else (value,)
        columns.append(elements * count if len(elements) == 1 else elements)
    return vector([_scalar(op, list(row), batch) for row in zip(*columns, strict=True)])


def _integer_facts(op: Op, inputs: Sequence[Value]) -> tuple[Any, Any]:
    """(size, upper) of a sum, difference, minimum, ... of per-example integers, as far as they're known."""
    if op.type == "Cast":
        return inputs[0].size, inputs[0].upper
    if len(inputs) != 2:
        return None, None
    left, right = inputs
    uppers = [_upper(value) for value in inputs]
    constants = [None if value.batched else value.static() for value in inputs]
    if op.type in ("Add", "AddV2"):
        for value, constant in ((left, constants[1]), (right, constants[0])):
            if constant == 0:
                return value.size, value.upper
        return None, None if None in uppers else _plus(uppers[0], uppers[1])
    if op.type == "Sub":
        if constants[1] == 0:
            return left.size, left.upper
        if constants[1] is not None and uppers[0] is not None:
            return None, _plus(uppers[0], -int(constants[1]))
        if constants[0] is not None and right.size is not None:
            return None, int(constants[0])  # a size isn't negative
        return None, None
    if op.type == "Mul":
        for value, constant in ((left, constants[1]), (right, constants[0])):
            if constant == 1:
                return value.size, value.upper
            if constant is not None and constant > 0 and value.upper is not None:
                return None, value.upper * int(constant)
        if None not in uppers and left.batched and right.batched and left.size and right.size:
            return None, uppers[0] * uppers[1]
        return None, None
    if op.type == "Minimum":
        known = [upper for upper in uppers if upper is not None]
        return None, known[0] if known else None
    if op.type == "Maximum":
        for value, constant in ((left, constants[1]), (right, constants[0])):
            if constant is not None and constant <= 0 and value.size is not None:
                return value.size, value.upper
        return None, None if None in uppers else _max(uppers[0], uppers[1])
    if op.type in ("FloorMod", "TruncateMod", "Mod") and constants[1] is not None and constants[1] > 0:
        return None, int(constants[1]) - 1
    if op.type in ("FloorDiv", "Div", "TruncateDiv", "RealDiv"):
        if constants[1] == 1:
            return left.size, left.upper
        if constants[1] is not None and constants[1] > 0 and left.upper is not None:
            return None, _max(left.upper, 0)
    return None, None


def _upper(value: Value) -> Any:
    if value.batched:
        return value.upper
    known = value.static()
    return int(known) if known is not None else tf.cast(value.tensor, tf.int32)


def _plus(left: Any, right: Any) -> Any:
    return left + right if isinstance(left, int) and isinstance(right, int) else tf.add(left, right)


def _max(left: Any, right: Any) -> Any:
    return max(left, right) if isinstance(left, int) and isinstance(right, int) else tf.maximum(left, right)


@converts("Div FloorDiv FloorMod Mod TruncateDiv TruncateMod", checks="integer division by zero")
def convert_division(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Division that raises for an integer divisor of zero: such rows fail, and divide by one instead."""
    divisor = inputs[1]
    if divisor.dtype.is_integer and not _known_nonzero(divisor):
        zero = divisor.tensor == tf.zeros([], divisor.dtype)
        batch.fail_where(zero, divisor)
        safe = tf.where(zero, tf.ones([], divisor.dtype), divisor.tensor)
        inputs = [inputs[0], Value(safe, divisor.batched, divisor.sizes)]
    return _binary_if_batched(op, inputs, batch)


def _binary_if_batched(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    if not any(value.batched for value in inputs):
        return run_unchanged(op, inputs)
    if any(value.parts is not None for value in inputs):
        tracked = _by_parts(op, inputs, batch)
        if tracked is not None:
            return [tracked]
    return [_scalar(op, inputs, batch)]


def _known_nonzero(divisor: Value) -> bool:
    known = divisor.static()
    return known is not None and bool((known != 0).all())


@converts("Pow", checks="an integer to a negative power")
def convert_power(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Integers know no negative powers: such rows fail."""
    exponent = inputs[1]
    if exponent.dtype.is_integer:
        negative = exponent.tensor < 0
        batch.fail_where(negative, exponent)
        safe = tf.where(negative, tf.zeros([], exponent.dtype), exponent.tensor)
        inputs = [inputs[0], Value(safe, exponent.batched, exponent.sizes)]
    return _binary_if_batched(op, inputs, batch)


@converts("SelectV2")
def convert_select(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Three operands that broadcast."""
    return [_scalar(op, inputs, batch)]


@converts("Select")
def convert_select_v1(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """As SelectV2, but a vector condition selects along the first axis."""
    condition, left, right = inputs
    if condition.rank == 1 and left.rank > 1:
        tensor = condition.tensor[(..., *([None] * (left.rank - 1)))]
        condition = Value(tensor, condition.batched, condition.sizes)
    tensors, sizes = align([condition, left, right], batch)
    return [batched(tf.where(*tensors), sizes)]


@converts("ClipByValue Betainc")
def convert_ternary(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Three operands that broadcast, by a kernel that wants equal shapes or scalars."""
    tensors, sizes = align(inputs, batch)
    if op.type == "ClipByValue":
        value, low, high = tensors  # as the kernel compares: a bound that is NaN bounds nothing
        return [batched(tf.where(value < low, low, tf.where(value > high, high, value)), sizes)]
    full = tf.broadcast_dynamic_shape(tf.shape(tensors[0]), tf.shape(tensors[1]))
    full = tf.broadcast_dynamic_shape(full, tf.shape(tensors[2]))
    (tensor,) = replay(op, [tf.broadcast_to(item, full) for item in tensors])
    return [batched(tensor, sizes)]


@converts("AddN", checks="the shapes differ")
def convert_add_n(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """A sum of many operands of one shape."""
    if not any(value.batched for value in inputs):
        return run_unchanged(op, inputs)
    tensors, sizes = align(agree(inputs, batch), batch)
    total = tensors[0]
    for tensor in tensors[1:]:
        total = total + tensor
    return [batched(total, sizes)]


@converts("IdentityN")
def convert_identity_n(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Hands its operands on."""
    return list(inputs)


@converts("BiasAdd BiasAddV1")
def convert_bias_add(op: Op, inputs: Sequence[Value], batch: Batch) -> list[Value]:
    """Adds a vector along the channel axis."""
    value, bias = inputs
    tensor = bias.tensor
    if op.attrs.get("data_format") == b"NCHW" and value.rank > 1:
        tensor = tensor[(..., *([None] * (value.rank - 2)))]
    tensors, sizes = align([value, Value(tensor, bias.batched)], batch)
    return [batched(tensors[0] + tensors[1], sizes)]
