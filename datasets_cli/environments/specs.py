"""The specs of an environment, of its arrays in gymnasium."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from datasets_cli.environments.leaves import SpaceLeaf
from datasets_cli.gymnasium_extra import gymnasium
from datasets_cli.specs.composite import Composite
from datasets_cli.specs.gymnasium_spaces import spec_from_gymnasium
from datasets_cli.specs.spec import TensorSpec


def tree_spec(
    leaves: Sequence[SpaceLeaf], batch: tuple[int, ...], device: torch.device
) -> Composite:
    """Return the spec of what is at the root of a TensorDict."""
    spec = Composite(shape=batch)
    for leaf in leaves:
        spec[leaf.key] = leaf_spec(leaf, batch, device)
    return spec


def leaf_spec(leaf: SpaceLeaf, batch: tuple[int, ...], device: torch.device) -> TensorSpec:
    """Return the spec of one array."""
    space = leaf.space
    if leaf.one_hot and isinstance(space, gymnasium.spaces.Discrete):
        space = gymnasium.spaces.Discrete(space.n)  # columns are counted from 0
    elif leaf.one_hot and isinstance(space, gymnasium.spaces.MultiDiscrete):
        space = gymnasium.spaces.MultiDiscrete(space.nvec, space.dtype.type)
    spec = spec_from_gymnasium(space, one_hot=leaf.one_hot)
    return spec.to(device).expand(*batch, *spec.shape)
