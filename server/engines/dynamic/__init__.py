"""Batching at run time, as DyNet does it: each example's graph grows op by op, and alike nodes of all run together."""

from server.engines.dynamic.engine import DynamicDepthEngine, DynamicEngine

__all__ = ["DynamicDepthEngine", "DynamicEngine"]
