"""What members gave of a draw, put together: rows, batches and trajectories."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from tensordict import LazyStackedTensorDict, NonTensorStack, is_tensor_collection
from torch.utils import _pytree

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import Rows
from datasets_cli.replay.several.agreement import differing, plain_leaves
from datasets_cli.replay.storages.batches import make_batch, stack_texts
from datasets_cli.replay.storages.form import outline
from datasets_cli.replay.trajectories.index import TrajectoryIndex
from datasets_cli.schema.bits import bits_of
from datasets_cli.schema.columns import show_key
from datasets_cli.schema.tree import Tree, grow_tree

JoinFunction = Callable[[list[Rows]], Rows]


def join_trees(trees: Sequence[Tree], order: torch.Tensor) -> Tree:
    """Return rows of several nested dicts with the same keys as one nested dict."""
    # trees: leaves `[n, ...]` each, which make one column `[n of all, ...]` side by side.
    # order: for each row wanted its number in that column, int64 `[B]`.
    return {name: _join([tree[name] for tree in trees], order) for name in trees[0]}


def _join(leaves: Sequence[Rows], order: torch.Tensor) -> Rows:
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
    capacities = torch.tensor([part.capacity for part in parts])
    num_rows = int(capacities.sum())
    # The first row of each part: what its own numbers are moved by.
    begins = (capacities.cumsum(0) - capacities).tolist()
    if all(part.stride == 1 and part.order is None and not part.wraps for part in parts):
        starts = [part.starts + begin for part, begin in zip(parts, begins, strict=True)]
        return TrajectoryIndex(torch.cat(starts), lengths, 1, num_rows)
    # Every row by its number: rows of a trajectory are apart, or continue at the first row.
    order = [part.every_row()[2] + begin for part, begin in zip(parts, begins, strict=True)]
    return TrajectoryIndex(lengths.cumsum(0) - lengths, lengths, 1, num_rows, torch.cat(order))


def stacked(parts: list[Rows]) -> Rows:
    """Return what members gave side by side, ``[members, B]``: a lazy stack of TensorDicts."""
    return _each(LazyStackedTensorDict.lazy_stack, parts, torch.stack)


def joined(members: Sequence[int], parts: Sequence[Rows]) -> Rows:
    """Return what members gave as one, ``[B]``."""
    for member, part in zip(members[1:], parts[1:], strict=True):
        if odd := differing(parts[0], part):
            names = ", ".join(map(show_key, odd))
            raise UsageError(
                f"Buffers {members[0]} and {member} differ in {names}: give these the same shape "
                "and element type, or leave them out, with a transform of each; or sample() parts "
                "that may differ."
            )
    return concatenated(parts)


def concatenated(parts: Sequence[Rows]) -> Rows:
    """Return batches one after the other; those of TensorDicts have the same entries."""
    if len(parts) == 1:
        return parts[0]
    plain = [leaves for leaves in map(plain_leaves, parts) if leaves is not None]
    if len(plain) < len(parts):
        return _each(torch.cat, list(parts), torch.cat)
    # Leaf by leaf takes a third of the time that tensordict does.
    joint = {key: torch.cat([leaves[key] for leaves in plain]) for key in plain[0]}
    devices = {part.device for part in parts}
    size = torch.Size([sum(map(len, parts)), *parts[0].batch_size[1:]])
    return make_batch(grow_tree(joint), size, devices.pop() if len(devices) == 1 else None)


def _each(function: JoinFunction, parts: list[Rows], of_tensors: JoinFunction) -> Rows:
    """Return a function of TensorDicts, or of the tensors at each place of equal structures."""
    if all(is_tensor_collection(part) for part in parts):
        if len({part.device for part in parts}) > 1:
            parts = [part.copy().clear_device_() for part in parts]
        return function(parts)

    def of_equal(*several: torch.Tensor) -> Rows:
        types = {getattr(tensor, "dtype", None) for tensor in several}
        if len(types) > 1:  # which torch would convert, or are no tensors
            raise TypeError("element types differ")
        return of_tensors(list(several))

    try:
        return _pytree.tree_map(of_equal, parts[0], *parts[1:])
    except (ValueError, RuntimeError, TypeError) as error:
        raise UsageError(
            f"Members gave rows that cannot be joined: {', '.join(map(outline, parts))}. Expected "
            "tensors of the same structure, types and shapes, or TensorDicts. Give the ensemble a "
            "collate_fn, or members that agree."
        ) from error
