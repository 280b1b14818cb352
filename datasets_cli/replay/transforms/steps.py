"""A batch of steps in a row, time last: the flags that end trajectories, and sums up to them.

row       0 1 2 3 4 5 6        a trajectory begins where the batch does and after every end
done      . . x . . x .        the last row is an end too: nothing is known beyond it
"""

from __future__ import annotations

import torch
from tensordict import TensorDict

from datasets_cli.errors import UsageError
from datasets_cli.replay.transforms.key_map import required_entry
from datasets_cli.schema.columns import Key, show_key

DONE: Key = ("next", "done")


def flags(batch: TensorDict, key: Key, owner: str) -> torch.Tensor:
    """Return the flags bool ``[*B, T]`` that the batch ``[*B, T]`` has at a key."""
    found = required_entry(batch, key, owner)
    shape = batch.batch_size
    if not shape or found.shape not in (shape, (*shape, 1)):
        raise UsageError(
            f"{owner} needs steps in a row, [*B, T], and {show_key(key)} of that shape or followed "
            f"by 1; found a batch {list(shape)} and flags {list(found.shape)}."
        )
    return found.reshape(shape).bool()


def sum_to_go(values: torch.Tensor, ends: torch.Tensor, gamma: float) -> torch.Tensor:
    """Return for each step the discounted sum of its value and those after it, up to an end."""
    # Each pass doubles how far the sums reach, so that a million steps take twenty passes at most;
    # nothing, not even a NaN, gets past an end.
    # values: `[*B, T, ...]`; whole numbers are summed as int64.
    # ends: bool `[*B, T]`.
    time = ends.ndim - 1
    total = (values if values.is_floating_point() else values.long()).movedim(time, 0).clone()
    # Of the sums' own type from the start: 0.99 of float32 is another number than of float64.
    link = torch.full_like(ends, gamma, dtype=total.dtype).masked_fill_(ends, 0).movedim(time, 0)
    link = link.reshape(*link.shape, *[1] * (values.ndim - ends.ndim))
    reach = 1
    while reach < len(total) and bool(link.any()):
        linked, further = link[:-reach], total[reach:]
        total[:-reach] += torch.where(linked == 0, 0, linked * further)
        link = torch.cat((linked * link[reach:], torch.zeros_like(link[-reach:])))
        reach *= 2
    return total.movedim(0, time)


def sum_so_far(values: torch.Tensor, begins: torch.Tensor) -> torch.Tensor:
    """Return for each step the sum of its value and those before it, back to a beginning."""
    time = begins.ndim - 1
    return sum_to_go(values.flip(time), begins.flip(time), 1.0).flip(time)
