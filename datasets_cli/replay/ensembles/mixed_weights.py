"""Importance weights of a batch whose parts were drawn by several samplers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tensordict import TensorDictBase

from datasets_cli.errors import UsageError
from datasets_cli.replay.buffers.buffer import ReplayBuffer
from datasets_cli.replay.ensembles.member_batches import MemberBatch
from datasets_cli.replay.samplers.priority_sampler import Prioritized
from datasets_cli.replay.samplers.protocol import Sampler

WEIGHT = "priority_weight"


def balance_weights(
    buffers: Sequence[ReplayBuffer], parts: Sequence[MemberBatch], drawn: Sequence[int]
) -> None:
    """Make the importance weights of parts comparable, in place.

    A row that its part's sampler draws with probability p, of n, has the weight ``(n * p)^-beta``
    divided by the greatest one of all rows of all parts. A sampler by itself divides by the
    greatest of its own part, which would weigh whole parts against each other by how uneven their
    priorities are. Rows that are drawn uniformly have ``n * p = 1``. How much of the batch a part
    is does not enter: that is chosen, and no bias to correct.

    Args:
        buffers: all that may be drawn from.
        parts: of one batch.
        drawn: the buffers that rows are drawn from now, those without a part in it among them.

    Raises:
        UsageError: a sampler of the user's own gives weights, and not what they were divided by.
    """
    known = [part.marks[WEIGHT] for part in parts if WEIGHT in part.marks]
    if not known:
        return
    numbers = {*drawn, *(part.member for part in parts)}
    scales = {number: _greatest_weight(buffers[number].reader.sampler) for number in numbers}
    in_rows = any(_carries(part.rows) for part in parts)
    for part in parts:
        factor = scales[part.member] / max(scales.values())
        if WEIGHT not in part.marks:  # drawn uniformly
            part.marks[WEIGHT] = known[0].new_ones(len(part))
        part.marks[WEIGHT] = part.marks[WEIGHT] * factor
        if in_rows:
            _scale(part.rows, factor, known[0])


def _carries(rows: object) -> bool:
    return isinstance(rows, TensorDictBase) and WEIGHT in rows.keys()  # noqa: SIM118


def _scale(rows: TensorDictBase, factor: float, like: torch.Tensor) -> None:
    """Multiply the weights in rows; those without any were drawn uniformly, and have 1."""
    weights = rows.get(WEIGHT, None)
    if weights is None:
        weights = like.new_ones(rows.batch_size)
    rows.set(WEIGHT, weights * factor)


def _greatest_weight(sampler: Sampler) -> float:
    if isinstance(sampler, Prioritized):
        return sampler.greatest_weight
    if sampler.has_priorities:
        raise UsageError(
            f"{type(sampler).__name__} draws rows by priority and cannot say what it divides their "
            "weights by. Take a PrioritizedSampler or a PrioritizedSliceSampler, or derive from "
            "one."
        )
    return 1.0
