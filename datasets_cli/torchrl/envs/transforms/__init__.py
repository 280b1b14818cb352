"""``torchrl.envs.transforms``; names only."""

from typing import TYPE_CHECKING

from datasets_cli.torchrl.envs.transforms import transforms
from datasets_cli.torchrl.names import torchrl_names

__all__ = ["MultiStepTransform"]
__all__ += transforms.__all__

if TYPE_CHECKING:
    from datasets_cli.torchrl.names import *
else:
    __getattr__, __dir__ = torchrl_names(__name__, __all__, modules=("transforms", "rb_transforms"))
