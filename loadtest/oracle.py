"""Expected replies, computed before a run: `python -m loadtest.oracle model.py --count 500 --out FILE`.

Draws examples from the model's `samples` and runs each alone through the function that the user wrote, as one
`tf.function`. It knows nothing of batching, and it is the only file of the load test that imports TensorFlow,
in a process of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from clients.wire import encode_inputs, to_json

WORDS = ("", "a", "batch", "example", "one two", "déjà vu")


@click.command()
@click.argument("source")
@click.option("--name", help="Which model of SOURCE.  [default: the first]")
@click.option("--count", type=click.IntRange(1), default=500, show_default=True, help="How many examples.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), required=True, help="JSON file to write.")
def main(source: str, name: str | None, count: int, seed: int, out: Path) -> None:
    """Write COUNT examples of a model in SOURCE with their expected replies."""
    from server.errors import ModelLoadError
    from server.loading import choose_model, load_models

    try:
        model = choose_model(load_models(source), name, source)
    except ModelLoadError as error:
        raise click.ClickException(str(error)) from None
    examples = _draw(model.samples, dict(model.inputs), count, seed)
    expected = expected_document(model, examples)
    if not any("outputs" in example for example in expected["examples"]):
        raise click.ClickException(
            f"model {model.name!r} raises on all of {count} examples; give samples= that it accepts"
        )
    out.write_bytes(to_json({"model": model.name, "seed": seed, "rtol": model.rtol, **expected}))


def _draw(samples: Any, specs: Mapping[str, Any], count: int, seed: int) -> list[dict[str, Any]]:
    generator = np.random.default_rng(seed)
    draw = _sampler(samples, specs)
    return [_by_name(draw(generator), specs) for _ in range(count)]


def _sampler(samples: Any, specs: Mapping[str, Any]) -> Callable[[np.random.Generator], Any]:
    if samples is None:
        return lambda generator: {name: _generated(spec, generator) for name, spec in specs.items()}
    if callable(samples):
        function: Callable[[np.random.Generator], Any] = samples
        return function
    fixed = list(samples)
    return lambda generator: fixed[int(generator.integers(len(fixed)))]


def _by_name(sample: Any, specs: Mapping[str, Any]) -> dict[str, Any]:
    """A sample may be a mapping, a tuple in the order of the inputs, or the value of the only input."""
    if isinstance(sample, Mapping):
        return dict(sample)
    values = sample if isinstance(sample, tuple) else (sample,)
    return dict(zip(specs, values, strict=True))


def _generated(spec: Any, generator: np.random.Generator) -> Any:
    """For models without samples: normal floats, integers 0..3, short words; variable sizes 1..8."""
    shape = [int(generator.integers(1, 9)) if size is None else size for size in spec.shape]
    dtype = spec.dtype
    if dtype.name == "string":
        return generator.choice(np.array(WORDS, dtype=object), shape) if shape else str(generator.choice(WORDS))
    if dtype.is_bool:
        return generator.integers(0, 2, shape).astype(bool)
    if dtype.is_integer:
        return generator.integers(0, 4, shape).astype(dtype.as_numpy_dtype)
    return generator.normal(size=shape).astype(dtype.as_numpy_dtype)


def expected_document(model: Any, examples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The examples with what the function returns or raises, and the outputs' dtypes, as `ExampleSet.read` wants it."""
    import tensorflow as tf

    function = tf.function(model.function).get_concrete_function(**model.inputs)
    dtypes: dict[str, str] = {}
    documents = []
    for example in examples:
        inputs = {name: tf.constant(value, model.inputs[name].dtype) for name, value in example.items()}
        document: dict[str, Any] = {"inputs": encode_inputs(example)}
        try:
            outputs = dict(_named_outputs(function(**inputs)))
        except tf.errors.OpError as error:
            document["error"] = error.message
        else:
            dtypes |= {name: value.dtype.name for name, value in outputs.items()}
            document["outputs"] = {name: _json_form(value.numpy()) for name, value in outputs.items()}
        documents.append(document)
    return {"dtypes": dtypes, "examples": documents}


def _named_outputs(result: Any) -> Iterator[tuple[str, Any]]:
    """A dict names its outputs; otherwise `output`, or `output_0`, `output_1`, ..."""
    if isinstance(result, Mapping):
        yield from result.items()
    elif isinstance(result, tuple | list) and len(result) != 1:
        yield from ((f"output_{index}", value) for index, value in enumerate(result))
    else:
        yield "output", result[0] if isinstance(result, tuple | list) else result


def _json_form(value: Any) -> Any:
    """A TensorFlow result as the server writes it: bytes that are UTF-8 as text."""
    if isinstance(value, bytes):
        return _text(value)
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [_json_form(item) for item in value]
    return encode_inputs({"output": value})["output"]


def _text(value: bytes) -> Any:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return encode_inputs({"output": value})["output"]


if __name__ == "__main__":
    main()
