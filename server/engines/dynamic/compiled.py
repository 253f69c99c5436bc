"""Loops over numbers, compiled to machine code at their first call; kept on disk from then on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """The function, compiled by Numba for the types that it is called with."""
    try:
        made: Any = njit(cache=True, nogil=True)(function)
    except RuntimeError:  # Numba 0.68: no folder that could be written to
        made = njit(nogil=True)(function)
    fast: Function = made
    return fast
