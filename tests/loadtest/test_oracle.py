"""The oracle on real models with real TensorFlow; in this process, where TensorFlow is imported but once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from loadtest.oracle import main
from loadtest.targets import ExampleSet

MODELS = """
import numpy as np
import tensorflow as tf
from server import model

def draw(generator):
    return {"x": generator.normal(size=int(generator.integers(1, 5))).astype(np.float32), "k": 2}

@model(name="scale", inputs={"x": tf.TensorSpec([None], tf.float32), "k": tf.TensorSpec([], tf.int32)},
       samples=draw, rtol=0.001)
def scale(x, k):
    return {"scaled": x * tf.cast(k, tf.float32), "k": k}

@model(name="shout", inputs={"text": tf.TensorSpec([], tf.string)}, samples=["a", "b\\u00e9", b"\\xff"])
def shout(text):
    return tf.strings.upper(text, encoding=""), tf.strings.length(text)

@model(name="generated", inputs={"a": tf.TensorSpec([None, 2], tf.float64), "b": tf.TensorSpec([], tf.bool),
                                 "s": tf.TensorSpec([None], tf.string)})
def generated(a, b, s):
    return tf.where(b, a, tf.math.log(-tf.abs(a)))

@model(name="picky", inputs={"i": tf.TensorSpec([], tf.int32)}, samples=[(0,), (5,)])
def picky(i):
    with tf.control_dependencies([tf.debugging.assert_less(i, 3, message="too large")]):
        return tf.identity(i)

@model(name="never", inputs={"i": tf.TensorSpec([], tf.int32)}, samples=[7])
def never(i):
    with tf.control_dependencies([tf.debugging.assert_less(i, 3)]):
        return tf.identity(i)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("oracle")
    (folder / "model.py").write_text(MODELS)
    return folder


def oracle(folder: Path, name: str, *options: str) -> Result:
    arguments = [str(folder / "model.py"), "--name", name, "--out", str(folder / f"{name}.json")]
    return CliRunner().invoke(main, [*arguments, "--count", "8", *options])


def drawn(folder: Path, name: str, *options: str) -> dict[str, Any]:
    done = oracle(folder, name, *options)
    assert done.exit_code == 0, done.output
    document: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    return document


def test_a_function_of_a_generator(folder: Path) -> None:
    document = drawn(folder, "scale")
    assert document["dtypes"] == {"scaled": "float32", "k": "int32"}
    for example in document["examples"]:
        doubled = [2 * value for value in example["inputs"]["x"]]
        assert example["outputs"]["scaled"] == pytest.approx(doubled, rel=1e-6)
        assert example["outputs"]["k"] == 2
    examples = ExampleSet.read(folder / "scale.json")
    assert (examples.model, len(examples.examples), examples.rtol) == ("scale", 8, 0.001)


def test_a_list_of_bare_values_and_outputs_without_names(folder: Path) -> None:
    document = drawn(folder, "shout")
    assert document["dtypes"] == {"output_0": "string", "output_1": "int32"}
    by_input = {json.dumps(example["inputs"]["text"]): example["outputs"] for example in document["examples"]}
    assert by_input['"a"'] == {"output_0": "A", "output_1": 1}
    assert {json.dumps("a"), json.dumps({"b64": "/w=="})} <= set(by_input)


def test_the_seed_decides(folder: Path) -> None:
    first = drawn(folder, "generated", "--seed", "3")
    assert first == drawn(folder, "generated", "--seed", "3")
    assert "NaN" in json.dumps(first)
    assert {len(example["inputs"]["s"]) for example in first["examples"]} != {1}


def test_rejected_examples_keep_their_message(folder: Path) -> None:
    by_input = {example["inputs"]["i"]: example for example in drawn(folder, "picky")["examples"]}
    assert by_input[0]["outputs"] == {"output": 0}
    assert "too large" in by_input[5]["error"]


def test_mistakes_get_a_sentence(folder: Path) -> None:
    done = oracle(folder, "absent")
    assert done.exit_code == 1
    assert "no model named 'absent'" in done.output
    done = oracle(folder, "never")
    assert "model 'never' raises on all of 8 examples" in done.output
