"""Importance weights of a batch whose parts were drawn by several samplers."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tensordict import TensorDictBase

from datasets_cli.errors import UsageError
from datasets_cli.replay.buffers.buffer import ReplayBuffer
from datasets_cli.replay.draws.priority_sampler import Prioritized
from datasets_cli.replay.draws.protocol import Sampler
from datasets_cli.replay.ensembles.member_batches import MemberBatch

WEIGHT = "priority_weight"


def balance_weights(
    buffers: Sequence[ReplayBuffer], parts: Sequence[MemberBatch], drawn: Sequence[int]
) -> None:
    """Make the importance weights of parts comparable, in place."""
    # A row that its part's sampler draws with probability p, of n, has the weight `(n * p)^-beta`
    # divided by the greatest one of all rows of all parts. A sampler by itself divides by the
    # greatest of its own part, which would weigh whole parts against each other by how uneven their
    # priorities are. Rows that are drawn uniformly have `n * p = 1`. How much of the batch a part
    # is does not enter: that is chosen, and no bias to correct.
    samplers = [buffer.reader.sampler for buffer in buffers]
    for part in parts:
        if WEIGHT in part.marks and not isinstance(samplers[part.member], Prioritized):
            raise _unknown(samplers[part.member])
    dtypes = [sampler.dtype for sampler in samplers if isinstance(sampler, Prioritized)]
    if not dtypes:
        return
    numbers = {*drawn, *(part.member for part in parts)}
    scales = {number: _greatest_weight(buffers[number]) for number in numbers}
    in_rows = any(buffer.reader.sample_info.marks for buffer in buffers)
    for part in parts:
        factor = scales[part.member] / max(scales.values())
        size = torch.Size([len(part)])
        part.marks[WEIGHT] = _scaled(part.marks.get(WEIGHT), factor, size, part, dtypes[0])
        if in_rows and isinstance(part.rows, TensorDictBase):
            size = part.rows.batch_size
            weights = _scaled(part.rows.get(WEIGHT, None), factor, size, part, dtypes[0])
            part.rows.set(WEIGHT, weights)


def _scaled(
    weights: torch.Tensor | None,
    factor: float,
    size: torch.Size,
    part: MemberBatch,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Return weights times a factor; where there are none, rows were drawn uniformly: 1 each."""
    if weights is None:  # also in a batch without a part of the buffer that draws by priority
        return torch.full(size, factor, dtype=dtype, device=part.marks["index"].device)
    return weights * factor


def _greatest_weight(buffer: ReplayBuffer) -> float:
    sampler = buffer.reader.sampler
    if isinstance(sampler, Prioritized):
        with buffer.reader.lock:  # another thread may write
            return sampler.greatest_weight
    if sampler.has_priorities:
        raise _unknown(sampler)
    return 1.0


def _unknown(sampler: Sampler) -> UsageError:
    return UsageError(
        f"{type(sampler).__name__} draws rows by priority and cannot say what it divides their "
        "weights by. Take a PrioritizedSampler or a PrioritizedSliceSampler, or derive from one."
    )
