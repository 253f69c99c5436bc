"""Batching at run time, as DyNet does it: each example's graph grows op by op, and alike nodes of all run together."""

from server.engines.dynamic.engine import DynamicAutoEngine, DynamicDepthEngine, DynamicEngine, DynamicHybridEngine

__all__ = ["DynamicAutoEngine", "DynamicDepthEngine", "DynamicEngine", "DynamicHybridEngine"]
