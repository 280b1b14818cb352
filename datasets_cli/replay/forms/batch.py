"""Batches: made of leaves, and mapped part by part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDict, is_tensor_collection
from torch.utils import _pytree

from datasets_cli.replay.arguments import Rows
from datasets_cli.store.schema.tree import Tree


def make_batch(
    tree: Tree, batch_size: torch.Size, device: torch.device | None = None
) -> TensorDict:
    """Return the TensorDict ``[*batch_size]`` of a nested dict of leaves that are ours."""
    # The leaves are known to have this leading shape and device, so none of tensordict's
    # constructors is called: its unchecked one takes three times as long, and the public one thirty
    # times, where half of a small batch's time is wrappers. The dict itself becomes the
    # TensorDict's.
    batch: TensorDict = TensorDict.__new__(TensorDict)
    batch._tensordict, batch._batch_size = tree, batch_size
    batch._device, batch._td_dim_names = device, None
    for name, entry in tree.items():
        if type(entry) is dict:
            tree[name] = make_batch(entry, batch_size, device)
    return batch


def map_rows(function: Callable[[Any], Any], batch: Rows) -> Rows:
    """Return a function of a TensorDict, or of each tensor and TensorDict in a structure."""
    # A tensorclass is like a TensorDict.
    return _pytree.tree_map(function, batch, is_leaf=_is_part)


def _is_part(part: Rows) -> bool:
    found: bool = is_tensor_collection(part)
    return found
