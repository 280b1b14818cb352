"""``torchrl.data.datasets``; names only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from datasets_cli.torchrl.names import lazy_names

if TYPE_CHECKING:
    from datasets_cli import (
        AtariDQNExperienceReplay,
        D4RLExperienceReplay,
        MinariExperienceReplay,
        OpenMLExperienceReplay,
    )

__all__ = [
    "AtariDQNExperienceReplay",
    "D4RLExperienceReplay",
    "MinariExperienceReplay",
    "OpenMLExperienceReplay",
]

__getattr__, __dir__ = lazy_names(
    __name__, __all__, modules=("d4rl", "minari_data", "openml", "atari_dqn")
)
