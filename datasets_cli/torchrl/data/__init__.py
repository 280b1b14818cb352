"""``torchrl.data``; names only."""

from typing import TYPE_CHECKING

from datasets_cli.torchrl.data import replay_buffers
from datasets_cli.torchrl.names import torchrl_names

__all__ = [
    "Binary",
    "BinaryDiscreteTensorSpec",
    "Bounded",
    "BoundedTensorSpec",
    "Categorical",
    "Composite",
    "CompositeSpec",
    "DiscreteTensorSpec",
    "MultiCategorical",
    "MultiDiscreteTensorSpec",
    "MultiOneHot",
    "MultiOneHotDiscreteTensorSpec",
    "MultiStep",
    "NonTensor",
    "OneHot",
    "OneHotDiscreteTensorSpec",
    "TensorSpec",
    "Unbounded",
    "UnboundedContinuous",
    "UnboundedContinuousTensorSpec",
    "UnboundedDiscrete",
    "UnboundedDiscreteTensorSpec",
]
__all__ += replay_buffers.__all__

if TYPE_CHECKING:
    from datasets_cli.torchrl.names import *
else:
    __getattr__, __dir__ = torchrl_names(
        __name__, __all__, modules=("datasets", "postprocs", "replay_buffers")
    )
