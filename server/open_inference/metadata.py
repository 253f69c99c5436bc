"""What the protocol tells about the server and its models: plain data, whose names REST and gRPC share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from server.errors import UnknownModel, Unsupported
from server.lanes import DEFAULT_SIGNATURE
from server.metrics import Metrics
from server.model_description import ModelDescription, SignatureDescription, TensorDescription
from server.open_inference.datatypes import DATATYPES
from server.supervisor import ServedModel, Supervisor

EXTENSIONS = ("binary_tensor_data", "statistics", "model_configuration", "model_repository")
_PLATFORM = "tensorflow_function"
_STATES = {"ready": "READY", "loading": "LOADING", "restarting": "UNAVAILABLE"}


def server_metadata(version: str) -> dict[str, Any]:
    """Who answers, and which extensions of the protocol it speaks."""
    return {"name": "batchd", "version": version, "extensions": list(EXTENSIONS)}


def model_metadata(model: ModelDescription) -> dict[str, Any]:
    """The tensors of the default signature; -1 is any size, the first dimension the examples of a request."""
    signature = _default_signature(model)
    return {
        "name": model.name,
        "versions": [model.version],
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


def statistics(models: Sequence[ServedModel], metrics: Metrics) -> dict[str, Any]:
    """Counts and times of the models that are or were ready, over all signatures and protocols."""
    described = [model.description for model in models if model.description]
    return {"model_stats": [_statistics(model, metrics) for model in described]}


def repository_index(supervisor: Supervisor, *, ready_only: bool = False) -> list[dict[str, str]]:
    """Every model, and whether it can answer."""
    return [
        {
            "name": model.name,
            "version": model.description.version if model.description else "",
            "state": _STATES[model.state],
            "reason": "" if model.state == "ready" else model.state,
        }
        for model in supervisor.models
        if model.state == "ready" or not ready_only
    ]


def refuse_change(model: str, change: str) -> Unsupported:
    """Returns the error for `load` and `unload`."""
    return Unsupported(
        f"model {model!r} can't be {change}ed by a request: a server serves the models that it was started with"
    )


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
    tally = metrics.tally(model.name, model.version)
    nothing = _spent(0, 0.0)
    return {
        "name": model.name,
        "version": model.version,
        "last_inference": round(tally.last_at * 1000),
        "inference_count": tally.examples,
        "execution_count": tally.executions,
        "inference_stats": {
            "success": _spent(tally.succeeded, tally.succeeded_s),
            "fail": _spent(tally.failed, tally.failed_s),
            "queue": _spent(tally.succeeded, tally.queue_s),
            "compute_input": _spent(tally.succeeded, tally.input_s),
            "compute_infer": _spent(tally.succeeded, tally.infer_s),
            "compute_output": _spent(tally.succeeded, tally.output_s),
            "cache_hit": nothing,
            "cache_miss": nothing,
        },
        "batch_stats": [
            {
                "batch_size": size,
                "compute_input": _spent(batches.count, batches.input_s),
                "compute_infer": _spent(batches.count, batches.infer_s),
                "compute_output": _spent(batches.count, batches.output_s),
            }
            for size, batches in sorted(tally.batches.items())
        ],
    }


def _spent(count: int, seconds: float) -> dict[str, int]:
    return {"count": count, "ns": round(seconds * 1e9)}
