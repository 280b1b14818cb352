"""Batches: made of leaves, and mapped part by part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from torch.utils import _pytree

from datasets_cli.replay.arguments import Rows
from datasets_cli.store.schema.tree import Tree


def make_batch(tree: Tree, batch_size: torch.Size) -> TensorDict:
    """Return the TensorDict ``[*batch_size]`` of a nested dict of leaves that are ours.

    The leaves are known to have this leading shape, so tensordict's unchecked constructor serves:
    it takes a tenth of the public one's time, and half of a small batch's time is wrappers.
    """
    batch: TensorDict = TensorDict._new_unsafe(tree, batch_size)
    return batch


def map_rows(function: Callable[[Any], Any], batch: Rows) -> Rows:
    """Return a function of a TensorDict, or of each tensor and TensorDict in a structure."""
    return _pytree.tree_map(function, batch, is_leaf=_is_part)


def _is_part(part: Rows) -> bool:
    return isinstance(part, TensorDictBase)
