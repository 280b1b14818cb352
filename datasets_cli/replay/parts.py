"""The parts that an ensemble's members give to a batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from datasets_cli.errors import UsageError
from datasets_cli.replay.buffers import ReplayBuffer
from datasets_cli.replay.nested_key import key_of
from datasets_cli.store.columns import show_key


@dataclass(frozen=True)
class Part:
    """What one member gives to a batch.

    Args:
        member: which one.
        rows: a batch of its own, with ``index`` as a TensorDict of ``buffer_ids`` and ``index``.
        info: what its sampler says of them, with the same ``index``.
        is_last: whether its epoch ended.
    """

    member: int
    rows: Any
    info: TensorDict
    is_last: bool


def draw_part(buffers: Sequence[ReplayBuffer], member: int, size: int) -> Part:
    """Return a member's part of so many rows.

    Where an epoch of rows ends within the part, the next one fills it up. Slices cannot be cut to
    what is missing, so theirs stays short.

    Raises:
        UsageError: its rows are no TensorDicts, or it cannot give so many.
    """
    part = _sampled(buffers[member], member, size)
    while len(part.rows) < size and part.is_last and not _has_slices(buffers[member]):
        rest = _sampled(buffers[member], member, size - len(part.rows))
        rows, info = torch.cat((part.rows, rest.rows)), torch.cat((part.info, rest.info))
        part = Part(member, rows, info, is_last=True)
    return part


def check_sizes(parts: Iterable[Part]) -> None:
    """Check that parts can be stacked.

    Raises:
        UsageError: they have not the same size.
    """
    sizes = [part.rows.batch_size for part in parts]
    if len(set(sizes)) > 1:
        raise UsageError(
            f"Members gave parts of unequal sizes: {', '.join(str(list(size)) for size in sizes)}. "
            "Slices can be padded, drop_last leaves out an epoch's short rest, and sample_flat() "
            "joins what there is."
        )


def check_keys(parts: Sequence[Part]) -> None:
    """Check that parts can be joined.

    Raises:
        UsageError: they have not the same keys.
    """
    first = set(parts[0].rows.keys(True, True))
    for part in parts:
        if odd := first ^ set(part.rows.keys(True, True)):
            names = ", ".join(sorted(show_key(key_of(key)) for key in odd))
            raise UsageError(
                f"Buffers {parts[0].member} and {part.member} differ in {names}: select the same "
                "keys with a transform of each, or sample() parts that may differ."
            )


def _sampled(buffer: ReplayBuffer, member: int, size: int) -> Part:
    rows, info = buffer.sample(size, return_info=True)
    if not isinstance(rows, TensorDictBase):
        raise UsageError(f"Buffer {member} has rows that are no TensorDicts.")
    numbers = rows.get("index", info["index"])  # a transform may have given it another shape
    ids = torch.full(rows.batch_size, member, device=numbers.device)
    index = TensorDict({"buffer_ids": ids, "index": numbers}, rows.batch_size)
    marks = TensorDict({**info, "index": index}, info["index"].shape[:1]).clone()
    return Part(member, rows.set("index", index), marks, buffer.ran_out)


def _has_slices(buffer: ReplayBuffer) -> bool:
    return hasattr(buffer.sampler, "truncated_key")
