"""Priorities of rows of several buffers: they go back to their own, and their weights compare."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from tensordict import TensorDict, TensorDictBase

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import Numbers, as_tensor
from datasets_cli.replay.buffers.buffer import ReplayBuffer
from datasets_cli.replay.draws.prioritized import PrioritizedSampler
from datasets_cli.replay.draws.protocol import Sampler
from datasets_cli.replay.nested_keys import key_of
from datasets_cli.replay.rows.row_numbers import unravel_rows
from datasets_cli.replay.several.parts import MemberBatch
from datasets_cli.schema.tree import Tree, entry, grow_tree

WEIGHT = "priority_weight"


def update_batch_priorities(buffers: Sequence[ReplayBuffer], batch: TensorDictBase | Tree) -> None:
    """Give the rows of a batch, of either form, the priorities that their buffers look for."""
    flat = _numbers_of(batch, buffers).reshape(-1)
    owner, rows = flat["index", "buffer_ids"], flat["index", "index"]
    for buffer, own, numbers in _rows_by_buffer(buffers, owner, rows):
        if (update := getattr(buffer, "update_tensordict_priority", None)) is not None:
            update(flat[own].exclude("index").set("index", numbers))


def update_row_priorities(
    buffers: Sequence[ReplayBuffer],
    index: TensorDictBase | Mapping[str, Numbers],
    priority: Numbers,
) -> None:
    """Give rows of several buffers priorities; see ``MixedBuffers.update_priority``."""
    has_names = isinstance(index, TensorDictBase | Mapping)
    owner, rows = (index.get(name, None) if has_names else None for name in ("buffer_ids", "index"))
    if owner is None or rows is None:
        raise UsageError(
            "Rows of several buffers are named by buffer_ids and index, as batch['index'] has "
            f"them; found {type(index).__name__}."
        )
    values = as_tensor(priority)
    for buffer, own, numbers in _rows_by_buffer(buffers, as_tensor(owner), as_tensor(rows)):
        buffer.update_priority(numbers, values[own] if values.ndim else values)


def _rows_by_buffer(
    buffers: Sequence[ReplayBuffer], owner: torch.Tensor, rows: torch.Tensor
) -> Iterator[tuple[ReplayBuffer, torch.Tensor, torch.Tensor]]:
    """Yield each buffer that rows are of, which ones bool ``[B]``, and their numbers there."""
    for number, buffer in enumerate(buffers):
        own = owner == number
        if own.any():
            mine, storage = rows[own], buffer.reader.storage
            # One number a row, also where a storage has several dimensions.
            yield buffer, own, unravel_rows(storage, mine) if mine.ndim == 1 else mine


def _numbers_of(batch: TensorDictBase | Tree, buffers: Sequence[ReplayBuffer]) -> TensorDict:
    """Return what priorities need of a batch, in its shape."""
    own = ("index", "buffer_ids"), ("index", "index")
    keys = {key_of(getattr(buffer, "priority_key", own[0])) for buffer in buffers}
    entries = {key: entry(batch, key) for key in {*own, *keys}}
    numbers = {key: as_tensor(leaf) for key, leaf in entries.items() if leaf is not None}
    if not numbers.keys() >= {*own}:
        raise UsageError("The batch has no 'index', which its rows' priorities need.")
    return TensorDict(grow_tree(numbers), numbers[own[0]].shape)


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
        if WEIGHT in part.marks and not isinstance(samplers[part.member], PrioritizedSampler):
            raise _unknown(samplers[part.member])
    dtypes = [sampler.draw.dtype for sampler in samplers if isinstance(sampler, PrioritizedSampler)]
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
    if isinstance(sampler, PrioritizedSampler):
        with buffer.reader.lock:  # another thread may write
            return sampler.draw.greatest_weight
    if sampler.has_priorities:
        raise _unknown(sampler)
    return 1.0


def _unknown(sampler: Sampler) -> UsageError:
    return UsageError(
        f"{type(sampler).__name__} draws rows by priority and cannot say what it divides their "
        "weights by. Take a PrioritizedSampler or a PrioritizedSliceSampler, or derive from one."
    )
