"""How an engine computes: one frozen value object that crosses to the engine process."""

from __future__ import annotations

from typing import Literal

import msgspec


class EngineSettings(msgspec.Struct, frozen=True):
    """How an engine process computes.

    engine: a name from `server.engines.ENGINES`. device: "auto" (the first GPU that TensorFlow sees, else the
    CPU), "cpu", or "gpu:N". xla: "auto" (per bucket, whichever measured faster), "off", or "only".
    intra_op_threads, inter_op_threads: TensorFlow's thread pools; None leaves them to TensorFlow.
    compile_budget_s: seconds of compiling per signature after which remaining buckets stay plain TensorFlow.
    compile_cache: whether XLA's compiled programs are kept on disk between starts.
    max_batch_size: overrides the model's own, rows. seed: of the generated samples.
    reproducible: whether answers must not depend on traffic, bit for bit; None leaves it to the model.
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
    reproducible: bool | None = None
