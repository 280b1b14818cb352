"""Writes rows: they are transformed and placed by the writer, and the sampler is notified."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

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
from datasets_cli.replay.samplers.protocol import PrioritySampler, has_priorities
from datasets_cli.replay.storages.collate import map_rows, stack_rows
from datasets_cli.replay.storages.process_lock import call_after_fork, call_before_fork
from datasets_cli.replay.storages.protocol import Storage, WritableStorage, is_writable
from datasets_cli.replay.storages.shared import SharedPosition, SharedStorage
from datasets_cli.replay.storages.tensors import LazyMemmapStorage, LazyTensorStorage
from datasets_cli.replay.trajectories.seams import skip_numbers_of
from datasets_cli.replay.writing.writers import (
    IMMUTABLE,
    SEAMS,
    RoundRobinWriter,
    Writer,
    read_only,
)
from datasets_cli.schema.columns import Key, show_key
from datasets_cli.schema.shapes import RowNumbers
from datasets_cli.sources.temporary_folders import this_process

BLOCK_ROWS = 4096
"""Rows that are copied at once when some of their entries are replaced."""

UNSHARED_COPY = (
    "This buffer is an unshared copy of a buffer of another process, which would not see new rows. "
    "Create it with shared=True or a LazyMemmapStorage, or load its state_dict() into a new buffer "
    "with separate rows."
)
UNSHARED_WRITER = (
    "Only the process that created the buffer can write with its {writer}. Use a "
    "RoundRobinWriter, which processes share."
)


def writable(reader: BatchReader) -> WritableStorage:
    """Return the storage of a buffer, or raise if this process cannot write to it."""
    if not is_writable(reader.storage):
        raise read_only()
    if reader.refusal:
        raise NotWritable(reader.refusal)
    return reader.storage


def check_one_dimension(storage: WritableStorage) -> None:
    """Raise ``NotWritable`` if one number does not identify a row."""
    if storage.ndim > 1:
        raise NotWritable(
            f"A row of a storage with ndim={storage.ndim} is identified by {storage.ndim} numbers; "
            "one number does not identify the row to replace.",
            argument="index",
            expected=1,
            found=storage.ndim,
            advice="Write rows with extend(), and entries with set_at_() and the row numbers "
            "[n, ndim] that extend() returns.",
        )


def write_at(storage: WritableStorage, index: Index, data: Rows) -> None:
    """Replace the rows at an index."""
    check_one_dimension(storage)
    rows = row_numbers(index, storage)
    if not rows.numel() and not len(storage):  # the first rows would fix the schema
        raise EmptyBuffer("The storage has no rows to replace.", advice="Use extend().")
    data = data if rows.ndim else storage.one_row(data)
    columns = storage.flatten(data)
    if len(columns[0]) != rows.numel():
        raise WrongRows(
            f"The index selects {rows.numel()} rows; found {len(columns[0])} new rows.",
            argument="data",
            expected=rows.numel(),
            found=len(columns[0]),
        )
    storage.write(rows.flatten(), columns)


def write_entries(storage: WritableStorage, rows: RowNumbers, entries: Mapping[Key, Rows]) -> None:
    """Replace some entries of rows by others ``[n, ...]``, in blocks."""
    for key, values in entries.items():
        first = storage.entry(key, rows[:1])
        if first is None:
            raise UnknownKey(f"The rows have no {show_key(key)} to replace.", key=key)
        expected = (first.dtype, [len(rows), *first.shape[1:]])
        found = (values.dtype, list(values.shape))
        if found != expected:
            raise WrongRows(
                f"{show_key(key)} of {len(rows)} rows must be {expected[0]} {expected[1]}; found "
                f"{found[0]} {found[1]}.",
                key=key,
                expected=expected,
                found=found,
                advice="Pass one value per row, with the stored dtype and shape.",
            )
    side = (*storage.grid[-1:], *storage.grid[1:-1])[: storage.ndim - 1]  # environments
    for start in range(0, len(rows), BLOCK_ROWS):
        stop = start + BLOCK_ROWS
        batch = storage.get(rows[start:stop])
        for key, values in entries.items():
            batch.set(key, values[start:stop].to(batch[key].device))
        if side:  # flatten() takes steps of all environments: repeat each row for all of them
            batch = map_rows(lambda part: part.expand(*side, *part.shape), batch)
        columns = storage.flatten(batch)
        storage.write(rows[start:stop], [each[:: storage.width] for each in columns])


def entries_by_key(
    entries: Mapping[NestedKey, Rows], only: Sequence[NestedKey] | None
) -> dict[Key, Rows]:
    """Return the leaves ``[n, ...]`` of a nested dict or TensorDict, by key."""
    leaves: dict[Key, Rows] = {}
    for name, value in entries.items():
        is_group = isinstance(value, Mapping | TensorDictBase)
        below = entries_by_key(value, None) if is_group else {(): value}
        leaves.update({(*key_of(name), *suffix): leaf for suffix, leaf in below.items()})
    if only is None:
        return leaves
    selected = [key_of(name) for name in only]
    for key in selected:
        if not any(leaf[: len(key)] == key for leaf in leaves):
            raise UnknownKey(f"The new entries have no {show_key(key)}.", key=key)
    return {leaf: v for leaf, v in leaves.items() if any(leaf[: len(k)] == k for k in selected)}


def replace_rows(
    reader: BatchReader, writer: Writer, columns: list[Any] | None, writer_state: StateDict
) -> None:
    """Replace all rows of a buffer by flattened columns, and restore the state of its writer."""
    storage = writable(reader)
    clear_rows(reader, writer)
    if columns is not None:
        storage.write(slice(0, len(columns[0])), columns)
    writer.load_state_dict(writer_state)
    # A storage counts time steps, a writer rows.
    storage.cursor = writer_state.get("cursor", 0) // storage.width
    if columns is not None:
        skip_numbers_of(storage)
        if storage.seams is not None:  # the next rows belong to another run
            last = (storage.cursor - 1) % (storage.capacity // storage.width)
            storage.seams.cut([*writer_state.get(SEAMS, ()), last])


def clear_rows(reader: BatchReader, writer: Writer) -> None:
    """Remove a buffer's rows, and notify writer, transform and sampler."""
    storage = writable(reader)
    writer.on_clear()  # first, because it may raise
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
        """Replace the writer, by default with a ``RoundRobinWriter``."""
        storage = self._reader.storage
        self.writer = _default_writer(storage) if writer is None else writer
        if isinstance(self.writer, RoundRobinWriter) and is_writable(storage):
            self.writer.track(storage)
            if isinstance(storage, SharedStorage):
                self.writer.position = SharedPosition(storage)
        if isinstance(storage, LazyMemmapStorage):
            call_before_fork(self)

    def with_reader(self, reader: BatchReader) -> RowWriter:
        """Return the row writer of another reader, which keeps the writer of a dataset."""
        if reader.storage.is_writable or self._reader.storage.is_writable:
            return RowWriter(reader, None)
        row_writer = type(self).__new__(type(self))
        vars(row_writer).update(vars(self), _reader=reader)
        call_after_fork(row_writer)
        return row_writer

    def share(self) -> None:
        """Move the rows to a storage that several processes read and write; return the buffer.

        ``storage`` is then that storage. Pass the buffer to a forked or spawned process as an
        argument, or in a pickle. One process writes at a time. Priorities stay in this process,
        which alone samples by them.

        Raises:
            ImmutableError: the rows are a dataset, which needs no sharing.
            Unsupported: the storage is a list, is on another device, or has text.
        """
        reader = self._reader
        storage = writable(reader)
        if isinstance(storage, SharedStorage):
            return
        if not isinstance(storage, LazyTensorStorage):
            raise Unsupported(
                f"Processes cannot share the rows of a {type(storage).__name__}.",
                argument="storage",
                found=type(storage).__name__,
                advice="Use LazyTensorStorage or LazyMemmapStorage.",
            )
        with reader.lock:
            reader.share(SharedStorage.of(storage, self.writer.write_count))
            self.use_writer(self.writer)

    def before_fork(self) -> None:
        """Share rows in files with the forked process, if processes can share them."""
        storage = self._reader.storage
        if isinstance(storage, LazyMemmapStorage) and storage.is_shared and not storage.is_copy:
            self.share()

    def after_fork(self) -> None:
        """Reject writes in a new process if other processes would not see them."""
        self._reader.refusal = self._refusal()

    def __setstate__(self, state: StateDict) -> None:
        vars(self).update(state)
        call_after_fork(self)
        if self._maker != this_process():
            self.after_fork()

    def _refusal(self) -> str:
        """Return why a process that did not create the buffer cannot write, or ``""``."""
        if not isinstance(self._reader.storage, SharedStorage):
            return UNSHARED_COPY
        if isinstance(self.writer, RoundRobinWriter):
            return ""
        return UNSHARED_WRITER.format(writer=type(self.writer).__name__)

    @property
    def lock(self) -> AbstractContextManager[object]:
        """The lock that a writer holds."""
        return self._reader.lock

    def extend(self, data: Rows, priority_key: Key | None = None) -> RowNumbers:
        """Write rows and return their numbers; see ``ReplayBuffer.extend``."""
        reader = self._reader
        is_list = isinstance(data, list) and bool(data)
        if is_list and (reader.transform or not reader.storage.takes_lists):
            data = stack_rows(data)
        if reader.transform.steps:
            data = reader.transform.inv(data)
            if data is None:  # a transform holds the rows back until it has more
                return torch.empty(0, dtype=torch.int64)
        try:
            with reader.lock:
                rows = self._write(data, priority_key)
        except BaseException:
            reader.transform.undo_inv()
            raise
        return rows if reader.storage.ndim == 1 else unravel_rows(reader.storage, rows)

    def _write(self, data: Rows, priority_key: Key | None) -> RowNumbers:
        """Write transformed rows and return their flat numbers."""
        reader, sampler = self._reader, self._reader.sampler
        storage = writable(reader)
        if not len(storage):
            reader.check_transform(reader.transform, sampler, storage, data)
        key = priority_key if sampler.has_priorities else None
        if key is not None:
            check_priorities(data, key)
        rows = self.writer.write(storage, data)
        sampler.on_write(rows)
        if key is not None:
            written = rows[rows >= 0]
            priority = storage.entry(key, written) if len(written) else None
            if priority is not None:
                cast(PrioritySampler, sampler).update_priority(written, priority)
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
        """Replace an entry of all rows, ``[N, ...]``; return the buffer."""
        self.update_({key: value})

    def set_at_(self, key: NestedKey, value: Rows, index: Index) -> None:
        """Replace an entry of rows, by index or row numbers ``[n, ndim]``; return the buffer."""
        self._replace_entries({key: value}, index)

    def update_(
        self,
        input_dict_or_td: Mapping[NestedKey, Rows] | TensorDictBase,
        clone: bool = False,
        *,
        keys_to_update: Sequence[NestedKey] | None = None,
    ) -> None:
        """Replace entries of all rows, ``[N, ...]``; return the buffer.

        Transforms are not applied, as in TorchRL.

        Args:
            input_dict_or_td: the new entries.
            clone: for compatibility; values are always copied.
            keys_to_update: the entries to write; all by default.

        Raises:
            ImmutableError: the rows are a dataset.
            UnknownKey: the rows do not have an entry.
            WrongRows: an entry has another shape or dtype than the stored one.
        """
        self._replace_entries(input_dict_or_td, slice(None), keys_to_update)

    def _replace_entries(
        self,
        entries: Mapping[NestedKey, Rows] | TensorDictBase,
        index: Index,
        only: Sequence[NestedKey] | None = None,
    ) -> None:
        """Replace entries ``[n, ...]`` of the rows at an index."""
        with self._reader.lock:
            storage = writable(self._reader)
            if storage.ndim > 1 and isinstance(index, torch.Tensor):  # returned by `extend`
                rows = flat_rows(storage, index)
            else:
                check_one_dimension(storage)
                rows = row_numbers(index, storage).reshape(-1)
            write_entries(storage, rows, entries_by_key(entries, only))
            self._reader.rewind()

    def update_priority(self, index: Numbers, priority: Numbers) -> None:
        """Set the priorities of rows; does nothing if the sampler has no priorities.

        Args:
            index: row numbers int64 ``[B]``, or ``[B, ndim]`` with several dimensions: a tensor, or
                an array of numpy or jax.
            priority: float ``[B]``, or one number for all.

        Raises:
            OutOfRange: a row does not exist.
            UsageError: a priority is not finite.
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
                    f"Row {row} does not exist: the buffer has {num_rows} rows.",
                    argument="index",
                    row=row,
                    expected=f"0 to {num_rows - 1}",
                    found=row,
                )
            reader.sampler.update_priority(rows, as_tensor(priority))

    def empty(self, empty_write_count: bool = True) -> None:
        """Remove all rows.

        Args:
            empty_write_count: reset ``write_count`` to 0.

        Raises:
            ImmutableError: the rows are a dataset.
        """
        with self._reader.lock:
            written = self.writer.write_count
            clear_rows(self._reader, self.writer)
            if not empty_write_count:
                self.writer.write_count = written


def check_priorities(data: Rows, key: Key) -> None:
    """Check that the priorities in new rows are finite numbers."""
    for part in data if isinstance(data, list) else [data]:
        if not isinstance(part, TensorDictBase):
            return
        found = part.get(key, None)
        if found is None:
            continue
        is_number = isinstance(found, torch.Tensor) and bool(found.isfinite().all())
        if not is_number or ((len(part) if part.ndim else 1) and not found.numel()):
            raise WrongRows(
                f"{show_key(key)}, the priority of these rows, must be finite numbers.",
                key=key,
                expected="finite numbers",
                advice="Check that the loss is finite, remove the entry, or pass "
                "update_priority=False.",
            )


def _default_writer(storage: Storage) -> Writer:
    """Return the default writer of a storage, which continues after the stored rows."""
    if not is_writable(storage):
        return IMMUTABLE
    writer = RoundRobinWriter()
    writer.cursor = storage.cursor * storage.width
    return writer
