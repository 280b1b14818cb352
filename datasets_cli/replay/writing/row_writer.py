"""Writing rows: they are transformed, placed by the writer, and the sampler is notified."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from tensordict import TensorDictBase

from datasets_cli.errors import (
    EmptyBuffer,
    NotWritable,
    OutOfRange,
    UnknownKey,
    Unsupported,
    WrongRows,
)
from datasets_cli.replay.arguments import (
    Index,
    NestedKey,
    Numbers,
    Rows,
    StateDict,
    as_tensor,
    key_of,
)
from datasets_cli.replay.batches.reader import BatchReader
from datasets_cli.replay.batches.row_numbers import flat_rows, row_numbers, unravel_rows
from datasets_cli.replay.samplers.protocol import has_priorities
from datasets_cli.replay.storages.collate import map_rows, stack_rows
from datasets_cli.replay.storages.processes import call_after_fork, call_before_fork
from datasets_cli.replay.storages.protocol import Storage, WritableStorage, is_writable
from datasets_cli.replay.storages.shared import SharedPosition, SharedStorage
from datasets_cli.replay.storages.tensors import LazyMemmapStorage, LazyTensorStorage
from datasets_cli.replay.trajectories.seams import skip_numbers_of
from datasets_cli.replay.writing.writers import (
    IMMUTABLE,
    SEAMS,
    RoundRobinWriter,
    Writer,
    refuse_to_write,
)
from datasets_cli.schema.columns import Key, show_key
from datasets_cli.sources.temporary_folders import this_process

BLOCK = 4096  # rows that are copied at once where some of their entries are replaced


COPY = (
    "This buffer is a copy of one in another process and is not shared: no other process would see "
    "rows that are written here. Create it with shared=True, or with a LazyMemmapStorage; or load "
    "its state_dict() into a new buffer, which has separate rows."
)
RANKS_STAY = (
    "{writer} is in the process that created the buffer, which alone can write with it. Use a "
    "RoundRobinWriter, which several processes share."
)


def writable(reader: BatchReader) -> WritableStorage:
    """Return the storage of a buffer to write to."""
    if not is_writable(reader.storage):
        refuse_to_write()
    if reader.refusal:
        raise NotWritable(reader.refusal)
    return reader.storage


def refuse_dimensions(storage: WritableStorage) -> None:
    """Refuse rows of several dimensions that are not given by their numbers."""
    if storage.ndim > 1:
        raise NotWritable(
            f"Rows of {storage.ndim} dimensions cannot be written by one number.",
            found=storage.ndim,
            advice="Use extend() for rows, and set_at_() for entries, with the numbers [n, ndim] "
            "that extend() returns.",
        )


def write_at(storage: WritableStorage, index: Index, data: Rows) -> None:
    """Replace the rows of an index."""
    refuse_dimensions(storage)
    rows = row_numbers(index, storage)
    if not rows.numel() and not len(storage):  # which must not take the form of such rows
        raise EmptyBuffer("The storage is empty.", advice="Use extend().")
    data = data if rows.ndim else storage.one_row(data)
    columns = storage.flatten(data)
    if len(columns[0]) != rows.numel():
        raise WrongRows(
            f"{rows.numel()} rows cannot be replaced by {len(columns[0])}.",
            expected=rows.numel(),
            found=len(columns[0]),
        )
    storage.write(rows.flatten(), columns)


def write_entries(
    storage: WritableStorage, rows: torch.Tensor, entries: Mapping[Key, Rows]
) -> None:
    """Replace some entries of rows, block by block: no copy of all rows is made."""
    # rows: int64 `[n]`.
    # entries: the new values, `[n, ...]` each.
    for key, values in entries.items():
        first = storage.entry(key, rows[:1])
        if first is None:
            raise UnknownKey(f"The rows have no {show_key(key)} that could be replaced.", key=key)
        expected = (first.dtype, [len(rows), *first.shape[1:]])
        found = (values.dtype, list(values.shape))
        if found != expected:
            raise WrongRows(
                f"{show_key(key)} of {len(rows)} rows is {expected[0]} {expected[1]}; found "
                f"{found[0]} {found[1]}.",
                key=key,
                expected=expected,
                found=found,
                advice="Pass the entry of each of these rows.",
            )
    side = (*storage.grid[-1:], *storage.grid[1:-1])[: storage.ndim - 1]  # environments
    for start in range(0, len(rows), BLOCK):
        stop = start + BLOCK
        batch = storage.get(rows[start:stop])
        for key, values in entries.items():
            batch.set(key, values[start:stop].to(batch[key].device))
        if side:  # a step is of all environments: each row is given as that of all
            batch = map_rows(lambda part: part.expand(*side, *part.shape), batch)
        columns = storage.flatten(batch)
        storage.write(rows[start:stop], [each[:: storage.width] for each in columns])


def entries_by_key(
    entries: Mapping[NestedKey, Rows], only: Sequence[NestedKey] | None
) -> dict[Key, Rows]:
    """Return the leaves ``[n, ...]`` of a nested dict or TensorDict by their keys."""
    found: dict[Key, Rows] = {}
    for name, value in entries.items():
        is_group = isinstance(value, Mapping | TensorDictBase)
        below = entries_by_key(value, None) if is_group else {(): value}
        found.update({(*key_of(name), *rest): leaf for rest, leaf in below.items()})
    if only is None:
        return found
    wanted = [key_of(name) for name in only]
    for key in wanted:
        if not any(leaf[: len(key)] == key for leaf in found):
            raise UnknownKey(f"The new entries have no {show_key(key)}.", key=key)
    return {leaf: v for leaf, v in found.items() if any(leaf[: len(k)] == k for k in wanted)}


def replace_rows(
    reader: BatchReader, writer: Writer, columns: list[Any] | None, writer_state: StateDict
) -> None:
    """Replace all rows of a buffer, and restore the state of its writer."""
    # columns: of the new rows `[n, ...]`, as the storage flattens them; None if there are none.
    storage = writable(reader)
    clear_rows(reader, writer)
    if columns is not None:
        storage.write(slice(0, len(columns[0])), columns)
    writer.load_state_dict(writer_state)
    # The storage counts time steps, the writer rows.
    storage.cursor = writer_state.get("cursor", 0) // storage.width
    if columns is not None:
        skip_numbers_of(storage)
        if storage.seams is not None:  # the rows that are written next are another run's
            last = (storage.cursor - 1) % (storage.capacity // storage.width)
            storage.seams.cut([*writer_state.get(SEAMS, ()), last])


def clear_rows(reader: BatchReader, writer: Writer) -> None:
    """Forget a buffer's rows, and notify writer, transform and sampler."""
    storage = writable(reader)
    writer.on_clear()  # first, because it may refuse
    storage.clear()
    if storage.seams is not None:
        storage.seams.clear()
    if storage.generations is not None:
        storage.generations.advance()
    reader.transform.on_clear()
    reader.sampler.on_clear()
    reader.drop()


class RowWriter:
    """Writes the rows of a replay buffer, and notifies its sampler."""

    def __init__(self, reader: BatchReader, writer: Writer | None) -> None:
        self._reader = reader
        self._maker = this_process()
        self.use_writer(writer)
        call_after_fork(self)

    def use_writer(self, writer: Writer | None) -> None:
        """Replace the writer; None for the default one."""
        storage = self._reader.storage
        self.writer = _default_writer(storage) if writer is None else writer
        if isinstance(self.writer, RoundRobinWriter) and is_writable(storage):
            self.writer.track(storage)
            if isinstance(storage, SharedStorage):
                self.writer.position = SharedPosition(storage)
        if isinstance(storage, LazyMemmapStorage):
            call_before_fork(self)

    def over(self, reader: BatchReader) -> RowWriter:
        """Return what writes the rows of another reader; all that are a dataset's are refused."""
        if reader.storage.is_writable or self._reader.storage.is_writable:
            return RowWriter(reader, None)
        row_writer = type(self).__new__(type(self))
        vars(row_writer).update(vars(self), _reader=reader)
        call_after_fork(row_writer)
        return row_writer

    def share(self) -> None:
        """Share the rows with other processes, which read and write them, and return the buffer.

        The rows move to a shared storage, which ``storage`` then is. Pass the buffer to a process,
        forked or spawned, as an argument or by a pickle. One process writes at a time; priorities
        stay with this process, which samples by them.

        Raises:
            ImmutableError: the rows are a dataset, which needs no sharing.
            UsageError: the storage cannot be shared: it is a list, or on another device.
        """
        reader = self._reader
        storage = writable(reader)
        if isinstance(storage, SharedStorage):
            return
        if not isinstance(storage, LazyTensorStorage):
            raise Unsupported(
                f"Processes cannot share the rows of a {type(storage).__name__}.",
                argument="storage",
                advice="Use LazyTensorStorage or LazyMemmapStorage.",
            )
        with reader.lock:
            reader.share(SharedStorage.of(storage, self.writer.write_count))
            self.use_writer(self.writer)

    def before_fork(self) -> None:
        """Share rows in files with the process that is forked, unless some stay in this one."""
        storage = self._reader.storage
        if isinstance(storage, LazyMemmapStorage) and storage.is_shared and not storage.is_copy:
            self.share()

    def after_fork(self) -> None:
        """Refuse to write in a new process what no other process would see."""
        self._reader.refusal = self._refusal()

    def __setstate__(self, state: StateDict) -> None:
        vars(self).update(state)
        call_after_fork(self)
        if self._maker != this_process():
            self.after_fork()

    def _refusal(self) -> str:
        """Return why a process other than the one that created the buffer cannot write; or ""."""
        if not isinstance(self._reader.storage, SharedStorage):
            return COPY
        if isinstance(self.writer, RoundRobinWriter):
            return ""
        return RANKS_STAY.format(writer=type(self.writer).__name__)

    @property
    def lock(self) -> AbstractContextManager[object]:
        """The lock that is held while rows are written."""
        return self._reader.lock

    def extend(self, data: Rows, priority_key: Key | None = None) -> torch.Tensor:
        """Write rows and return their numbers; see ``ReplayBuffer.extend``."""
        reader = self._reader
        is_list = isinstance(data, list) and bool(data)
        if is_list and (reader.transform or not reader.storage.takes_lists):
            data = stack_rows(data)
        data = reader.transform.inv(data)
        if data is None:  # a transform keeps the rows until it has more
            return torch.empty(0, dtype=torch.int64)
        try:
            with reader.lock:
                rows = self._write(data, priority_key)
        except BaseException:
            reader.transform.undo_inv()
            raise
        return unravel_rows(reader.storage, rows)

    def _write(self, data: Rows, priority_key: Key | None) -> torch.Tensor:
        """Write transformed rows and return their flat numbers."""
        reader, sampler = self._reader, self._reader.sampler
        storage = writable(reader)
        if not len(storage):
            reader.check_transform(reader.transform, sampler, storage, data)
        key = priority_key if has_priorities(sampler) else None
        if key is not None:
            check_priorities(data, key)
        rows = self.writer.write(storage, data)
        sampler.on_write(rows)
        if key is not None:
            self._update_priorities(rows[rows >= 0], key)
        reader.rewind()
        return rows

    def replace(self, index: Index, data: Rows) -> None:
        """Replace rows, which keep their priorities."""
        data = self._reader.transform.inv(data)
        try:
            with self._reader.lock:
                write_at(writable(self._reader), index, data)
                self._reader.rewind()
        except BaseException:
            self._reader.transform.undo_inv()
            raise

    def set_(self, key: NestedKey, value: Rows) -> None:
        """Replace an entry of all rows by another ``[N, ...]``; return the buffer."""
        self.update_({key: value})

    def set_at_(self, key: NestedKey, value: Rows, index: Index) -> None:
        """Replace an entry of rows, or of numbers ``[n, ndim]``, and return the buffer."""
        self._replace_entries({key: value}, index)

    def update_(
        self,
        input_dict_or_td: Mapping[NestedKey, Rows] | TensorDictBase,
        clone: bool = False,
        *,
        keys_to_update: Sequence[NestedKey] | None = None,
    ) -> None:
        """Replace entries of all rows by others ``[N, ...]``; return the buffer.

        No transform acts on them, as in TorchRL.

        Args:
            input_dict_or_td: entries that the rows have.
            clone: as in TorchRL; values are always copied.
            keys_to_update: which of them are written; all by default.

        Raises:
            ImmutableError: the rows are a dataset.
            UsageError: rows do not have such an entry, or it has another shape or dtype.
        """
        self._replace_entries(input_dict_or_td, slice(None), keys_to_update)

    def _replace_entries(
        self,
        entries: Mapping[NestedKey, Rows] | TensorDictBase,
        index: Index,
        only: Sequence[NestedKey] | None = None,
    ) -> None:
        """Replace some entries of rows by ``entries``, each `[n, ...]`."""
        with self._reader.lock:
            storage = writable(self._reader)
            if storage.ndim > 1 and isinstance(index, torch.Tensor):  # as `extend` returns them
                rows = flat_rows(storage, index)
            else:
                refuse_dimensions(storage)
                rows = row_numbers(index, storage).reshape(-1)
            write_entries(storage, rows, entries_by_key(entries, only))
            self._reader.rewind()

    def update_priority(self, index: Numbers, priority: Numbers) -> None:
        """Give rows new priorities; nothing happens unless the sampler has any.

        Args:
            index: whole numbers ``[B]``, or ``[B, ndim]`` with several dimensions; tensors, or
                arrays of numpy or jax, as are the priorities.
            priority: float ``[B]``, or one number for all.
        """
        reader = self._reader
        if not has_priorities(reader.sampler):
            return
        with reader.lock:
            reader.check_priorities()
            rows, num_rows = flat_rows(reader.storage, as_tensor(index)), len(reader.storage)
            if rows.numel() and int(rows.max()) >= num_rows:
                row = int(rows.max())
                raise OutOfRange(
                    f"The buffer has no row {row}, only {num_rows} rows.", row=row, found=num_rows
                )
            reader.sampler.update_priority(rows, as_tensor(priority))

    def empty(self, empty_write_count: bool = True) -> None:
        """Forget every row.

        Args:
            empty_write_count: let ``write_count`` begin at 0 again.

        Raises:
            ImmutableError: they are a dataset.
        """
        with self._reader.lock:
            written = self.writer.write_count
            clear_rows(self._reader, self.writer)
            if not empty_write_count:
                self.writer.write_count = written

    def _update_priorities(self, rows: torch.Tensor, key: Key) -> None:
        """Give flat rows int64 ``[n]`` that were written the priorities they came with."""
        sampler = self._reader.sampler
        if has_priorities(sampler) and len(rows):
            priority = self._reader.storage.entry(key, rows)
            if priority is not None:
                sampler.update_priority(rows, priority)


def check_priorities(data: Rows, key: Key) -> None:
    """Check the priorities that rows come with, before the rows are written."""
    for part in data if isinstance(data, list) else [data]:
        if not isinstance(part, TensorDictBase):
            return
        found = part.get(key, None)
        if found is None:
            continue
        is_number = isinstance(found, torch.Tensor) and bool(found.isfinite().all())
        if not is_number or ((len(part) if part.ndim else 1) and not found.numel()):
            raise WrongRows(
                f"{show_key(key)}, the priority of these rows, is not a finite number.",
                key=key,
                advice="Is the loss finite? Remove the entry, or pass update_priority=False.",
            )


def _default_writer(storage: Storage) -> Writer:
    """Return the default writer of a buffer, which continues after the stored rows."""
    if not is_writable(storage):
        return IMMUTABLE
    writer = RoundRobinWriter()
    writer.cursor = storage.cursor * storage.width
    return writer
