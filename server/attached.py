"""The engines that a dispatcher sends batches to, and their lanes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from server.core.records import LaneSettings
from server.engines.batch_result import Example
from server.engines.measure import Measure
from server.metrics import LaneMetrics
from server.model_description import ModelDescription, SignatureDescription
from server.prediction import BatchRunner


@dataclass(slots=True)
class Attached:
    """An engine that takes requests: its lanes by signature, how many callers wait for it, and who waits for them."""

    number: int
    model: str
    lanes: dict[str, ServedLane] = field(default_factory=dict)
    waiting: int = 0
    emptied: asyncio.Event = field(default_factory=asyncio.Event)


class ServedLane:
    """One signature of one attached model: what is measured of its examples, who computes it, its metrics."""

    def __init__(
        self,
        attached: Attached,
        model: ModelDescription,
        signature: SignatureDescription,
        runner: BatchRunner,
        metrics: LaneMetrics,
        settings: LaneSettings,
    ) -> None:
        self.key = (attached.number, signature.name)
        self.labels = (model.name, model.version, signature.name, model.engine)
        self.attached = attached
        self.model = model.name
        self.signature = signature.name
        self.runner = runner
        self.metrics = metrics
        self.settings = settings
        self.compiles = 0
        certified = model.reproducible.get(signature.name)
        self.reproducible = certified.header() if certified else ""
        self.measure = Measure(signature.inputs, signature.bounds)
        self.is_measured = bool(signature.bounds)
        self._texts = [index for index, tensor in enumerate(signature.inputs) if tensor.dtype == "string"]

    def bytes_of(self, example: Example) -> int:
        """What the example occupies while it waits."""
        texts = sum(sum(map(len, example[index].flat)) for index in self._texts)
        return texts + sum([array.nbytes for array in example])
