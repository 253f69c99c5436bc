"""What crosses between a protocol and the dispatcher, and between the dispatcher and an engine process.

protocol -> PredictRequest -> dispatcher -> BatchRunner.run -> dispatcher -> PredictReply(rows, Provenance) -> protocol
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from server.core.records import Reason
from server.engines.batch_result import Example, OnBatch, Outputs
from server.model_description import Bucket


@dataclass(slots=True)
class PredictRequest:
    """What one caller asks of one signature: any number of examples, which stay one request.

    `deadline` is a time of the dispatcher's clock (`time.monotonic`); `priority`: higher goes first; `id`: the
    caller's own name for the request, for messages; `attachment`: the engine whose signature it was read by.
    """

    model: str
    signature: str
    examples: Sequence[Example]
    deadline: float
    priority: int = 0
    id: str = ""
    attachment: int | None = None


@dataclass(slots=True)
class Provenance:
    """How a request was served: its batch, why that was sent, and where the time went (seconds).

    Of a request that took several batches: the last one's, the wait of its first row, and the computing of all.
    `compute_s` is what callers wait for a batch; in the engine, it consists of `assembly_s`, `execute_s` and
    `split_s`. `batch_id`: the last batch's number.
    `reproducible`: what the bits of the answer are certified not to depend on; empty where they are not.
    """

    batch_size: int
    bucket: Bucket
    padding_ratio: float
    reason: Reason
    queue_s: float
    compute_s: float
    batches: int = 1
    assembly_s: float = 0.0
    execute_s: float = 0.0
    split_s: float = 0.0
    batch_id: int = 0
    reproducible: str = ""


@dataclass(slots=True)
class PredictReply:
    """`rows[i]` are the outputs of example i, in the order of the signature's outputs."""

    rows: list[Outputs]
    provenance: Provenance


class BatchRunner(Protocol):
    """What the dispatcher needs of an engine process."""

    def submit(
        self, signature: str, rows: Sequence[Example], bucket: Bucket, owners: Sequence[int], done: OnBatch
    ) -> None:
        """Starts one batch, when none runs. `owners` come back with the answers.

        `done` gets what came of it once, from the event loop or from `poll`: the result; EngineDied if the process
        ends first; another error if the batch could not be run.
        """
        ...

    def poll(self) -> None:
        """Looks at once whether the batch is over."""
        ...

    def kill(self) -> None:
        """Ends the process at once."""
        ...
