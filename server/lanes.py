"""Finding what a request asks for: a signature of a model that is ready, and how a protocol reads and writes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from server.catalogue import ServedModel
from server.errors import UnknownModel
from server.metrics import Metrics
from server.model_description import ModelDescription, SignatureDescription
from server.supervisor import Supervisor

DEFAULT_SIGNATURE = "predict"
Codec = TypeVar("Codec")


class Lane(Generic[Codec]):
    """A signature of a model that is ready, its codec in one protocol, and where to count.

    `attachment`: the engine that this describes; a request must say so, since another may have taken over when it runs.
    """

    def __init__(
        self,
        model: ModelDescription,
        attachment: int | None,
        signature: SignatureDescription,
        codec: Codec,
        metrics: Metrics,
    ) -> None:
        self.model = model
        self.attachment = attachment
        self.signature = signature
        self.codec = codec
        self.metrics = metrics.lane(model.name, signature.name, model.engine, model.version)


class Lanes(Generic[Codec]):
    """All lanes, as one protocol sees them. A codec is made once for each engine, and goes with the model."""

    def __init__(
        self, supervisor: Supervisor, metrics: Metrics, make_codec: Callable[[SignatureDescription], Codec]
    ) -> None:
        self._supervisor = supervisor
        self._metrics = metrics
        self._make_codec = make_codec
        self._lanes: WeakKeyDictionary[ServedModel, dict[str, Lane[Codec]]] = WeakKeyDictionary()

    def find(self, name: str | None, version: str = "", signature: str = DEFAULT_SIGNATURE) -> Lane[Codec]:
        """Returns the lane; without a name, of the only model. Raises UnknownModel, ModelUnavailable."""
        served = self._supervisor.find(name, version) if name else self._supervisor.only(version)
        model = served.ready()
        of_model = self._lanes.get(served)
        if of_model is None:
            of_model = self._lanes[served] = {}
        lane = of_model.get(signature)
        if lane is None or lane.attachment != served.attachment:
            described = model.signature(signature)
            if described is None:
                names = ", ".join(each.name for each in model.signatures)
                raise UnknownModel(f"model {model.name!r} has no signature {signature!r}; it has: {names}")
            codec = self._make_codec(described)
            lane = of_model[signature] = Lane(model, served.attachment, described, codec, self._metrics)
        return lane
