"""Plain records that describe a served model; they cross from the engine process to the HTTP process.

No TensorFlow here. All records are frozen msgspec structs: equal by value, and `Bucket` is hashable.
"""

from __future__ import annotations

from typing import Any

import msgspec


class TensorDescription(msgspec.Struct, frozen=True):
    """One input or output of a signature, for one example.

    `dtype` is a numpy-like name ("float32", "int64", "bool", ...) or "string"; `shape` has None for a
    dimension whose size may differ between examples.
    """

    name: str
    dtype: str
    shape: list[int | None]


class BoundDescription(msgspec.Struct, frozen=True):
    """One measured size of an example; entry i of a bucket's `lengths` bounds it.

    `axis` is the variable dimension of `input` that is measured, or None: the bytes of a string input
    (the longest element where the input has dimensions).
    """

    input: str
    axis: int | None


class Bucket(msgspec.Struct, frozen=True, order=True):
    """A padded shape: rows of the batch, and one length for each of the signature's `bounds`."""

    rows: int
    lengths: tuple[int, ...] = ()


class BucketTime(msgspec.Struct, frozen=True):
    """Measured seconds of one full batch of a bucket, from stacking to splitting."""

    bucket: Bucket
    seconds: float


class SignatureDescription(msgspec.Struct, frozen=True):
    """A signature: its tensors in order, what is measured, the warm buckets, and how it was vectorized.

    `max_length` is the largest size that a variable dimension, or a text in bytes, may have; None: any.
    `lengths_apart`: an example shares batches only with those whose smallest bucket has the same lengths as its own.
    """

    name: str
    inputs: tuple[TensorDescription, ...]
    outputs: tuple[TensorDescription, ...]
    bounds: tuple[BoundDescription, ...]
    buckets: tuple[Bucket, ...]
    report: dict[str, Any]
    report_text: str
    max_length: int | None = None
    lengths_apart: bool = False


class OutputCertified(msgspec.Struct, frozen=True):
    """How far one output's batched values were from the per-example ones.

    `tolerance`: relative; 0 means that they must be equal. `allowed_difference`, `largest_difference`: absolute,
    between finite floats. `values`: how many were compared. `near_ties`: answers that differ where the function itself
    is undecided.
    """

    name: str
    tolerance: float
    allowed_difference: float
    largest_difference: float
    values: int
    near_ties: int = 0


class Certification(msgspec.Struct, frozen=True):
    """What was compared before the signature opened: batched answers with per-example ones.

    `samples`: the user's or generated; `stretched`: examples made of them that are as long as their bucket, and longer
    than all; `refused`: of both, those that the function raises on, which the batch must refuse as well.
    """

    samples: int
    stretched: int
    refused: int
    buckets: int
    batches: int
    rows: int
    outputs: tuple[OutputCertified, ...]


class Reproducibility(msgspec.Struct, frozen=True):
    """What an answer's bits were shown not to depend on, and where that holds.

    `program`: "xla", "plain" (TensorFlow's own kernels) or "per_request". `rows`: batch sizes that give equal bits;
    `lengths`: the padded sizes, of which an example always gets the smallest that hold it. `function`, `machine`:
    digests; `threads`: TensorFlow's within an op. `comparisons`: of a row's answer with the same example's alone, in
    `trials` batches; `positions`: the share of (example, position) pairs that they covered; `seconds`: how long it
    took. `note`: why not another program.
    """

    program: str
    rows: tuple[int, ...]
    lengths: tuple[tuple[int, ...], ...]
    function: str
    machine: str
    threads: int
    trials: int
    comparisons: int
    positions: float
    seconds: float
    note: str = ""

    def header(self) -> str:
        """As replies carry it: servers that say the same give the same bits."""
        parts = [self.program]
        if self.rows:
            parts.append(f"rows={','.join(map(str, self.rows))}")
        if any(self.lengths):
            parts.append(f"lengths={','.join('x'.join(map(str, level)) for level in self.lengths)}")
        return "; ".join([*parts, f"function={self.function}", f"machine={self.machine}", f"threads={self.threads}"])


class ModelDescription(msgspec.Struct, frozen=True):
    """A model version that is ready to serve.

    `timings` has the measured time of every bucket, by signature name. `file_models` names every model that
    the same file or module registers, in order (this one among them), and `file_versions` says the version of
    each: the HTTP process, which never loads model files, learns them here. `load_seconds` says how long each
    phase of loading took. `rtol`, `shadow` and `shadow_share` are the model's own, as `server.registry.model` has
    them. `certification` and `reproducible` are by signature name; the latter is empty unless the model is served so.
    """

    name: str
    version: str
    engine: str
    device: str
    max_batch_size: int
    signatures: tuple[SignatureDescription, ...]
    timings: dict[str, tuple[BucketTime, ...]]
    file_models: tuple[str, ...] = ()
    load_seconds: dict[str, float] = {}
    compiles: int = 0
    rtol: float | None = None
    shadow: str | None = None
    shadow_share: float = 0.0
    file_versions: tuple[str, ...] = ()
    certification: dict[str, Certification] = {}
    reproducible: dict[str, Reproducibility] = {}

    @property
    def others_in_file(self) -> list[tuple[str, str]]:
        """Name and version of every other model that the same file registers."""
        registered = zip(self.file_models, self.file_versions, strict=True)
        return [each for each in registered if each != (self.name, self.version)]

    def signature(self, name: str) -> SignatureDescription | None:
        """Returns the signature of that name, or None."""
        return next((signature for signature in self.signatures if signature.name == name), None)
