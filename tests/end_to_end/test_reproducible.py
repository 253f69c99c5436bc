"""What a caller sees of a reproducible model: equal bits, and a header that says where they are equal."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.support.serving import BATCHD, environment, serving

pytestmark = pytest.mark.full

MODEL = """
import numpy as np
import tensorflow as tf
from server import model

TABLE = tf.constant(np.random.default_rng(0).standard_normal((50, 16)), tf.float32)

@model(
    inputs={"ids": tf.TensorSpec([None], tf.int32)},
    samples=lambda rng: rng.integers(0, 50, int(rng.integers(1, 5))).astype("int32"),
    max_batch_size=4,
    max_length=8,
)
def lookup(ids):
    return tf.nn.softmax(tf.reduce_sum(tf.gather(TABLE, ids), 0))
"""
REFUSED = """
import tensorflow as tf
from server import model

@model(
    inputs={"x": tf.TensorSpec([7], tf.float32)},
    samples=lambda rng: (20 * rng.standard_normal(7)).astype("float32"),
    max_batch_size=3,
    reproducible=True,
)
def bessel(x):
    return tf.math.special.bessel_j0(x)
"""


def test_two_servers_of_one_header_give_the_same_bytes(tmp_path: Path) -> None:
    path = tmp_path / "lookup.py"
    path.write_text(MODEL)
    rng = np.random.default_rng(1)
    examples = [rng.integers(0, 50, int(rng.integers(1, 9))).tolist() for _ in range(12)]
    bodies, headers = [], []
    for _ in range(2):
        with serving(path, "--reproducible") as server, ThreadPoolExecutor(8) as pool:
            alone = [server.predict("lookup", {"ids": ids}) for ids in examples]
            order = rng.integers(0, len(examples), 300).tolist()
            for index, reply in zip(
                order, pool.map(lambda i: server.predict("lookup", {"ids": examples[i]}), order), strict=True
            ):
                assert reply.content == alone[index].content
            many = server.client.post(
                "/v1/models/lookup:predict", json={"instances": [{"ids": ids} for ids in examples]}
            )
            assert many.json()["predictions"] == [reply.json()["outputs"]["output"] for reply in alone]
            bodies.append([reply.content for reply in alone])
            headers.append({reply.headers["x-batchd-reproducible"] for reply in (*alone, many)})
            long = server.predict("lookup", {"ids": [1] * 9})
            assert (long.status_code, "8" in long.json()["error"]) == (400, True)
            described = server.client.get("/models/lookup").json()
            assert described["reproducible"]["predict"]["program"] in ("xla", "plain")
            assert described["certification"]["predict"]["stretched"] > 0
            assert server.metric("batchd_compiles_total", phase="serving") == 0
            assert 0 <= server.metric("batchd_certification_difference_ratio", model="lookup") <= 1
    assert bodies[0] == bodies[1]
    assert headers[0] == headers[1]
    assert len(headers[0]) == 1


def test_a_model_that_depends_on_the_row_ends_the_start_with_its_op_and_line(tmp_path: Path) -> None:
    path = tmp_path / "bessel.py"
    path.write_text(REFUSED)
    ended = subprocess.run(
        [*BATCHD, "serve", str(path), "--port", "0"], env=environment(), capture_output=True, text=True, timeout=240
    )
    assert ended.returncode == 1
    assert "model 'bessel' can't be served reproducibly" in ended.stderr
    assert "`BesselJ0` at bessel.py:12" in ended.stderr
