"""Element types by their names."""

from __future__ import annotations

import torch

from datasets_cli.errors import UsageError


def torch_dtype(name: str) -> torch.dtype:
    """Return the element type of torch that has a name, such as ``float32``."""
    dtype = getattr(torch, name, None) if isinstance(name, str) else None
    if not isinstance(dtype, torch.dtype):
        raise UsageError(f"There is no element type {name!r} in torch {torch.__version__}.")
    return dtype
