"""What the protocol tells about the server and its models: plain data, whose names REST and gRPC share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from server.catalogue import ServedModel, State
from server.errors import UnknownModel, Unsupported
from server.lanes import DEFAULT_SIGNATURE
from server.metrics import LaneMetrics, Metrics
from server.model_description import ModelDescription, SignatureDescription, TensorDescription
from server.open_inference.datatypes import DATATYPES
from server.supervisor import Supervisor

EXTENSIONS = ("binary_tensor_data", "statistics", "model_configuration", "model_repository")
_PLATFORM = "tensorflow_function"
_STATES: dict[State, str] = {
    **{"ready": "READY", "loading": "LOADING", "restarting": "UNAVAILABLE"},
    **{"unloading": "UNLOADING", "unloaded": "UNAVAILABLE", "not loaded": "UNAVAILABLE"},
}


def server_metadata(version: str) -> dict[str, Any]:
    """Who answers, and which extensions of the protocol it speaks."""
    return {"name": "batchd", "version": version, "extensions": list(EXTENSIONS)}


def model_metadata(supervisor: Supervisor, name: str, version: str) -> dict[str, Any]:
    """The tensors of the default signature; -1 is any size, the first dimension the examples of a request.

    Raises UnknownModel, ModelUnavailable. All versions that serve are listed, whichever is described.
    """
    model = supervisor.find(name, version).ready()
    signature = _default_signature(model)
    return {
        "name": model.name,
        "versions": [each.version for each in supervisor.versions(name) if each.is_serving],
        "platform": _PLATFORM,
        "inputs": [_tensor(tensor) for tensor in signature.inputs],
        "outputs": [_tensor(tensor) for tensor in signature.outputs],
    }


def model_config(model: ModelDescription) -> dict[str, Any]:
    """The same as Triton's model configuration has it: shapes of one example, and the largest batch."""
    signature = _default_signature(model)
    return {
        "name": model.name,
        "platform": _PLATFORM,
        "backend": "batchd",
        "max_batch_size": model.max_batch_size,
        "input": [_configured(tensor) for tensor in signature.inputs],
        "output": [_configured(tensor) for tensor in signature.outputs],
    }


def chosen(supervisor: Supervisor, name: str, version: str) -> Sequence[ServedModel]:
    """The version of a model that is asked for; all, where none is. Raises UnknownModel, ModelUnavailable."""
    return [supervisor.find(name, version)] if version else supervisor.versions(name)


def statistics(models: Sequence[ServedModel], metrics: Metrics) -> dict[str, Any]:
    """Counts and times of the default signatures of the models that are or were ready, over all protocols."""
    described = [model.description for model in models if model.description]
    return {"model_stats": [_statistics(model, metrics) for model in described]}


def repository_index(supervisor: Supervisor, *, ready_only: bool = False) -> list[dict[str, str]]:
    """Every version of every model, whether it can answer, and if not, or if a load has failed, why."""
    return [
        {
            "name": model.name,
            "version": model.version,
            "state": "LOADING" if model.being_loaded and model.is_off else _STATES[model.state],
            "reason": _reason(model),
        }
        for model in supervisor.models
        if model.state == "ready" or not ready_only
    ]


def refuse_load_parameters(names: Iterable[str]) -> None:
    """Raises Unsupported for what would say from where or how a model is loaded: the command line alone says that."""
    for name in names:
        if name == "config" or name.startswith("file:"):
            raise Unsupported(
                f"the parameter {name!r} isn't supported: a model is loaded from the file that the server was "
                "started with, which no request can change"
            )


def _reason(model: ServedModel) -> str:
    parts: list[str] = [] if model.state == "ready" else [model.state]
    if model.being_loaded:
        parts.append("being loaded")
    if model.failure:
        parts.append(f"the last load failed: {model.failure}")
    return "; ".join(parts)


def _default_signature(model: ModelDescription) -> SignatureDescription:
    signature = model.signature(DEFAULT_SIGNATURE)
    if signature is None:
        raise UnknownModel(f"model {model.name!r} has no signature {DEFAULT_SIGNATURE!r}")
    return signature


def _tensor(tensor: TensorDescription) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": DATATYPES[tensor.dtype], "shape": [-1, *_sizes(tensor)]}


def _configured(tensor: TensorDescription) -> dict[str, Any]:
    datatype = "STRING" if tensor.dtype == "string" else DATATYPES[tensor.dtype]
    return {"name": tensor.name, "data_type": f"TYPE_{datatype}", "dims": _sizes(tensor)}


def _sizes(tensor: TensorDescription) -> list[int]:
    return [-1 if size is None else size for size in tensor.shape]


def _statistics(model: ModelDescription, metrics: Metrics) -> dict[str, Any]:
    lane: LaneMetrics = metrics.lane(model.name, DEFAULT_SIGNATURE, model.engine, model.version)
    tally = lane.tally

    def spent(count: int, seconds: float) -> dict[str, int]:
        return {"count": count, "ns": round(seconds * 1e9)}

    nothing = spent(0, 0.0)
    return {
        "name": model.name,
        "version": model.version,
        "inference_count": tally.examples,
        "execution_count": lane.batches(),
        "inference_stats": {
            "success": spent(tally.succeeded, tally.succeeded_s),
            "fail": spent(tally.failed, tally.failed_s),
            "queue": spent(tally.succeeded, tally.queue_s),
            "compute_input": nothing,
            "compute_infer": spent(tally.succeeded, tally.compute_s),
            "compute_output": nothing,
            "cache_hit": nothing,
            "cache_miss": nothing,
        },
        "batch_stats": [],
    }
