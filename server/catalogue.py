"""What is served: names, versions and states, and which of them a request means. No processes here.

A model is found by its name and, if the caller says so, a version; else the latest that is on offer: the highest
number where versions are numbers, otherwise the one that was given last.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from server.errors import ModelUnavailable, UnknownModel
from server.model_description import ModelDescription
from server.process.messages import ModelSource, Progress

State: TypeAlias = Literal["loading", "ready", "restarting", "unloading", "unloaded", "not loaded"]
"""`loading`: for the first time, at start. `unloading`: finishing what it has. `not loaded`: its file has it, but never
since the start has anyone asked for it."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class ServedModel:
    """A version of a model and how it is doing. `name` is the location until its file has been loaded.

    `attachment`: the number by which the dispatcher knows its engine, while there is one. `being_loaded`: a request
    for it to be loaded, perhaps beside what serves now, is under way. `failure`: why the last such load, or
    restart, failed.
    """

    name: str
    source: ModelSource
    state: State = "loading"
    version: str = ""
    description: ModelDescription | None = None
    attachment: int | None = None
    progress: Progress | None = None
    restarts: int = 0
    being_loaded: bool = False
    failure: str = ""

    @property
    def is_serving(self) -> bool:
        """Whether it answers, or will as soon as its engine is up again."""
        return self.state in ("ready", "restarting")

    @property
    def is_off(self) -> bool:
        """Whether it is meant not to answer."""
        return self.state in ("unloading", "unloaded", "not loaded")

    def ready(self) -> ModelDescription:
        """Returns the description of a model that can answer. Raises ModelUnavailable, UnknownModel if unloaded."""
        if self.state == "ready" and self.description is not None:
            return self.description
        if self.is_off and not self.being_loaded:
            raise UnknownModel(f"model {self.name!r} is {self.state}; it can be used once it has been loaded again")
        state = "loading" if self.being_loaded and self.is_off else self.state
        raise ModelUnavailable(f"model {self.name!r} is {state}{self._how_far()}; try again in a moment")

    def _how_far(self) -> str:
        if self.progress is None:
            return ""
        of_total = f" {self.progress.done} of {self.progress.total}" if self.progress.total else ""
        return f" ({self.progress.phase}{of_total})"


class Catalogue:
    """All models that are served, or could be, in the order in which they were given."""

    def __init__(self) -> None:
        self.models: list[ServedModel] = []

    @property
    def loading(self) -> bool:
        """Whether a model that was given at start has never been ready yet; more may then be found in its file."""
        return not self.models or any(model.state == "loading" for model in self.models)

    def add_after(self, place: ServedModel, models: Sequence[ServedModel]) -> None:
        """Adds models of the same file."""
        index = self.models.index(place) + 1
        self.models[index:index] = models

    def replace(self, old: Sequence[ServedModel], new: Sequence[ServedModel]) -> None:
        """Puts all the new ones where the first of the old stood."""
        index = min(self.models.index(model) for model in old)
        self.models = [model for model in self.models if model not in old]
        self.models[index:index] = new

    def versions(self, name: str) -> list[ServedModel]:
        """Returns all versions of a model; none if no file has told that name yet."""
        return [model for model in self.models if model.name == name and model.source.model is not None]

    def find(self, name: str, version: str = "") -> ServedModel:
        """Returns a version of a model, the latest where none is said. Raises UnknownModel, ModelUnavailable."""
        versions = self.versions(name)
        if len(versions) == 1 and version in ("", versions[0].version):
            return versions[0]
        if not versions:
            if self.loading:
                raise ModelUnavailable(f"model {name!r} is not loaded; models are still loading")
            raise UnknownModel(f"no model {name!r}; {self._served()}")
        if not version:
            return _latest(versions)
        for model in versions:
            if model.version == version:
                return model
        for model in versions:
            if model.state == "loading":  # which version it is isn't known yet
                return model
        there = ", ".join(repr(model.version) for model in versions if not model.is_off)
        raise UnknownModel(f"model {name!r} has no version {version!r}; served here: version {there or 'none'}")

    def only(self, version: str = "") -> ServedModel:
        """Returns the only model, in that version. Raises UnknownModel if not alone, ModelUnavailable while loading."""
        if self.loading:
            raise ModelUnavailable("models are still loading; try again in a moment")
        names = {model.name for model in self.models if not model.is_off} or {model.name for model in self.models}
        if len(names) == 1:
            return self.find(names.pop(), version)
        raise UnknownModel(f'"model" is needed when several models are served; {self._served()}')

    def not_ready(self) -> str | None:
        """Returns why not all models that should answer can, or None if they can."""
        waiting = [
            f"{model.name!r} is {model.state}{f' (the last try: {model.failure})' if model.failure else ''}"
            for model in self.models
            if model.state in ("loading", "restarting")
        ]
        return "; ".join(waiting) or (None if self.models else "no model is loaded yet")

    def _served(self) -> str:
        return f"served here: {', '.join(dict.fromkeys(model.name for model in self.models))}"


def _latest(versions: Sequence[ServedModel]) -> ServedModel:
    """The latest of those that serve; else of those that will; else of all."""
    serving = [model for model in versions if model.is_serving]
    latest, *others = serving or [model for model in versions if not model.is_off] or versions
    for model in others:
        if not (_is_number(latest.version) and _is_number(model.version)) or int(model.version) > int(latest.version):
            latest = model
    return latest


def _is_number(version: str) -> bool:
    return version.isascii() and version.isdigit()
