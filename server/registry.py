"""`@model`: how a per-example function is registered for serving.

    from server import model

    @model(name="language", inputs={"text": tf.TensorSpec([], tf.string)}, samples=sample_texts)
    def language(text):
        ...

The function is returned unchanged; a frozen `ModelSpec` is kept beside it. Input specs are duck-typed (a
`dtype` and a `shape`), so TensorFlow isn't imported here.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeAlias, TypeVar

from server.errors import ModelLoadError
from server.model_description import TensorDescription

Samples: TypeAlias = Sequence[Any] | Callable[[Any], Any]
Function = TypeVar("Function", bound=Callable[..., Any])

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
SERVED_DTYPES = (
    "bool",
    *("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64"),
    "string",
)


@dataclass(frozen=True, slots=True, eq=False)
class ModelSpec:
    """One registered model.

    `inputs` holds the user's specs of one example, by parameter name; `input_tensors` describes the same
    plainly, in that order. `samples` is None, a sequence of examples, or a function from a
    `numpy.random.Generator` to one example; an example is a dict by input name, a tuple in the order of the
    inputs, or, for a single input, the bare value. `rtol` overrides the tolerances of certification.
    """

    name: str
    version: str
    function: Callable[..., Any]
    inputs: Mapping[str, Any]
    input_tensors: tuple[TensorDescription, ...]
    samples: Samples | None
    max_batch_size: int
    max_length: int | None
    rtol: float | None
    defined_at: str
    shadow: str | None = None
    shadow_share: float = 0.05
    reproducible: bool = False


_registered: list[ModelSpec] = []


def model(
    name: str | None = None,
    *,
    inputs: Mapping[str, Any],
    samples: Samples | None = None,
    max_batch_size: int = 64,
    max_length: int | None = None,
    rtol: float | None = None,
    version: str = "1",
    shadow: str | None = None,
    shadow_share: float = 0.05,
    reproducible: bool = False,
) -> Callable[[Function], Function]:
    """Registers the decorated per-example function as a model; returns it unchanged.

    Args:
        name: the model's name in URLs (letters, digits, `.`, `_`, `-`). Default: the function's own.
        inputs: `tf.TensorSpec` of one example (no batch dimension) by parameter name; a None dimension may
            differ between examples. The function is called by keyword.
        samples: typical examples, or a function of a `numpy.random.Generator` that gives one. They certify
            that batched equals per-example, and say which lengths to prepare for.
        max_batch_size: most rows in one batch, 1 to 4096.
        max_length: the largest size of a variable dimension, and of a text in bytes; a longer example is answered
            with 400. One batch runs at a time, so whoever may send an example that takes a minute holds up all
            others for a minute. Default: any.
        rtol: relative tolerance of certification; by default it depends on the dtype.
        version: shown in URLs and metrics. Several versions of one name are served side by side; who asks for none gets
            the latest: the highest number, or, where they aren't numbers, the last.
        shadow: an engine that gets some of the model's batches a second time, off the callers' path; its answers are
            compared, and its figures stand beside the live engine's in `/metrics`. Default: none.
        shadow_share: which share of the batches that is, above 0 and at most 1.
        reproducible: the bits of an answer don't depend on what shares its batch, on its place there, or on padding.
            Certified at start, or refused; examples longer than every bucket are then answered with 400, so give
            `max_length`, or samples of the longest (docs/reproducible.md).

    Raises:
        ModelLoadError: a bad name or dtype, inputs that don't fit the function's parameters, or a name and version
            that the same file has already used.
    """

    def register(function: Function) -> Function:
        spec = _checked_spec(name, function, inputs, samples, max_batch_size, max_length, rtol, version)
        _check_shadow(spec.name, shadow, shadow_share)
        _add(replace(spec, shadow=shadow, shadow_share=shadow_share, reproducible=bool(reproducible)))
        return function

    return register


@contextmanager
def collect_models() -> Iterator[list[ModelSpec]]:
    """Yields a list that holds, on leaving, the models registered within; refuses two of one name and version."""
    before = len(_registered)
    found: list[ModelSpec] = []
    yield found
    found.extend(_registered[before:])
    registered: dict[tuple[str, str], ModelSpec] = {}
    for spec in found:
        other = registered.setdefault((spec.name, spec.version), spec)
        if other is not spec:
            raise _duplicate(other, spec)


def models_in(namespace: Mapping[str, Any]) -> list[ModelSpec]:
    """Returns the registered models whose functions are values of `namespace` (a module's `__dict__`)."""
    held = {id(value) for value in namespace.values()}
    return [spec for spec in _registered if id(spec.function) in held]


def _add(spec: ModelSpec) -> None:
    for position, other in enumerate(_registered):
        if (other.name, other.version, _module(other)) != (spec.name, spec.version, _module(spec)):
            continue
        if other.defined_at != spec.defined_at and _module(spec) != "__main__":
            raise _duplicate(other, spec)
        del _registered[position]  # the same definition, run again: a reload or a notebook cell
        break
    _registered.append(spec)


def _duplicate(first: ModelSpec, second: ModelSpec) -> ModelLoadError:
    return ModelLoadError(
        f"two models are named '{second.name}': at {first.defined_at} and at {second.defined_at}; "
        "give one of them another name, or another version"
    )


def _module(spec: ModelSpec) -> str:
    return str(getattr(spec.function, "__module__", ""))


def _checked_spec(
    name: str | None,
    function: Callable[..., Any],
    inputs: Mapping[str, Any],
    samples: Samples | None,
    max_batch_size: int,
    max_length: int | None,
    rtol: float | None,
    version: str,
) -> ModelSpec:
    name = name if name is not None else getattr(function, "__name__", "")
    for role, value in (("name", name), ("version", version)):
        if not isinstance(value, str) or not _NAME.fullmatch(value):
            raise ModelLoadError(
                f"model {role} {value!r} can't stand in a URL: use letters, digits, '.', '_' and '-', "
                "starting with a letter or digit"
            )
    if isinstance(max_batch_size, bool) or not isinstance(max_batch_size, int):
        raise ModelLoadError(f"model '{name}': max_batch_size must be a whole number, got {max_batch_size!r}")
    if not 1 <= max_batch_size <= 4096:
        raise ModelLoadError(f"model '{name}': max_batch_size must be 1 to 4096, got {max_batch_size}")
    if max_length is not None and (not isinstance(max_length, int) or max_length < 1):
        raise ModelLoadError(f"model '{name}': max_length must be a whole number of at least 1, got {max_length!r}")
    if rtol is not None and not 0 <= rtol < 1:
        raise ModelLoadError(f"model '{name}': rtol must be at least 0 and below 1, got {rtol}")
    if samples is not None and not callable(samples) and (isinstance(samples, str | bytes) or not len(samples)):
        raise ModelLoadError(
            f"model '{name}': samples must be a non-empty list of examples, or a function of a random "
            "generator that gives one example"
        )
    if not isinstance(inputs, Mapping) or not inputs:
        raise ModelLoadError(f"model '{name}': inputs must map each parameter to a tf.TensorSpec, got {inputs!r}")
    _check_parameters(name, function, inputs)
    return ModelSpec(
        name=name,
        version=version,
        function=function,
        inputs=MappingProxyType(dict(inputs)),
        input_tensors=tuple(_describe(name, key, spec) for key, spec in inputs.items()),
        samples=samples if samples is None or callable(samples) else tuple(samples),
        max_batch_size=max_batch_size,
        max_length=max_length,
        rtol=rtol,
        defined_at=_place(function),
    )


def _check_shadow(name: str, shadow: str | None, share: float) -> None:
    from server.engines import ENGINES  # which knows this module

    if shadow is not None and shadow not in ENGINES:
        raise ModelLoadError(f"model '{name}': shadow must be one of {', '.join(ENGINES)}, got {shadow!r}")
    if not isinstance(share, int | float) or not 0 < share <= 1:
        raise ModelLoadError(f"model '{name}': shadow_share must be above 0 and at most 1, got {share!r}")


def _check_parameters(name: str, function: Callable[..., Any], inputs: Mapping[str, Any]) -> None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return
    by_keyword = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    unknown = [] if takes_any else [key for key in inputs if key not in by_keyword]
    missing = [
        p.name
        for p in parameters
        if p.default is p.empty
        and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        and (p.name not in inputs or p.kind is p.POSITIONAL_ONLY)
    ]
    problems = [f"input '{key}' is not a parameter of the function" for key in unknown]
    problems += [f"parameter '{key}' has no input (the function is called by keyword)" for key in missing]
    if problems:
        raise ModelLoadError(f"model '{name}' at {_place(function)}: {'; '.join(problems)}")


def _describe(name: str, key: str, spec: Any) -> TensorDescription:
    shape, dtype = getattr(spec, "shape", None), getattr(spec, "dtype", None)
    if dtype is None or not hasattr(spec, "shape"):
        raise ModelLoadError(f"model '{name}', input '{key}': expected a tf.TensorSpec, got {spec!r}")
    dtype_name = str(getattr(dtype, "name", dtype))
    if dtype_name not in SERVED_DTYPES:
        raise ModelLoadError(
            f"model '{name}', input '{key}': dtype {dtype_name} can't be served; use one of " + ", ".join(SERVED_DTYPES)
        )
    if shape is None or getattr(shape, "rank", 0) is None:
        raise ModelLoadError(
            f"model '{name}', input '{key}': the number of dimensions must be known; "
            "use None for a dimension whose size differs, as in [None, 3]"
        )
    if hasattr(spec, "ragged_rank") or type(spec).__name__ == "SparseTensorSpec":
        raise ModelLoadError(f"model '{name}', input '{key}': give a dense tf.TensorSpec of one example, got {spec!r}")
    sizes = [None if size is None else int(size) for size in shape]
    return TensorDescription(key, dtype_name, sizes)


def _place(function: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)
