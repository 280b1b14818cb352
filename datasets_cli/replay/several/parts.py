"""The part of a batch that one member gives, drawn by its own sampler."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from tensordict import TensorDict, TensorDictBase, is_tensor_collection
from torch.utils import _pytree

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import NestedKey, Rows
from datasets_cli.replay.buffers.buffer import ReplayBuffer
from datasets_cli.replay.rows.row_numbers import flat_rows
from datasets_cli.replay.rows.sample_info import expand_to_rows
from datasets_cli.replay.several.joining import concatenated
from datasets_cli.replay.storages.batches import make_batch
from datasets_cli.replay.storages.form import outline
from datasets_cli.replay.storages.protocol import Storage


@dataclass(frozen=True)
class MemberBatch:
    """What one member gives to a batch."""

    # marks: what its sampler says of the n rows it drew, `[n, ...]`, with their `index`.

    member: int
    rows: Rows
    marks: dict[NestedKey, torch.Tensor]
    is_last: bool

    def __len__(self) -> int:
        return len(self.marks["index"])

    def info(self) -> TensorDict:
        """Return the marks as a batch of their own, with ``index`` as in the rows."""
        size = torch.Size([len(self)])
        numbers = _owned(self.member, self.marks["index"], size)
        return TensorDict({**self.marks, "index": numbers}, size).clone()

    def flatten_index(self, storage: Storage) -> None:
        """Give rows of a storage of several dimensions one number each, as others have."""
        if storage.ndim == 1:
            return
        self.marks["index"] = flat_rows(storage, self.marks["index"])
        if isinstance(self.rows, TensorDictBase):
            self.rows["index", "index"] = flat_rows(storage, self.rows["index", "index"])


def draw_member_batch(buffer: ReplayBuffer, member: int, size: int) -> MemberBatch:
    """Return a member's part of a batch, ``size`` rows."""
    # Where an epoch of rows ends within the part, the next one fills it up. Slices cannot be cut to
    # what is missing, so theirs stays short.
    part = _sampled(buffer, member, size)
    while len(part) < size and part.is_last and not buffer.reader.sampler.has_slices:
        rest = _sampled(buffer, member, size - len(part))
        rows = concatenated([part.rows, rest.rows])
        marks = {key: torch.cat((mark, rest.marks[key])) for key, mark in part.marks.items()}
        part = MemberBatch(member, rows, marks, is_last=True)
    return part


def check_sizes(parts: Iterable[MemberBatch]) -> None:
    """Check that parts can be stacked."""
    sizes = [_size(part.rows) for part in parts]
    if len(set(sizes)) > 1:
        raise UsageError(
            f"Members gave parts of unequal sizes: {', '.join(str(list(size)) for size in sizes)}. "
            "Slices can be padded, drop_last leaves out an epoch's short rest, and sample_flat() "
            "joins what there is."
        )


def _size(rows: Rows) -> tuple[int, ...]:
    """Return the batch size of rows, or the number of those that are tensors."""
    if is_tensor_collection(rows):
        return tuple(rows.batch_size)
    return tuple(_pytree.tree_leaves(rows)[0].shape[:1])


def _sampled(buffer: ReplayBuffer, member: int, size: int) -> MemberBatch:
    rows, marks = buffer.with_format("torch").sample(size, return_info=True)
    part = MemberBatch(member, rows, marks, buffer.ran_out)
    if not isinstance(rows, TensorDictBase):  # these have no place for an index
        leaves = [rows] if is_tensor_collection(rows) else _pytree.tree_leaves(rows)
        if not all(isinstance(leaf, torch.Tensor) or leaf is rows for leaf in leaves):
            raise UsageError(
                f"Buffer {member} has rows that are not TensorDicts or tensors but {outline(rows)}."
                " Give that buffer a collate_fn that makes such of them."
            )
        return part
    # A transform may have made other rows of those that were drawn.
    numbers = rows.get("index", None)
    if numbers is None:
        numbers = expand_to_rows(marks["index"], buffer.reader.storage.row_batch_size)
    if numbers.shape[: rows.ndim] != rows.batch_size:
        raise UsageError(
            f"Buffer {member} drew {len(part)} rows, and its transform made a batch "
            f"{list(rows.batch_size)} of them. Make it a TensorDictReplayBuffer: its batches carry "
            "the index through transforms."
        )
    rows.set("index", _owned(member, numbers, rows.batch_size))
    return part


def _owned(member: int, numbers: torch.Tensor, shape: torch.Size) -> TensorDict:
    """Return row numbers with the member that they are of, as ``index`` has them."""
    ids = torch.full(shape, member, device=numbers.device)
    return make_batch({"buffer_ids": ids, "index": numbers}, shape)
