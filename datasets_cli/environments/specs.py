"""The specs of an environment, of its arrays in gymnasium."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from datasets_cli.environments.leaves import Leaf
from datasets_cli.environments.rows import FLAGS
from datasets_cli.gymnasium_extra import gymnasium
from datasets_cli.specs.categorical import Categorical
from datasets_cli.specs.composite import Composite
from datasets_cli.specs.forms.gymnasium_spaces import spec_from_gymnasium
from datasets_cli.specs.spec import TensorSpec
from datasets_cli.specs.unbounded import Unbounded

Shape = tuple[int, ...]
Device = torch.device | None


def tree_spec(leaves: Sequence[Leaf], batch: Shape, device: Device) -> Composite:
    """Return the spec of what is at the root of a TensorDict."""
    tree: dict[str, Any] = {}
    for leaf in leaves:
        branch = tree
        for name in leaf.key[:-1]:
            branch = branch.setdefault(name, {})
        branch[leaf.key[-1]] = leaf_spec(leaf, batch, device)
    return _composite(tree, batch)


def _composite(tree: dict[str, Any], batch: Shape) -> Composite:
    parts = {
        name: _composite(part, batch) if isinstance(part, dict) else part
        for name, part in tree.items()
    }
    return Composite(parts, shape=batch)


def leaf_spec(leaf: Leaf, batch: Shape, device: Device) -> TensorSpec:
    """Return the spec of one array."""
    space = leaf.space
    if leaf.one_hot and isinstance(space, gymnasium.spaces.Discrete):
        space = gymnasium.spaces.Discrete(space.n)  # columns are counted from 0
    elif leaf.one_hot and isinstance(space, gymnasium.spaces.MultiDiscrete):
        space = gymnasium.spaces.MultiDiscrete(space.nvec, space.dtype.type)
    spec = spec_from_gymnasium(space, one_hot=leaf.one_hot)
    return spec.to(device or torch.device("cpu")).expand(*batch, *spec.shape)


def reward_spec(batch: Shape, device: Device) -> TensorSpec:
    """Return the spec of rewards, ``[*batch, 1]``."""
    return Unbounded((*batch, 1), device or torch.device("cpu"), torch.float32)


def done_spec(batch: Shape, device: Device) -> Composite:
    """Return the spec of the flags that end a trajectory, ``[*batch, 1]`` each."""
    flag = Categorical(2, (*batch, 1), device or torch.device("cpu"), torch.bool)
    return Composite(dict.fromkeys(FLAGS, flag), shape=batch)
