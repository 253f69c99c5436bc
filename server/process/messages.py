"""The messages between the HTTP process and an engine process. No TensorFlow, no pickle.

    parent                          engine process
      │  Load(source, settings)        │
      ├───────────────────────────────▶│  import TensorFlow, load the file
      │                    Loaded ◀────┤  every model name that the file registers
      │                  Progress ◀────┤  (many) vectorize, certify, warm
      │         Ready(description) ◀───┤  or Failed(kind, message)
      │  Run(id, tensors)              │
      ├───────────────────────────────▶│
      │          Done(id, ...) ◀───────┤
    │  Ping                          │
    ├───────────────────────────────▶│
    │                      Pong ◀────┤  from the same thread as Done: it doesn't hang
      │  end of file ─────────────────▶│  exits

A message is one msgpack map behind its length (4 bytes, little-endian); arrays lie in shared memory, in one
arena per direction, and a message says where (`wire.py`).
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from server.engines.batch_result import BatchStats
from server.engines.settings import EngineSettings
from server.model_description import Bucket, ModelDescription


class ModelSource(msgspec.Struct, frozen=True):
    """A file path or dotted module name, and which of its models is meant.

    `model` None: the first. `version` None: the first of that name; said where the file has several.
    """

    location: str
    model: str | None = None
    version: str | None = None


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """How far loading is: `done` of `total` steps of a phase.

    Phases, in order: "import" (TensorFlow), "load" (the file), "vectorize", "compile", "certify", "warm".
    """

    phase: str
    done: int = 0
    total: int = 0
    detail: str = ""


class Load(msgspec.Struct, frozen=True, tag="load"):
    """The parent's first message: what to load and how."""

    source: ModelSource
    settings: EngineSettings


class Loaded(msgspec.Struct, frozen=True, tag="loaded"):
    """The file ran; the names of all models that it registers, in order."""

    models: tuple[str, ...]


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The model is certified and warm."""

    description: ModelDescription


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """Loading ended; `kind` is the name of a class in `server.errors`."""

    kind: str
    message: str


class Column(msgspec.Struct, frozen=True, array_like=True):
    """Where one input or output of all rows lies in an arena.

    The arrays of the rows follow each other without gaps, from byte `offset` on, `size` bytes in all.
    `shapes` has one shape a row, or a single one where all rows agree. Strings: a uint32 length for each
    element of all rows, then their bytes.
    """

    dtype: str
    offset: int
    size: int
    shapes: list[list[int]]


class Tensors(msgspec.Struct, frozen=True, array_like=True):
    """A batch in an arena: `rows` rows, and for each input or output its column."""

    rows: int
    columns: list[Column]


class Run(msgspec.Struct, frozen=True, tag="run"):
    """One batch to compute; answered by `Done` or `RunFailed` with the same id."""

    id: int
    signature: str
    bucket: Bucket
    tensors: Tensors


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The batch is computed: the answers, in order, of rows that have one; the owner and the message of the others."""

    id: int
    tensors: Tensors
    errors: dict[int, tuple[int, str]]
    stats: BatchStats


class RunFailed(msgspec.Struct, frozen=True, tag="run_failed"):
    """The whole batch could not be computed, though the engine lives (a fault of batchd, not of a row)."""

    id: int
    message: str


class Ping(msgspec.Struct, frozen=True, tag="ping"):
    """Asks whether the engine's main thread is there."""


class Pong(msgspec.Struct, frozen=True, tag="pong"):
    """It is."""


ToChild: TypeAlias = Load | Run | Ping
FromChild: TypeAlias = Progress | Loaded | Ready | Failed | Done | RunFailed | Pong
