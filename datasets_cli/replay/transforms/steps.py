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
