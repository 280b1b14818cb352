"""Replay buffers: storages, samplers, writers.

Their public names can be imported from here, too; each is loaded when it is first used.
"""

from __future__ import annotations

from typing import Any

import datasets_cli
from datasets_cli import _HOMES


def __getattr__(name: str) -> Any:
    if name in __dir__():
        return getattr(datasets_cli, name)
    raise AttributeError(f"module 'datasets_cli.replay' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [name for name, home in _HOMES.items() if home.startswith("replay.")]
