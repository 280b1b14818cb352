"""Splits a rollout into its trajectories, by their ids or by end flags."""

from __future__ import annotations

import itertools

import torch
from tensordict import NonTensorStack, TensorDict, TensorDictBase, is_leaf_nontensor, is_non_tensor

from datasets_cli.errors import UnknownKey, WrongRows, wrong_value
from datasets_cli.replay.arguments import NestedKey, key_of
from datasets_cli.replay.trajectories.bounds import begins_of, bounds_of, ends_of, numbers_of
from datasets_cli.schema.bits import MOVABLE, bits_of, take
from datasets_cli.schema.columns import Key, show_key
from datasets_cli.schema.shapes import Lengths, RowNumbers, StepFlags


def split_trajectories(
    rollout_tensordict: TensorDict,
    *,
    prefix: NestedKey | None = None,
    trajectory_key: NestedKey | None = None,
    done_key: NestedKey | None = None,
    as_nested: bool | torch.layout = False,
) -> TensorDict:
    """Return the trajectories of a rollout, one per row, padded with zeros; text with ``""``.

        ids         0 0 0 1 1              obs   a b c     mask   x x x
        obs         a b c d e                    d e .            x x .

    An id that reappears continues its trajectory, as with rows of several environments that take
    turns, unless the trajectory had ended. Batch entries never share a trajectory.

    Args:
        rollout_tensordict: ``[*B, T]``, time last.
        prefix: the key above ``traj_ids`` and ``mask``: by default ``"collector"`` if the rollout
            has that entry, else the root.
        trajectory_key: the key of the ids ``[*B, T]``; instead of ``(prefix, "traj_ids")``.
        done_key: the flag below ``"next"`` that ends a trajectory; ``"done"`` by default. Without
            ids in the rollout, ids are computed from it and written.
        as_nested: return nested tensors, of this layout, without padding and mask.

    Returns:
        ``[K, T_max]`` with ``mask``, bool ``[K, T_max]``, False for padding, in the order in which
        trajectories first appear.

    Raises:
        WrongRows: the rollout is empty, or its ids have another shape.
        UnknownKey: the rollout has neither ids nor flags of its shape.
        UsageError: it is not a TensorDict.
    """
    _check_rollout(rollout_tensordict)
    if prefix is None and "collector" in rollout_tensordict:
        prefix = "collector"
    below = () if prefix is None else key_of(prefix)
    ids_key = (*below, "traj_ids") if trajectory_key is None else key_of(trajectory_key)
    rollout = rollout_tensordict.copy()
    done = _flags(rollout, ("next", *key_of(done_key or "done")))
    ids = rollout.get(ids_key, None)
    if ids is None:
        ids = _ids_from(done, rollout)
        rollout.set(ids_key, ids)
    if ids.shape != rollout.batch_size:
        raise WrongRows(
            f"Trajectory ids must have the rollout's shape {list(rollout.batch_size)}; "
            f"{show_key(ids_key)} has {list(ids.shape)}.",
            key=ids_key,
            expected=list(rollout.batch_size),
            found=list(ids.shape),
        )
    order, lengths = _group(ids, done)
    flat = rollout.reshape(-1).copy()
    texts = _take_texts(flat, order)
    rows = _take(flat, order)
    if as_nested:
        layout = torch.strided if as_nested is True else as_nested
        return _with_texts(_nest(rows, lengths, layout), texts, lengths, pad=False)
    mask = torch.arange(int(lengths.max()), device=lengths.device) < lengths.unsqueeze(1)
    padded = rows.apply(lambda leaf: _pad(leaf, mask), batch_size=mask.shape)
    padded.names = [None, rollout_tensordict.names[-1]]
    return _with_texts(padded.set((*ids_key[:-1], "mask"), mask), texts, lengths, pad=True)


def _check_rollout(rollout: object) -> None:
    if not isinstance(rollout, TensorDictBase):
        raise wrong_value("rollout_tensordict", "a TensorDict", type(rollout))
    shape = rollout.batch_size
    if not shape or not shape.numel():
        raise wrong_value("rollout_tensordict", "[*B, T]", list(shape), kind=WrongRows)


def _flags(rollout: TensorDict, key: Key) -> StepFlags | None:
    """Return the flags at a key, or None if they are missing or of another shape."""
    flags = rollout.get(key, None)
    if flags is not None and flags.shape == (*rollout.batch_size, 1):
        flags = flags.squeeze(-1)
    return flags if flags is not None and flags.shape == rollout.batch_size else None


def _ids_from(done: StepFlags | None, rollout: TensorDict) -> torch.Tensor:
    """Return ids int64 ``[*B, T]``, increased after each flag and for each entry of the batch."""
    if done is None:
        expected = list(rollout.batch_size)
        raise UnknownKey(
            f"The rollout has neither trajectory ids nor done flags of the shape {expected} or "
            f"{[*expected, 1]}.",
            argument="trajectory_key",
            expected=expected,
            advice="Pass trajectory_key or done_key.",
        )
    return numbers_of(begins_of(done).reshape(-1)).view(done.shape)


def _group(ids: torch.Tensor, done: StepFlags | None) -> tuple[RowNumbers, Lengths]:
    """Return the rows of trajectories, trajectory by trajectory, and their lengths."""
    ids = ids.reshape(-1, ids.shape[-1])
    entry = torch.arange(len(ids), device=ids.device).unsqueeze(1).expand_as(ids).reshape(-1)
    _, ids = ids.reshape(-1).unique(return_inverse=True)
    # A number for each pair of a batch entry and an id. Sorted by it, the rows of a pair are
    # together, in the order of time.
    owner = entry * (int(ids.max()) + 1) + ids
    order = owner.sort(stable=True).indices
    before, row = order[:-1], order[1:]
    begins = torch.ones_like(order, dtype=torch.bool)
    begins[1:] = owner[row] != owner[before]
    if done is not None:  # an id that returns after its end flag is another trajectory
        begins[1:] |= (row != before + 1) & done.reshape(-1)[before]
    bounds = bounds_of(ends_of(begins).unsqueeze(0))
    # Trajectories in the order of their first rows. Rows are sorted by the rank of their trajectory
    # in that order; the sort is stable and keeps the order of time.
    shown = order[bounds.first].argsort()
    rank = shown.argsort()[numbers_of(begins)]
    return order[rank.argsort(stable=True)], bounds.lengths[shown]


def _take(rows: TensorDict, order: RowNumbers) -> TensorDict:
    """Return rows ``[N]`` in another order, also of dtypes that torch cannot index."""
    dtypes = {leaf.dtype for leaf in rows.values(True, True) if isinstance(leaf, torch.Tensor)}
    if dtypes <= MOVABLE:
        return rows[order]
    return rows.apply(lambda leaf: take(leaf, order), batch_size=order.shape)


def _take_texts(rows: TensorDict, order: RowNumbers) -> dict[Key, list[object]]:
    """Remove entries that are not tensors, and return them in another order."""
    entries = rows.items(True, True, is_leaf=is_leaf_nontensor)
    texts = {key_of(key): entry.tolist() for key, entry in entries if is_non_tensor(entry)}
    for key in texts:
        rows.del_(key)
    return {key: [values[row] for row in order.tolist()] for key, values in texts.items()}


def _with_texts(
    split: TensorDict, texts: dict[Key, list[object]], lengths: Lengths, *, pad: bool
) -> TensorDict:
    """Add the entries of ``_take_texts`` to trajectories, padded or of their lengths."""
    sizes = lengths.tolist()
    ends = [*itertools.accumulate(sizes)]
    for key, values in texts.items():
        empty = _empty(values[0])
        runs = [
            values[end - size : end] + [empty] * (pad * (max(sizes) - size))
            for size, end in zip(sizes, ends, strict=True)
        ]
        split.set(key, NonTensorStack.from_list(runs))
    return split


def _empty(value: object) -> object:
    """Return the padding for a value: ``""``, nested like a list, or None."""
    if isinstance(value, list):
        return [_empty(item) for item in value]
    return "" if isinstance(value, str) else None


def _pad(leaf: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    bits = bits_of(leaf)
    padded = bits.new_zeros((*mask.shape, *leaf.shape[1:]))
    padded[mask] = bits
    return padded.view(leaf.dtype)


def _nest(rows: TensorDict, lengths: Lengths, layout: torch.layout) -> TensorDict:
    """Return rows ``[N]`` as nested tensors of K trajectories of different lengths."""
    if layout == torch.jagged:
        offsets = torch.cat((lengths.new_zeros(1), lengths.cumsum(0)))
        return rows.apply(
            lambda leaf: torch.nested.nested_tensor_from_jagged(leaf, offsets),
            batch_size=[len(lengths)],  # tensordict knows no ragged size of this layout
        )
    sizes = lengths.tolist()
    # Unchecked: where all lengths are equal, tensordict sees them in place of the ragged -1.
    nested: TensorDict = rows._fast_apply(
        lambda leaf: torch.nested.nested_tensor(list(leaf.split(sizes)), layout=layout),
        batch_size=[len(sizes), -1],
    )
    return nested
