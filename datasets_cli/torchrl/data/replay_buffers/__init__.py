"""``torchrl.data.replay_buffers``; names only."""

from typing import TYPE_CHECKING

from datasets_cli.torchrl.data.replay_buffers import (
    her,
    offline_to_online,
    replay_buffers,
    samplers,
    storages,
    writers,
)
from datasets_cli.torchrl.names import torchrl_names

__all__ = [
    "Trajectory",
    "TrajectoryPredicate",
    "filter_trajectories",
    "iter_trajectories",
    "traj",
]
__all__ += her.__all__
__all__ += offline_to_online.__all__
__all__ += replay_buffers.__all__
__all__ += samplers.__all__
__all__ += storages.__all__
__all__ += writers.__all__

if TYPE_CHECKING:
    from datasets_cli.torchrl.names import *
else:
    __getattr__, __dir__ = torchrl_names(
        __name__,
        __all__,
        modules=(
            "her",
            "offline_to_online",
            "replay_buffers",
            "samplers",
            "scheduler",
            "storages",
            "writers",
        ),
    )
