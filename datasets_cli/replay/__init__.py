"""Replay buffers: storages, samplers, writers.

The public names of this room, and those that take TorchRL's arguments to its parts, can be imported
from here, too; each is loaded when it is first used.
"""

from __future__ import annotations

from typing import Any

import datasets_cli
from datasets_cli import _LAZY_IMPORTS

ROOMS = ("replay.", "torchrl.buffers", "torchrl.slice_samplers", "torchrl.slice_samplers")
__all__ = [name for name, home in _LAZY_IMPORTS.items() if home.startswith(ROOMS)]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(datasets_cli, name)
    raise AttributeError(f"module 'datasets_cli.replay' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
