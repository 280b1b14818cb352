"""What several storages gave of a draw, put together in its order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import NonTensorStack

from datasets_cli.replay.storages.batches import stack_texts
from datasets_cli.replay.trajectories.index import TrajectoryIndex
from datasets_cli.schema.bits import bits_of
from datasets_cli.schema.tree import Tree


def join_trees(trees: Sequence[Tree], order: torch.Tensor) -> Tree:
    """Return rows of several nested dicts with the same keys as one nested dict."""
    # trees: leaves `[n, ...]` each.
    # order: for each row wanted its number among those of the trees, int64 `[B]`.
    return {name: _join([tree[name] for tree in trees], order) for name in trees[0]}


def _join(leaves: Sequence[Any], order: torch.Tensor) -> Any:
    first = leaves[0]
    if isinstance(first, dict):
        return join_trees(leaves, order)
    if isinstance(first, NonTensorStack):
        values = [value for leaf in leaves for value in leaf.tolist()]
        return stack_texts([values[row] for row in order.tolist()], tuple(first.batch_size[1:]))
    joined = torch.cat([bits_of(leaf) for leaf in leaves])
    return joined.index_select(0, order.to(joined.device)).view(first.dtype)


def join_trajectories(parts: Sequence[TrajectoryIndex]) -> TrajectoryIndex:
    """Return the trajectories of several storages whose rows are numbered one after the other."""
    lengths = torch.cat([part.lengths for part in parts])
    num_rows = sum(part.capacity for part in parts)
    if all(_is_in_order(part) for part in parts):
        starts, begin = [], 0
        for part in parts:
            starts.append(part.starts + begin)
            begin += part.capacity
        return TrajectoryIndex(torch.cat(starts), lengths, 1, num_rows)
    # Every row by its number: rows of a trajectory are apart, or continue at the first row.
    order, begin = [], 0
    for part in parts:
        order.append(part.every_row()[2] + begin)
        begin += part.capacity
    return TrajectoryIndex(lengths.cumsum(0) - lengths, lengths, 1, num_rows, torch.cat(order))


def _is_in_order(part: TrajectoryIndex) -> bool:
    return part.stride == 1 and part.order is None and not part.wraps
