"""The specs of an environment, of its arrays in gymnasium."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from datasets_cli.collect.environments.gymnasium_extra import gymnasium
from datasets_cli.collect.environments.leaves import Leaf
from datasets_cli.collect.environments.rows import FLAGS
from datasets_cli.specs.bounded import Bounded
from datasets_cli.specs.categorical import Categorical
from datasets_cli.specs.composite import Composite
from datasets_cli.specs.multi_categorical import MultiCategorical
from datasets_cli.specs.multi_one_hot import MultiOneHot
from datasets_cli.specs.one_hot import OneHot
from datasets_cli.specs.spec import TensorSpec
from datasets_cli.specs.unbounded import Unbounded

Shape = tuple[int, ...]
Device = torch.device | None


def tree_spec(leaves: Sequence[Leaf], batch: Shape, device: Device) -> Composite:
    """Return the spec of what is at the root of a TensorDict.

    Args:
        leaves: its arrays.
        batch: with which every shape begins.
        device: of the values; the processor where None.
    """
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
    space, where = leaf.space, device or torch.device("cpu")
    dtype = torch.from_numpy(np.empty(0, leaf.dtype)).dtype
    spec: TensorSpec
    if isinstance(space, gymnasium.spaces.Box):
        low, high = torch.from_numpy(space.low.copy()), torch.from_numpy(space.high.copy())
        if low.is_floating_point() and bool(low.isneginf().all() & high.isposinf().all()):
            spec = Unbounded(leaf.shape, where, dtype)
        else:
            spec = Bounded(low, high, leaf.shape, where, dtype)
    elif isinstance(space, gymnasium.spaces.MultiBinary):
        spec = Categorical(2, leaf.shape, where, dtype)
    else:
        spec = _discrete(leaf, where)
    return spec.expand(*batch, *spec.shape)


def _discrete(leaf: Leaf, device: torch.device) -> TensorSpec:
    counts = [int(count) for count in leaf.counts] if leaf.counts is not None else []
    if isinstance(leaf.space, gymnasium.spaces.Discrete):
        if leaf.one_hot:
            return OneHot(counts[0], device=device, dtype=torch.int64)
        return Categorical(counts[0], device=device)
    if leaf.one_hot:
        return MultiOneHot(counts, device=device, dtype=torch.int64)
    return MultiCategorical(leaf.space.nvec.tolist(), device=device)


def reward_spec(batch: Shape, device: Device) -> TensorSpec:
    """Return the spec of rewards, ``[*batch, 1]``."""
    return Unbounded((*batch, 1), device or torch.device("cpu"), torch.float32)


def done_spec(batch: Shape, device: Device) -> Composite:
    """Return the spec of the flags that end a trajectory, ``[*batch, 1]`` each."""
    flag = Categorical(2, (*batch, 1), device or torch.device("cpu"), torch.bool)
    return Composite(dict.fromkeys(FLAGS, flag), shape=batch)
