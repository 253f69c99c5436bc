"""batchd's server. `from server import model` is all that a model file needs."""

from server.registry import model

__all__ = ["model"]
