"""Grows random per-example programs: arithmetic, slices, reductions, branches, loops and lists over ragged values.

A program is built from a seed and nothing else, so that a failure is reproduced by its number. Values that a program
may use are kept in pools by what they are; every step draws operands and adds its result to a pool. Loops and
branches grow their bodies the same way, from the values in scope.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

SPECS = [
    tf.TensorSpec([None, 3], tf.float32),  # a sequence of rows
    tf.TensorSpec([4], tf.float32),  # a vector
    tf.TensorSpec([], tf.float32),  # a number
    tf.TensorSpec([], tf.int32),  # a count, -1 to 5
]


def examples(seed: int, count: int) -> list[tuple[Any, ...]]:
    """Inputs that fit SPECS, lengths 0 and 1 among them."""
    rng = np.random.default_rng(seed)
    lengths = [0, 1, *rng.integers(0, 6, size=count)][:count]
    return [
        (
            rng.normal(size=(n, 3)).astype("f"),
            rng.normal(size=4).astype("f"),
            np.float32(rng.normal()),
            np.int32(rng.integers(-1, 6)),
        )
        for n in rng.permutation(lengths)
    ]


def spoilt_examples(seed: int, count: int) -> list[tuple[Any, ...]]:
    """As `examples`, with NaN, infinities and zeros among the numbers."""
    rng = np.random.default_rng(seed)

    def spoil(item: Any) -> Any:
        if item.dtype.kind != "f":
            return item
        specials = rng.choice([np.nan, np.nan, np.inf, -np.inf, 0.0, -0.0], size=item.shape)
        return np.where(rng.random(item.shape) < 0.15, specials, item).astype("f")

    return [tuple(map(spoil, example)) for example in examples(seed, count)]


def program(seed: int) -> Callable[..., Any]:
    """A function of SPECS made of some ten random steps."""

    def function(rows: Any, vector: Any, number: Any, count: Any) -> Any:
        rng = np.random.default_rng(seed)
        scope = _Scope(rng, [rows], [vector], [number, tf.constant(0.5)], [count, tf.shape(rows)[0]])
        scope.grow(int(rng.integers(2, 7)), depth=2)
        return scope.last()

    return tf.autograph.experimental.do_not_convert(function)  # nothing in it is for autograph, which takes a third


class _Scope:
    """The values in scope, and the steps that add to them."""

    def __init__(self, rng: np.random.Generator, rows: list, vectors: list, numbers: list, counts: list) -> None:
        self.rng, self.rows, self.vectors, self.numbers, self.counts = rng, rows, vectors, numbers, counts

    def inner(self, **more: list) -> _Scope:
        """A copy for a loop's body or a branch, with further values."""
        pools = {
            name: list(getattr(self, name)) + more.get(name, []) for name in ("rows", "vectors", "numbers", "counts")
        }
        return _Scope(self.rng, **pools)

    def pick(self, pool: list) -> Any:
        """Mostly the newest values, so that programs are deep rather than wide."""
        back = min(int(self.rng.geometric(0.5)), len(pool))
        return pool[-back]

    def last(self) -> tuple[Any, ...]:
        """One of each kind: the program's results."""
        return self.rows[-1], self.vectors[-1], self.numbers[-1], self.counts[-1]

    def grow(self, steps: int, depth: int) -> None:
        """Add that many values; `depth` bounds the nesting of loops and branches."""
        for _ in range(steps):
            kinds = ["row", "row", "vector", "vector", "number", "number", "count"]
            if depth:
                kinds += ["loop", "while", "branch", "list"]
            getattr(self, f"_add_{self.rng.choice(kinds)}")(depth)

    def _add_row(self, depth: int) -> None:
        x, y, v, s, k = (
            self.pick(self.rows),
            self.pick(self.rows),
            self.pick(self.vectors),
            self.pick(self.numbers),
            self.pick(self.counts),
        )
        self.rows.append(
            self._one_of(
                lambda: tf.tanh(x),
                lambda: x * s + v[:3],
                lambda: tf.concat([x, y], 0),
                lambda: x[::-1],
                lambda: x[1:],
                lambda: x[: tf.maximum(k, 0)],
                lambda: tf.nn.softmax(x, axis=-1),
                lambda: tf.cumsum(x, axis=0),
                lambda: x - tf.reduce_mean(tf.concat([x, tf.ones([1, 3])], 0), 0),
                lambda: tf.boolean_mask(x, x[:, 0] > 0),
                lambda: tf.pad(x, [[1, 0], [0, 0]]),
                lambda: tf.where(x > s, x, -x),
                lambda: tf.tile(x, [2, 1]),
                lambda: tf.transpose(tf.transpose(x)) + tf.reduce_sum(x, 1, keepdims=True),
                lambda: tf.gather(x, tf.range(tf.shape(x)[0] - 1, -1, -1)),
                lambda: tf.reshape(tf.reshape(x, [-1]), [-1, 3]),
                lambda: tf.broadcast_to(v[1:], [tf.maximum(k, 0), 3]),
            )
        )

    def _add_vector(self, depth: int) -> None:
        x, v, w, s, k = (
            self.pick(self.rows),
            self.pick(self.vectors),
            self.pick(self.vectors),
            self.pick(self.numbers),
            self.pick(self.counts),
        )
        self.vectors.append(
            self._one_of(
                lambda: tf.sin(v) + w,
                lambda: v * s,
                lambda: tf.concat([tf.reduce_sum(x, 0), [s]], 0),
                lambda: tf.sort(v),
                lambda: tf.concat([v[1:], v[:1]], 0),
                lambda: tf.linalg.matvec(tf.reshape(tf.range(16.0), [4, 4]) / 16.0, v),
                lambda: tf.one_hot(k, 4) + v,
                lambda: tf.minimum(v, w),
                lambda: tf.tensor_scatter_nd_update(v, [[tf.math.floormod(k, 4)]], [s]),
                lambda: tf.nn.softmax(v),
                lambda: tf.reverse(v, [0]),
            )
        )

    def _add_number(self, depth: int) -> None:
        x, v, s, k = self.pick(self.rows), self.pick(self.vectors), self.pick(self.numbers), self.pick(self.counts)
        self.numbers.append(
            self._one_of(
                lambda: tf.reduce_sum(x),
                lambda: tf.reduce_max(tf.concat([x[:, 0], [s]], 0)),
                lambda: v[tf.math.floormod(k, 4)],
                lambda: tf.tensordot(v, v, 1),
                lambda: tf.cast(k, tf.float32) * s,
                lambda: tf.reduce_mean(v) - s,
                lambda: tf.sigmoid(s),
                lambda: tf.norm(x),
            )
        )

    def _add_count(self, depth: int) -> None:
        x, v, k, j = self.pick(self.rows), self.pick(self.vectors), self.pick(self.counts), self.pick(self.counts)
        self.counts.append(
            self._one_of(
                lambda: tf.shape(x)[0],
                lambda: tf.argmax(v, output_type=tf.int32),
                lambda: tf.minimum(k + 1, 6),
                lambda: tf.math.floormod(k * 3 + j, 5),
                lambda: tf.reduce_sum(tf.cast(v > 0, tf.int32)),
                lambda: k // 2,
                lambda: tf.size(tf.where(v > 0)),
            )
        )

    def _add_loop(self, depth: int) -> None:
        """`for t in range(n)` over a vector and a number, reading rows by position."""
        n = self._one_of(
            lambda: tf.shape(self.pick(self.rows))[0],
            lambda: tf.clip_by_value(self.pick(self.counts), -1, 5),
            lambda: 3,
        )
        x, steps, state = self.pick(self.rows), int(self.rng.integers(1, 4)), self.rng.bit_generator.state

        def body(t: Any, v: Any, s: Any) -> Any:
            self.rng.bit_generator.state = state
            row = tf.concat([tf.reduce_sum(x[t : t + 1], 0), [1.0]], 0)
            scope = self.inner(vectors=[row, v], numbers=[s], counts=[t])
            scope.grow(steps, depth - 1)
            return t + 1, tf.tanh(scope.vectors[-1]), tf.tanh(scope.numbers[-1])

        start = (0, self.pick(self.vectors), self.pick(self.numbers))
        t, v, s = tf.while_loop(lambda t, v, s: t < n, body, start)
        self.vectors.append(v)
        self.numbers.append(s)
        self.counts.append(t)

    def _add_while(self, depth: int) -> None:
        """A loop that stops by its own state."""
        limit, steps, state = self.pick(self.numbers), int(self.rng.integers(1, 3)), self.rng.bit_generator.state

        def body(i: Any, v: Any, s: Any) -> Any:
            self.rng.bit_generator.state = state
            scope = self.inner(vectors=[v], numbers=[s], counts=[i])
            scope.grow(steps, depth - 1)
            return i + 1, tf.tanh(scope.vectors[-1]), s + 0.4

        go = lambda i, v, s: tf.logical_and(s < tf.minimum(limit, 2.0), i < 6)
        i, v, s = tf.while_loop(go, body, (0, self.pick(self.vectors), tf.tanh(self.pick(self.numbers))))
        self.vectors.append(v)
        self.numbers.append(s)
        self.counts.append(i)

    def _add_branch(self, depth: int) -> None:
        """`tf.cond` on a number, of which both sides grow their own steps."""
        predicate = self._one_of(lambda: self.pick(self.numbers) > 0.1, lambda: self.pick(self.counts) > 1)
        steps, states = int(self.rng.integers(1, 3)), []

        def side() -> Any:
            scope = self.inner()
            scope.grow(steps, depth - 1)
            states.append(self.rng.bit_generator.state)
            return scope.last()

        rows, vector, number, count = tf.cond(predicate, side, side)
        self.rows.append(rows)
        self.vectors.append(vector)
        self.numbers.append(number)
        self.counts.append(count)

    def _add_list(self, depth: int) -> None:
        """A TensorArray filled in a loop, read back whole and by position."""
        x, v = self.pick(self.rows), self.pick(self.vectors)
        n = tf.shape(x)[0]
        items = tf.TensorArray(tf.float32, size=n, element_shape=[3], clear_after_read=False)
        step = lambda t, a, h: (t + 1, a.write(t, x[t] + h), tf.tanh(x[t] + h))
        _, items, _ = tf.while_loop(lambda t, *_: t < n, step, (0, items, v[:3]))
        self.rows.append(items.stack())

    def _one_of(self, *choices: Callable[[], Any]) -> Any:
        return choices[int(self.rng.integers(len(choices)))]()
