"""Reductions: how several numbers a row become one."""

from __future__ import annotations

from collections.abc import Callable

import torch

REDUCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "max": lambda several: several.amax(1),
    "min": lambda several: several.amin(1),
    "mean": lambda several: several.mean(1),
    "median": lambda several: several.median(1).values,
}
"""By name, of numbers ``[n, k]`` one a row ``[n]``."""
