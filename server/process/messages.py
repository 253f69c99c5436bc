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
      │  end of file ─────────────────▶│  exits

A message is one msgpack map behind its length (4 bytes, little-endian); arrays lie in shared memory, in one
arena per direction, and a message says where (`wire.py`).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from server.model_description import Bucket, ModelDescription


class ModelSource(msgspec.Struct, frozen=True):
    """Where a model comes from: a file path or dotted module name, and which of its models (None: the first)."""

    location: str
    model: str | None = None


class EngineSettings(msgspec.Struct, frozen=True):
    """How an engine process computes.

    engine: a name from `server.engines.ENGINES`. device: "auto" (the first GPU that TensorFlow sees, else the
    CPU), "cpu", or "gpu:N". xla: "auto" (per bucket, whichever measured faster), "off", or "only".
    intra_op_threads, inter_op_threads: TensorFlow's thread pools; None leaves them to TensorFlow.
    compile_budget_s: seconds of compiling per signature after which remaining buckets stay plain TensorFlow.
    compile_cache: whether XLA's compiled programs are kept on disk between starts.
    max_batch_size: overrides the model's own, rows. seed: of the generated samples.
    """

    engine: str = "static"
    device: str = "auto"
    xla: Literal["auto", "off", "only"] = "auto"
    intra_op_threads: int | None = None
    inter_op_threads: int | None = None
    compile_budget_s: float = 30.0
    compile_cache: bool = True
    max_batch_size: int | None = None
    seed: int = 0


class Progress(msgspec.Struct, frozen=True, tag="progress"):
    """How far loading is: `done` of `total` steps of a phase ("import", "load", "vectorize", "certify", "warm")."""

    phase: str
    done: int = 0
    total: int = 0
    detail: str = ""
