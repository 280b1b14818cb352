"""Returns to go: of each row the discounted sum of its reward and those after it.

gamma = g    row       0                1        2    3         4     trajectories of 3 and 2 rows
             returns   r0 + g r1 + gg r2  r1 + g r2  r2   r3 + g r4  r4

Rows come in blocks, the last ones first, so that a block needs one number of those after it: the
return to go of the next row. Memory does not grow with the rows, and nothing is summed over more
than one trajectory, or subtracted, so that sums are exact to the last digits of float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.transforms.steps import sum_to_go
from datasets_cli.store.schema.columns import REWARD, show_key
from datasets_cli.store.schema.trajectories import ends_of

WIDE = frozenset({torch.float64, torch.int32, torch.int64, torch.uint32, torch.uint64})
"""Element types that have numbers which float32 does not have."""

RewardRows = Callable[[int, int], torch.Tensor]
"""Returns the rewards ``[n, *shape]`` of the rows from a first one up to another."""


def returns_in_blocks(
    rewards: RewardRows, offsets: np.ndarray, gamma: float, block_rows: int
) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the first row of each block, and its returns to go float64 ``[n, *shape]``."""
    # offsets: of trajectories, int64 `[K + 1]`.
    num_rows = int(offsets[-1])
    following = torch.zeros(())  # the return to go of the row after the block
    for start in reversed(range(0, num_rows, block_rows)):
        stop = min(start + block_rows, num_rows)
        values = rewards(start, stop).to("cpu", torch.float64, copy=True)
        ends = torch.from_numpy(ends_of(offsets, start, stop))
        if gamma and not ends[-1]:
            values[-1] += gamma * following
        total = sum_to_go(values, ends, gamma)
        following = total[0]
        yield start, total.numpy()


def returns_dtype(rewards: torch.Tensor) -> np.dtype:
    """Return the type of the returns to go of rewards: float32, or float64 where these need it."""
    try:
        is_real = not rewards.is_complex() and rewards.double() is not None
    except (NotImplementedError, RuntimeError):  # torch does not compute with this type
        is_real = False
    if not is_real:
        raise UsageError(
            f"{show_key(REWARD)} is {rewards.dtype}; returns to go are sums of real numbers. "
            "Convert it with preprocess() first."
        )
    return np.dtype(np.float64 if rewards.dtype in WIDE else np.float32)
