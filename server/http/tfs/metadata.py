"""TensorFlow Serving's model status and metadata, as plain data."""

from __future__ import annotations

from typing import Any

from server.lanes import DEFAULT_SIGNATURE
from server.model_description import ModelDescription, SignatureDescription, TensorDescription
from server.supervisor import ServedModel

SERVING_DEFAULT = "serving_default"
"""What clients call the signature `predict`."""

_DTYPES = {
    **{"bool": "DT_BOOL", "string": "DT_STRING", "float16": "DT_HALF", "float32": "DT_FLOAT", "float64": "DT_DOUBLE"},
    **{f"int{bits}": f"DT_INT{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"DT_UINT{bits}" for bits in (8, 16, 32, 64)},
}
_STATES = {"ready": "AVAILABLE", "loading": "LOADING", "restarting": "LOADING"}


def status(model: ServedModel) -> dict[str, Any]:
    """The state of the version that is served."""
    fine = model.state != "restarting"
    return {
        "model_version_status": [
            {
                "version": model.description.version if model.description else "",
                "state": _STATES[model.state],
                "status": {
                    "error_code": "OK" if fine else "UNAVAILABLE",
                    "error_message": "" if fine else "the engine ended; it is being restarted",
                },
            }
        ]
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
