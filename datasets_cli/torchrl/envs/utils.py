"""``torchrl.envs.utils``; names only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from datasets_cli.torchrl.names import lazy_names

if TYPE_CHECKING:
    from datasets_cli import (
        RandomPolicy,
        check_env_specs,
    )

__all__ = [
    "RandomPolicy",
    "check_env_specs",
]

__getattr__, __dir__ = lazy_names(__name__, __all__)
