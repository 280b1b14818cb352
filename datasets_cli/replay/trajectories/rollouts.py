"""Trajectories found in rows: by a change of their ids, or by the flags that end them."""

from __future__ import annotations

import torch
from tensordict import TensorDict, TensorDictBase

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import NestedKey, key_of
from datasets_cli.store.schema.columns import Key, show_key

Cursor = int | torch.Tensor | range | None


def find_start_stop_traj(
    *,
    trajectory: torch.Tensor | None = None,
    end: torch.Tensor | None = None,
    at_capacity: bool,
    cursor: Cursor = None,
    device: torch.device | str | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return where the trajectories of a storage begin and end, and how long they are.

        row    0 1 2 3 4 5 6 7 8 9        full, written last at row 4, so that 5 is the oldest
        end    . . x . . . . x . .
        from 8 to 2 (5 rows, around the end), from 3 to 4 (cut by the cursor), from 5 to 7

    Args:
        trajectory: ids ``[T, *B]``, time first; a trajectory ends where the id changes.
        end: bool ``[T, *B]``, True on the last row of each; exclusive with ``trajectory``.
        at_capacity: whether the storage is a full ring, in which row 0 follows the last row. A
            dataset never is.
        cursor: in a full ring, the row written last: what followed it is gone, so it is an end.
        device: where to search; the results are on the device of the input.

    Returns:
        first rows and last rows int64 ``[K, 1 + len(B)]``, time in column 0 and the place in the
        batch in the others, and lengths int64 ``[K]``. A last row belongs to its trajectory.

    Raises:
        UsageError: none or both of the two are given, or they have no rows.
    """
    signal = end if trajectory is None else trajectory
    if signal is None or (end is not None and trajectory is not None):
        raise UsageError("Give either trajectory, the ids, or end, the flags of last rows.")
    if signal.ndim == 0 or signal.shape[0] == 0:
        raise UsageError(f"Trajectories need rows [T, *B], not a tensor {list(signal.shape)}.")
    ends = _last_rows(signal.to(device or signal.device), end is None, at_capacity, cursor)
    time = len(ends)
    column, last = ends.reshape(time, -1).t().nonzero().unbind(1)
    # A trajectory begins behind the last row of the one before it in its column; the first of a
    # column behind the very last, around the end of the ring.
    is_first = column != column.roll(1)
    is_first[:1] = True
    before = torch.arange(len(last), device=last.device) - 1
    before[is_first] = torch.searchsorted(column, column[is_first], right=True) - 1
    first = (last[before] + 1) % time
    place = torch.stack((column, *torch.unravel_index(column, ends.shape[1:])), 1)[:, 1:]
    starts = torch.cat((first.unsqueeze(1), place), 1).to(signal.device)
    stops = torch.cat((last.unsqueeze(1), place), 1).to(signal.device)
    return starts, stops, ((last - first) % time + 1).to(signal.device)


def split_trajectories(
    rollout_tensordict: TensorDict,
    *,
    prefix: NestedKey | None = None,
    trajectory_key: NestedKey | None = None,
    done_key: NestedKey | None = None,
    as_nested: bool | torch.layout = False,
) -> TensorDict:
    """Return the trajectories of a rollout, one a row, padded with zeros.

        ids         0 0 0 1 1              obs   a b c     mask   x x x
        obs         a b c d e                    d e .            x x .

    An id that comes back goes on with its trajectory, as with rows of several environments that
    take turns, unless that had ended. Different entries of a batch never share a trajectory.

    Args:
        rollout_tensordict: ``[*B, T]``, time last.
        prefix: where ``traj_ids`` and ``mask`` stand: ``"collector"`` where the rollout has that,
            else nowhere but at the root.
        trajectory_key: where the ids ``[*B, T]`` are; instead of ``(prefix, "traj_ids")``.
        done_key: the flag below ``"next"`` that ends a trajectory; ``"done"`` by default. It counts
            where there are no ids, which are then written.
        as_nested: leave out the padding and the mask: give nested tensors, of this layout.

    Returns:
        ``[K, T_max]`` with the bool ``[K, T_max]`` ``mask`` of what is no padding, in the order in
        which trajectories first appear.

    Raises:
        UsageError: there are no rows, or neither ids nor flags of the rollout's shape; or it is no
            TensorDict.
    """
    if not isinstance(rollout_tensordict, TensorDictBase):
        raise UsageError(f"A rollout is a TensorDict, not {type(rollout_tensordict).__name__}.")
    shape = rollout_tensordict.batch_size
    if not shape or not shape.numel():
        raise UsageError(f"A rollout {list(shape)} has nothing to split.")
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
        raise UsageError(
            f"Trajectory ids must have the rollout's shape {list(rollout.batch_size)}; those at "
            f"{show_key(ids_key)} have {list(ids.shape)}."
        )
    order, lengths = _group(ids, done)
    rows = rollout.reshape(-1)[order]
    if as_nested:
        layout = torch.strided if as_nested is True else as_nested
        return _nest(rows, lengths, layout)
    mask = torch.arange(int(lengths.max()), device=lengths.device) < lengths.unsqueeze(1)
    padded = rows.apply(lambda leaf: _pad(leaf, mask), batch_size=mask.shape)
    return padded.set((*ids_key[:-1], "mask"), mask)


def _last_rows(
    signal: torch.Tensor, is_ids: bool, at_capacity: bool, cursor: Cursor
) -> torch.Tensor:
    """Return bool ``[T, *B]``: which rows are the last of their trajectory; each column has one."""
    end = signal.clone() if not is_ids else signal != signal.roll(-1, 0)
    if not at_capacity:
        end[-1] = True
        return end
    if cursor is not None:
        where = torch.as_tensor(list(cursor) if isinstance(cursor, range) else cursor)
        end[where.reshape(-1)[-1:] % len(end)] = True
    end[-1] |= ~end.any(0)  # one trajectory without an end fills the ring: cut it somewhere
    return end


def _flags(rollout: TensorDict, key: Key) -> torch.Tensor | None:
    """Return the flags bool ``[*B, T]`` at a key, or None where there are none of that shape."""
    flags = rollout.get(key, None)
    if flags is not None and flags.shape == (*rollout.batch_size, 1):
        flags = flags.squeeze(-1)
    return flags if flags is not None and flags.shape == rollout.batch_size else None


def _ids_from(done: torch.Tensor | None, rollout: TensorDict) -> torch.Tensor:
    """Return ids int64 ``[*B, T]``, new behind each flag and in each entry of the batch."""
    if done is None:
        raise UsageError(
            "There are neither trajectory ids nor flags of the rollout's shape "
            f"{list(rollout.batch_size)}, or one followed by 1. Pass trajectory_key or done_key."
        )
    begins = done.roll(1, -1)
    begins[..., :1] = True
    return (begins.reshape(-1).cumsum(0) - 1).view(begins.shape)


def _group(ids: torch.Tensor, done: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the rows int64 ``[N]`` trajectory after trajectory, and their lengths ``[K]``."""
    ids = ids.reshape(-1, ids.shape[-1])
    entry = torch.arange(len(ids), device=ids.device).unsqueeze(1).expand_as(ids).reshape(-1)
    _, ids = ids.reshape(-1).unique(return_inverse=True)
    owner = entry * (int(ids.max()) + 1) + ids
    order = owner.sort(stable=True).indices
    before, row = order[:-1], order[1:]
    begins = torch.ones_like(order, dtype=torch.bool)
    begins[1:] = owner[row] != owner[before]
    if done is not None:
        begins[1:] |= (row != before + 1) & done.reshape(-1)[before]
    first = begins.nonzero().view(-1)
    lengths = torch.cat((first, first.new_tensor([len(order)]))).diff()
    shown = order[first].argsort()  # trajectories in order of appearance
    place = shown.argsort()[begins.cumsum(0) - 1]
    return order[place.argsort(stable=True)], lengths[shown]


def _pad(leaf: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    padded = leaf.new_zeros((*mask.shape, *leaf.shape[1:]))
    padded[mask] = leaf
    return padded


def _nest(rows: TensorDict, lengths: torch.Tensor, layout: torch.layout) -> TensorDict:
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
