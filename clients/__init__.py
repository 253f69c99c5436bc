"""Python clients of a batchd server; no TensorFlow needed.

    from clients import Client

    with Client("http://127.0.0.1:8000") as client:
        client.predict("language", text="guten Morgen")["language"]

Names are imported on first use, so that a command line that only mentions `clients` starts at once.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clients.async_client import AsyncClient
    from clients.errors import (
        ClientError,
        ConnectionFailed,
        DeadlineExceeded,
        Forbidden,
        InvalidInput,
        NotFound,
        NotReady,
        Overloaded,
        PayloadTooLarge,
        ServerError,
        Unauthenticated,
    )
    from clients.prediction import Prediction, Provenance
    from clients.sync_client import Client

_MODULE_OF = {
    "AsyncClient": "clients.async_client",
    "Client": "clients.sync_client",
    "ClientError": "clients.errors",
    "ConnectionFailed": "clients.errors",
    "DeadlineExceeded": "clients.errors",
    "Forbidden": "clients.errors",
    "InvalidInput": "clients.errors",
    "NotFound": "clients.errors",
    "NotReady": "clients.errors",
    "Overloaded": "clients.errors",
    "PayloadTooLarge": "clients.errors",
    "Prediction": "clients.prediction",
    "Provenance": "clients.prediction",
    "ServerError": "clients.errors",
    "Unauthenticated": "clients.errors",
}

__all__ = [
    "AsyncClient",
    "Client",
    "ClientError",
    "ConnectionFailed",
    "DeadlineExceeded",
    "Forbidden",
    "InvalidInput",
    "NotFound",
    "NotReady",
    "Overloaded",
    "PayloadTooLarge",
    "Prediction",
    "Provenance",
    "ServerError",
    "Unauthenticated",
]


def __getattr__(name: str) -> object:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'clients' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)
