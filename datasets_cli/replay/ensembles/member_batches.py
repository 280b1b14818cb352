"""The parts that an ensemble's members give to a batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase, is_leaf_nontensor

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import key_of
from datasets_cli.replay.buffers.buffer import ReplayBuffer
from datasets_cli.replay.buffers.sample_info import expand_to_rows
from datasets_cli.store.schema.columns import Key, show_key


@dataclass(frozen=True)
class MemberBatch:
    """What one member gives to a batch.

    Args:
        member: which one.
        rows: a batch of its own, with ``index`` as a TensorDict of ``buffer_ids`` and ``index``.
        info: what its sampler says of the rows it drew, with an ``index`` of theirs.
        is_last: whether its epoch ended.
    """

    member: int
    rows: Any
    info: TensorDict
    is_last: bool


def draw_member_batch(buffers: Sequence[ReplayBuffer], member: int, size: int) -> MemberBatch:
    """Return a member's part of a batch, ``size`` rows.

    Where an epoch of rows ends within the part, the next one fills it up. Slices cannot be cut to
    what is missing, so theirs stays short.

    Raises:
        UsageError: its rows are not TensorDicts, or it cannot give that many.
    """
    part = _sampled(buffers[member], member, size)
    while len(part.info) < size and part.is_last and not _has_slices(buffers[member]):
        rest = _sampled(buffers[member], member, size - len(part.info))
        rows, info = torch.cat((part.rows, rest.rows)), torch.cat((part.info, rest.info))
        part = MemberBatch(member, rows, info, is_last=True)
    return part


def check_sizes(parts: Iterable[MemberBatch]) -> None:
    """Check that parts can be stacked.

    Raises:
        UsageError: they do not have the same size.
    """
    sizes = [part.rows.batch_size for part in parts]
    if len(set(sizes)) > 1:
        raise UsageError(
            f"Members gave parts of unequal sizes: {', '.join(str(list(size)) for size in sizes)}. "
            "Slices can be padded, drop_last leaves out an epoch's short rest, and sample_flat() "
            "joins what there is."
        )


def joined(members: Sequence[int], parts: Sequence[TensorDictBase]) -> TensorDictBase:
    """Return what members gave as one, ``[B]``.

    Raises:
        UsageError: they do not have the same keys, or not the same shapes after the rows.
    """
    forms = [_form(part) for part in parts]
    for member, form in zip(members, forms, strict=True):
        if odd := forms[0].items() ^ form.items():
            names = ", ".join(sorted({show_key(key) for key, _ in odd}))
            raise UsageError(
                f"Buffers {members[0]} and {member} differ in {names}: give these the same shape, "
                "or leave them out, with a transform of each; or sample() parts that may differ."
            )
    return torch.cat(tuple(parts))


def _form(part: TensorDictBase) -> dict[Key, torch.Size]:
    """Return the shape of each entry after the row dimension."""
    leaves = part.items(True, True, is_leaf=is_leaf_nontensor)  # text too
    return {key_of(key): leaf.shape[1:] for key, leaf in leaves}


def _sampled(buffer: ReplayBuffer, member: int, size: int) -> MemberBatch:
    rows, info = buffer.sample(size, return_info=True)
    if not isinstance(rows, TensorDictBase):
        raise UsageError(f"Buffer {member} has rows that are not TensorDicts.")
    drawn = info["index"]
    # A transform may have made other rows of those that were drawn.
    numbers = rows.get("index", expand_to_rows(drawn, buffer.reader.storage.row_batch_size))
    if numbers.shape[: rows.ndim] != rows.batch_size:
        raise UsageError(
            f"Buffer {member} drew {len(drawn)} rows, and its transform made a batch "
            f"{list(rows.batch_size)} of them. Make it a TensorDictReplayBuffer: its batches carry "
            "the index through transforms."
        )
    rows.set("index", _owned(member, numbers, rows.batch_size))
    marks = TensorDict({**info, "index": _owned(member, drawn, drawn.shape[:1])}, drawn.shape[:1])
    return MemberBatch(member, rows, marks.clone(), buffer.ran_out)


def _owned(member: int, numbers: torch.Tensor, shape: torch.Size) -> TensorDict:
    ids = torch.full(shape, member, device=numbers.device)
    return TensorDict({"buffer_ids": ids, "index": numbers}, shape)


def _has_slices(buffer: ReplayBuffer) -> bool:
    return buffer.reader.sampler.has_slices
