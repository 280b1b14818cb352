"""Where the trajectories of a storage begin and end, as TorchRL's function of that name says it."""

from __future__ import annotations

import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.trajectories.bounds import ends_of_numbers, ring_bounds_of

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
    # Each place in the batch is a ring of its own; without at_capacity the last row is an end, so
    # that nothing continues at row 0.
    rings = ends.reshape(len(ends), -1).t()
    ring, first, last, lengths = ring_bounds_of(rings)
    place = torch.stack((ring, *torch.unravel_index(ring, ends.shape[1:])), 1)[:, 1:]
    starts = torch.cat((first.unsqueeze(1), place), 1).to(signal.device)
    stops = torch.cat((last.unsqueeze(1), place), 1).to(signal.device)
    return starts, stops, lengths.to(signal.device)


def _last_rows(
    signal: torch.Tensor, is_ids: bool, at_capacity: bool, cursor: Cursor
) -> torch.Tensor:
    """Return bool ``[T, *B]``: which rows are the last of their trajectory; each column has one."""
    end = ends_of_numbers(signal, time=0) if is_ids else signal.clone()
    if not at_capacity:
        end[-1] = True
        return end
    if cursor is not None:  # of several rows that were written at once, the last one counts
        where = torch.as_tensor(list(cursor) if isinstance(cursor, range) else cursor)
        end[where.reshape(-1)[-1:] % len(end)] = True
    end[-1] |= ~end.any(0)  # one trajectory without an end fills the ring: cut it somewhere
    return end
