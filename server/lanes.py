"""Finding what a request asks for: a signature of a model that is ready, and how a protocol reads and writes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from server.errors import UnknownModel
from server.metrics import Metrics
from server.model_description import ModelDescription, SignatureDescription
from server.supervisor import ServedModel, Supervisor

DEFAULT_SIGNATURE = "predict"
Codec = TypeVar("Codec")


class Lane(Generic[Codec]):
    """A signature of a model that is ready, its codec in one protocol, and where to count."""

    def __init__(
        self, model: ModelDescription, signature: SignatureDescription, codec: Codec, metrics: Metrics
    ) -> None:
        self.model = model
        self.signature = signature
        self.codec = codec
        self.metrics = metrics.lane(model.name, signature.name, model.engine, model.version)


class Lanes(Generic[Codec]):
    """All lanes, as one protocol sees them. A codec is made once for each time that a model becomes ready."""

    def __init__(
        self, supervisor: Supervisor, metrics: Metrics, make_codec: Callable[[SignatureDescription], Codec]
    ) -> None:
        self._supervisor = supervisor
        self._metrics = metrics
        self._make_codec = make_codec
        self._lanes: dict[tuple[str, str], Lane[Codec]] = {}

    def find(self, name: str | None, version: str = "", signature: str = DEFAULT_SIGNATURE) -> Lane[Codec]:
        """Returns the lane; without a name, of the only model. Raises UnknownModel, ModelUnavailable."""
        served = find_version(self._supervisor, name, version) if name else self._supervisor.only()
        model = served.ready()
        key = (model.name, signature)
        lane = self._lanes.get(key)
        if lane is None or lane.model is not model:
            described = model.signature(signature)
            if described is None:
                names = ", ".join(each.name for each in model.signatures)
                raise UnknownModel(f"model {model.name!r} has no signature {signature!r}; it has: {names}")
            lane = self._lanes[key] = Lane(model, described, self._make_codec(described), self._metrics)
        return lane


def find_version(supervisor: Supervisor, name: str, version: str) -> ServedModel:
    """Returns the model; an empty version is whichever is served. Raises UnknownModel, ModelUnavailable."""
    served = supervisor.find(name)
    if version and served.description and served.description.version != version:
        there = served.description.version
        raise UnknownModel(f"model {name!r} has no version {version!r}; served here: version {there!r}")
    return served
