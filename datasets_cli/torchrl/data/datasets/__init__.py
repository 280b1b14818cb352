"""``torchrl.data.datasets``; names only."""

from typing import TYPE_CHECKING

from datasets_cli.torchrl.names import torchrl_names

__all__ = [
    "AtariDQNExperienceReplay",
    "D4RLExperienceReplay",
    "MinariExperienceReplay",
    "OpenMLExperienceReplay",
    "load_dataset",
]

if TYPE_CHECKING:
    from datasets_cli.torchrl.names import *
else:
    __getattr__, __dir__ = torchrl_names(
        __name__, __all__, modules=("d4rl", "minari_data", "openml", "atari_dqn")
    )
