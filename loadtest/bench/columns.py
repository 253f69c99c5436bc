"""The ways that are compared: a name, and which process runs it. Nothing here imports a framework."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from server.engines import ENGINES


@dataclass(frozen=True)
class Column:
    """One way to run a batch.

    module: what a worker imports, `make(workload, choice, trial) -> Way`. process: columns of the same share one.
    needs: the distribution's module without which the column is left out.
    """

    name: str
    about: str
    module: str
    choice: str
    process: str
    needs: str | None = None

    def missing(self) -> str | None:
        """Why this column can't run here, or None."""
        if self.needs is None or find_spec(self.needs) is not None:
            return None
        return f"{self.needs} isn't installed: pip install 'batchd[bench]'"


_TENSORFLOW = "loadtest.bench.tensorflow_ways"


def _tensorflow(name: str, about: str) -> Column:
    return Column(name, about, _TENSORFLOW, name, "tensorflow")


def _engine(name: str) -> Column:
    # A process of its own: one that takes too long is ended, and shouldn't take the others along.
    return Column(name, f"engine {name}, a graph for every batch", _TENSORFLOW, f"engine:{name}", f"tensorflow {name}")


def _dynet(autobatch: int, about: str) -> Column:
    name = f"dynet_{autobatch}"
    return Column(name, about, "loadtest.bench.dynet_way", str(autobatch), name, needs="dynet")


COLUMNS: Sequence[Column] = (
    _tensorflow("per_example", "a tf.function called for each example"),
    _tensorflow("map_fn", "tf.map_fn over the padded batch"),
    _tensorflow("vectorized_map", "TensorFlow's own pfor, over the padded batch"),
    _tensorflow("by_hand", "batched and masked by hand"),
    _tensorflow("by_hand_xla", "the same under XLA"),
    _tensorflow("static", "batchd: vectorized, plain TensorFlow"),
    _tensorflow("static_xla", "batchd: vectorized, under XLA"),
    *(_engine(name) for name in ENGINES if name.startswith("dynamic")),
    _dynet(0, "DyNet without autobatching"),
    _dynet(1, "DyNet, by agenda"),
    _dynet(2, "DyNet, by depth"),
    Column("jax", "JAX jit(vmap) over the padded batch", "loadtest.bench.jax_way", "jit_vmap", "jax", needs="jax"),
)


def chosen_columns(names: Sequence[str]) -> list[Column]:
    """The columns of these names, in that order; all of them for none. Raises KeyError naming what there is."""
    by_name = {column.name: column for column in COLUMNS}
    unknown = [name for name in names if name not in by_name]
    if unknown:
        raise KeyError(f"there is no column {', '.join(map(repr, unknown))}; choose from {', '.join(by_name)}")
    return [by_name[name] for name in names] or list(COLUMNS)
