"""The parts of a batch: what each member gives by its own sampler, and all put together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from tensordict import LazyStackedTensorDict, TensorDict, TensorDictBase, is_tensor_collection
from torch.utils import _pytree

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import Rows
from datasets_cli.replay.buffers.buffer import ReplayBuffer
from datasets_cli.replay.nested_keys import NestedKey
from datasets_cli.replay.rows.row_numbers import flat_rows
from datasets_cli.replay.rows.sample_info import expand_to_rows
from datasets_cli.replay.several.agreement import (
    batch_leaves,
    difference_table,
    differing,
    plain_leaves,
)
from datasets_cli.replay.storages.batches import make_batch
from datasets_cli.replay.storages.form import outline
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.schema.bits import join_tensors
from datasets_cli.schema.columns import Key, show_key
from datasets_cli.schema.tree import grow_tree

JoinFunction = Callable[[list[Rows]], Rows]


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
        """Return the marks as a separate batch, with ``index`` as in the rows."""
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


def stacked(parts: list[Rows]) -> Rows:
    """Return what members gave side by side, ``[members, B]``: a lazy stack of TensorDicts."""
    return _each(LazyStackedTensorDict.lazy_stack, parts, torch.stack)


def joined(
    names: Sequence[str],
    batches: Sequence[Rows],
    instead: Callable[[list[Key]], str] = lambda _: "sample() parts that may differ",
) -> Rows:
    """Return what members gave as one, ``[B]``."""
    # instead: what may be done in place of a transform, by the keys that are alike.
    for name, batch in zip(names[1:], batches[1:], strict=True):
        if odd := differing(batches[0], batch):
            same = [key for key in batch_leaves(batch) if key not in odd and key[0] != "index"]
            raise UsageError(
                f"The rows of {names[0]} and {name} differ in {', '.join(map(show_key, odd))}:\n"
                f"{difference_table(odd, [names[0], name], [batches[0], batch])}\n"
                "Give one of them a transform that changes types, shapes or names, such as "
                f"DoubleToFloat or RenameTransform; or {instead(same)}."
            )
    return concatenated(batches)


def concatenated(parts: Sequence[Rows]) -> Rows:
    """Return batches one after the other; those of TensorDicts have the same entries."""
    if len(parts) == 1:
        return parts[0]
    plain = [leaves for leaves in map(plain_leaves, parts) if leaves is not None]
    if len(plain) < len(parts):
        return _each(torch.cat, list(parts), torch.cat)
    # Leaf by leaf takes a third of the time that tensordict does.
    joint = {key: join_tensors([leaves[key] for leaves in plain]) for key in plain[0]}
    devices = {part.device for part in parts}
    size = torch.Size([sum(map(len, parts)), *parts[0].batch_size[1:]])
    return make_batch(grow_tree(joint), size, devices.pop() if len(devices) == 1 else None)


def _each(function: JoinFunction, parts: list[Rows], of_tensors: JoinFunction) -> Rows:
    """Return a function of TensorDicts, or of the tensors at each place of equal structures."""
    if all(is_tensor_collection(part) for part in parts):
        if len({part.device for part in parts}) > 1:
            parts = [part.copy().clear_device_() for part in parts]
        return function(parts)

    def of_equal(*several: torch.Tensor) -> Rows:
        types = {getattr(tensor, "dtype", None) for tensor in several}
        if len(types) > 1:  # which torch would convert, or are not tensors
            raise TypeError("element types differ")
        return of_tensors(list(several))

    try:
        return _pytree.tree_map(of_equal, parts[0], *parts[1:])
    except (ValueError, RuntimeError, TypeError) as error:
        raise UsageError(
            f"Members gave rows that cannot be joined: {', '.join(map(outline, parts))}. Expected "
            "tensors of the same structure, types and shapes, or TensorDicts. Give the ensemble a "
            "collate_fn, or members that agree."
        ) from error
