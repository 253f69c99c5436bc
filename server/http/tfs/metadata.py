"""TensorFlow Serving's model status and metadata, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from server.catalogue import ServedModel, State
from server.lanes import DEFAULT_SIGNATURE
from server.model_description import ModelDescription, SignatureDescription, TensorDescription

SERVING_DEFAULT = "serving_default"
"""What clients call the signature `predict`."""

_DTYPES = {
    **{"bool": "DT_BOOL", "string": "DT_STRING", "float16": "DT_HALF", "float32": "DT_FLOAT", "float64": "DT_DOUBLE"},
    **{f"int{bits}": f"DT_INT{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"DT_UINT{bits}" for bits in (8, 16, 32, 64)},
}
_STATES: dict[State, str] = {
    **{"not loaded": "START", "loading": "LOADING", "ready": "AVAILABLE", "restarting": "LOADING"},
    **{"unloading": "UNLOADING", "unloaded": "END"},
}


def status(models: Sequence[ServedModel]) -> dict[str, Any]:
    """The states of these versions of a model."""
    return {"model_version_status": [_version_status(model) for model in models]}


def _version_status(model: ServedModel) -> dict[str, Any]:
    code, message = "OK", ""
    if model.state == "restarting":
        code, message = "UNAVAILABLE", "the engine ended; it is being restarted"
    elif model.failure and model.is_off:
        code, message = "FAILED_PRECONDITION", model.failure
    return {
        "version": model.version,
        "state": "LOADING" if model.being_loaded and model.is_off else _STATES[model.state],
        "status": {"error_code": code, "error_message": message},
    }


def metadata(model: ModelDescription) -> dict[str, Any]:
    """The signatures; -1 is any size, and the first dimension counts examples."""
    signatures = {called(signature.name): _signature(signature) for signature in model.signatures}
    return {
        "model_spec": {"name": model.name, "signature_name": "", "version": model.version},
        "metadata": {"signature_def": {"signature_def": signatures}},
    }


def called(signature: str) -> str:
    """Returns what TensorFlow Serving's clients call a signature."""
    return SERVING_DEFAULT if signature == DEFAULT_SIGNATURE else signature


def meant(name: str) -> str:
    """Returns the signature that a client's name means; none is the default."""
    return DEFAULT_SIGNATURE if name in ("", SERVING_DEFAULT) else name


def _signature(signature: SignatureDescription) -> dict[str, Any]:
    return {
        "inputs": {tensor.name: _tensor(tensor) for tensor in signature.inputs},
        "outputs": {tensor.name: _tensor(tensor) for tensor in signature.outputs},
        "method_name": "tensorflow/serving/predict",
    }


def _tensor(tensor: TensorDescription) -> dict[str, Any]:
    sizes = [-1, *(-1 if size is None else size for size in tensor.shape)]
    return {
        "dtype": _DTYPES[tensor.dtype],
        "tensor_shape": {"dim": [{"size": str(size), "name": ""} for size in sizes], "unknown_rank": False},
        "name": f"{tensor.name}:0",
    }
