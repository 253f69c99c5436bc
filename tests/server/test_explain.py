"""`batchd explain`: text for people, JSON for programs, and what stands in the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from server.command_line import main

FILE = """
import tensorflow as tf
from server import model

state = tf.Variable(0.0)

@model(name="total", inputs={"values": tf.TensorSpec([None], tf.float32)}, max_length=1000)
def total(values):
    return tf.reduce_sum(values * 2.0)

@model(name="refused", inputs={"x": tf.TensorSpec([], tf.float32)})
def refused(x):
    state.assign_add(x)
    return tf.py_function(lambda a: a, [x], tf.float32)
"""


@pytest.fixture
def location(tmp_path: Path) -> str:
    path = tmp_path / "my_model.py"
    path.write_text(FILE)
    return str(path)


def explain(*arguments: str):
    return CliRunner().invoke(main, ["explain", *arguments])


def test_text(location):
    answer = explain(location)
    assert answer.exit_code == 0
    assert answer.output.startswith("total: 2 ops, 0 looped over rows\n")
    assert "if variable sizes are 1000: 3.91 KiB at batch 1" in answer.output
    assert "my_model.py:9" in answer.output
    assert "if variable sizes are 10: 40 bytes at batch 1" in explain(location, "--length", "10").output


def test_json(location):
    found = json.loads(explain(location, "--json").output)
    assert [op["op_type"] for op in found["ops"]] == ["Mul", "Sum"]
    assert found["largest_intermediate"]["bytes"]["64"] == 64 * 1000 * 4


def test_what_stands_in_the_way(location):
    answer = explain(location, "--name", "refused")
    assert answer.exit_code == 1
    assert "cannot vectorize 'refused': 2 ops" in answer.output
    assert "my_model.py:13" in answer.output
    answer = explain(location, "--name", "refused", "--json")
    assert answer.exit_code == 1
    assert [item["op_type"] for item in json.loads(answer.output)["findings"]] == ["AssignAddVariableOp", "EagerPyFunc"]


def test_a_model_that_is_not_there(location):
    assert explain(location, "--name", "other").exit_code == 1
