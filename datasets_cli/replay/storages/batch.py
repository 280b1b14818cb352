"""Making a batch of leaves."""

from __future__ import annotations

import torch
from tensordict import TensorDict

from datasets_cli.store.schema.tree import Tree


def make_batch(tree: Tree, batch_size: torch.Size) -> TensorDict:
    """Return the TensorDict ``[*batch_size]`` of a nested dict of leaves that are ours.

    The leaves are known to have this leading shape, so tensordict's unchecked constructor serves:
    it takes a tenth of the public one's time, and half of a small batch's time is wrappers.
    """
    batch: TensorDict = TensorDict._new_unsafe(tree, batch_size)
    return batch
