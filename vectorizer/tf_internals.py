"""The only module that touches TensorFlow API that isn't public.

Everything here was seen to work on TensorFlow 2.21; a test pins each function, so that another version
fails there first and by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

_TENSORFLOW_ROOT = str(Path(tf.__file__).resolve().parent)
_NOT_USER_CODE = (_TENSORFLOW_ROOT, f"{Path(__file__).resolve().parent}/", "/keras/src/", "/autograph/")
_RENAMED_ARGUMENTS = {
    # op_def name -> keyword of tf.raw_ops, where they differ
    "reduction_indices": "axis",
    "dim": "axis",
    "split_dim": "axis",
    "concat_dim": "axis",
    "dimension": "axis",
}
RENAMED_ATTRIBUTES = {("Squeeze", "squeeze_dims"): "axis"}  # the only one (TensorFlow 2.21; a test looks)


def nested_graph(graph: Any, function_name: str) -> Any:
    """The FuncGraph of a function that an op of `graph` refers to by name (a loop body, a branch, a call)."""
    while graph is not None:
        function = graph._get_function(function_name)
        if function is not None:
            if getattr(function, "graph", None) is not None:
                return function.graph
            break
        graph = getattr(graph, "outer_graph", None)
    raise LookupError(f"function {function_name!r} is not in the traced graph's library")


def user_source(op: Any) -> str | None:
    """`file.py:line` of the user's statement that made `op`, or None where TensorFlow kept no traceback."""
    frames = getattr(op, "traceback", None)
    if frames is None:
        return None
    for frame in reversed(list(frames)):
        filename, line = frame[0], frame[1]
        if not any(part in filename for part in _NOT_USER_CODE) and not filename.startswith("<"):
            return f"{Path(filename).name}:{line}"
    return None


def raw_op_arguments(op_type: str) -> list[str]:
    """Keywords of `tf.raw_ops.<op_type>` in order, less `name`."""
    from tensorflow.python.util import tf_inspect

    function = getattr(tf.raw_ops, op_type)
    return [name for name in tf_inspect.getfullargspec(function).args if name != "name"]


def replay(
    op_type: str, op_def: Any, inputs: Sequence[Any], attrs: dict[str, Any], *, name: str | None = None
) -> list[Any]:
    """Run the op `op_type` on other tensors, in whatever graph is current, or eagerly.

    `inputs` is flat, as in `op.inputs`. Returns the flat outputs.
    """
    arguments = _argument_names(op_type, op_def)
    keywords: dict[str, Any] = {}
    position = 0
    for argument in op_def.input_arg:
        keyword = arguments[argument.name]
        if argument.number_attr or argument.type_list_attr:
            sized_by = argument.number_attr or argument.type_list_attr
            count = attrs[sized_by] if argument.number_attr else len(attrs[sized_by])
            keywords[keyword] = list(inputs[position : position + count])
            position += count
        else:
            keywords[keyword] = inputs[position]
            position += 1
    inferred = {arg.type_attr for arg in op_def.input_arg} | {arg.number_attr for arg in op_def.input_arg}
    inferred |= {arg.type_list_attr for arg in op_def.input_arg}
    allowed = _raw_op_keywords(op_type)
    for attribute_name, value in attrs.items():
        key = RENAMED_ATTRIBUTES.get((op_type, attribute_name), attribute_name)
        if key in inferred or key not in allowed or key.startswith("_"):
            continue
        keywords[key] = value
    result = getattr(tf.raw_ops, op_type)(**keywords, name=name)
    return _flatten(result)


_argument_cache: dict[str, dict[str, str]] = {}
_keyword_cache: dict[str, frozenset[str]] = {}


def _raw_op_keywords(op_type: str) -> frozenset[str]:
    if op_type not in _keyword_cache:
        _keyword_cache[op_type] = frozenset(raw_op_arguments(op_type))
    return _keyword_cache[op_type]


def _argument_names(op_type: str, op_def: Any) -> dict[str, str]:
    """op_def input name -> keyword of the raw op; what neither name nor table settles goes by position."""
    if op_type not in _argument_cache:
        keywords = raw_op_arguments(op_type)
        attr_names = {attr.name for attr in op_def.attr}
        names: dict[str, str] = {}
        free = [keyword for keyword in keywords if keyword not in attr_names]
        for argument in op_def.input_arg:
            for candidate in (argument.name, _RENAMED_ARGUMENTS.get(argument.name)):
                if candidate in free:
                    names[argument.name] = candidate
                    free.remove(candidate)
                    break
        for argument in op_def.input_arg:
            if argument.name not in names:
                names[argument.name] = free.pop(0)
        _argument_cache[op_type] = names
    return _argument_cache[op_type]


def _flatten(result: Any) -> list[Any]:
    if result is None or isinstance(result, tf.Operation):
        return []
    if isinstance(result, list | tuple):
        return [item for part in result for item in _flatten(part)]
    return [result]


def attribute(op: Any, name: str) -> Any:
    """`op.get_attr(name)`, with functions as their names."""
    value = op.get_attr(name)
    if hasattr(value, "name") and hasattr(value, "attr") and not isinstance(value, tf.DType):
        return FunctionName(value.name)
    return value


class FunctionName(str):
    """Name of a function in a graph's library, as an attribute value."""


_INTERNAL_ATTRIBUTE = re.compile(r"^_")


def attributes(op: Any) -> dict[str, Any]:
    """All attributes that the op's definition declares, by name."""
    return {attr.name: attribute(op, attr.name) for attr in op.op_def.attr}


def gradient_override(op: Any) -> str:
    """The name under which a gradient for `op` itself is registered, by `tf.custom_gradient` or an override map."""
    try:
        name = op.get_attr("_gradient_op_type")
    except ValueError:
        return ""
    name = name.decode() if isinstance(name, bytes) else str(name)
    return "" if _is_the_ordinary_gradient(name) else name


_ONLY_SAVES_MEMORY = frozenset({"swish.<locals>.swish_impl.<locals>.grad"})


def _is_the_ordinary_gradient(name: str) -> bool:
    """Whether TensorFlow itself registered it, so as to keep less in memory; models have dozens of `tf.nn.silu`."""
    try:
        user = _of_closure(_of_closure(registered_gradient(name), "tape_grad_fn"), "grad_fn")
    except LookupError:
        return False
    return getattr(user, "__qualname__", "") in _ONLY_SAVES_MEMORY and user.__module__.startswith("tensorflow.")


def _of_closure(function: Any, variable: str) -> Any:
    code = getattr(function, "__code__", None)
    if code is None or variable not in code.co_freevars:
        return None
    return function.__closure__[code.co_freevars.index(variable)].cell_contents


def flat_call(concrete: Any) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """The cheapest way to call a ConcreteFunction: flat eager tensors in, flat tensors out.

    `call_flat` of TF 2.21's AtomicFunction skips argument binding, repacking and gradient tapes (370 instead of 650 µs
    for a small program); the ordinary call stands in where it is missing.
    """
    call = getattr(getattr(concrete, "inference_fn", None), "call_flat", None)
    if call is None:
        return lambda tensors: tf.nest.flatten(concrete(*tensors))
    captured = list(concrete.captured_inputs)
    return lambda tensors: _as_list(call(*tensors, *captured))


def _as_list(result: Any) -> Sequence[Any]:
    return result if isinstance(result, list | tuple) else [result]


def definition(op_type: str) -> Any:
    """The OpDef of an op type, for running another op than the one at hand."""
    from tensorflow.python.framework import op_def_registry

    return op_def_registry.get(op_type)


def registered_gradient(name: str) -> Callable[..., Any]:
    """The gradient function `(op, *gradients)` that is registered under `name`. Raises LookupError."""
    from tensorflow.python.framework import ops

    function: Callable[..., Any] = ops.gradient_registry.lookup(name)
    return function


def watch_variables(variables: Sequence[Any]) -> None:
    """Have tapes around calls of the function being traced know that it reads these variables."""
    graph = tf.compat.v1.get_default_graph()
    for variable in variables:
        graph.watch_variable(variable)
