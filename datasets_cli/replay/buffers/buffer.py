"""Replay buffers: a storage holds rows, a sampler draws them, a writer places them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.buffers.options import ReadOptions
from datasets_cli.replay.buffers.rows import (
    flat_rows,
    is_key,
    one_row,
    rows_at,
    unravel_rows,
    write_at,
)
from datasets_cli.replay.buffers.sample_info import expand_to_rows
from datasets_cli.replay.buffers.saved import SavedBuffer
from datasets_cli.replay.samplers.protocol import Info, Sampler
from datasets_cli.replay.storages.lists import ListStorage, stack_rows
from datasets_cli.replay.writers import (
    ImmutableDatasetWriter,
    RoundRobinWriter,
    TensorDictRoundRobinWriter,
    Writer,
)

DEFAULT_SIZE = 1000


class ReplayBuffer(SavedBuffer):
    """Samples batches from a storage, and writes rows into one that takes them.

    One thread may write while another samples.

    Args:
        storage: where the rows are; a list of 1,000 by default.
        writer: where rows are placed; by default one after the other, behind those that are there,
            and nowhere in a dataset.
        dim_extend: the dimension of time in data with ``storage.ndim`` leading ones, the last.
        sampler: how rows are drawn; uniformly with replacement by default.
        transform: applied to every batch; one that has ``inv`` also to what is written.
        batch_size: rows in a batch; ``sample`` can override it.
        collate_fn: takes what the storage gives, a list of rows or a batch, and returns the batch.
        pin_memory: put batches into page-locked memory.
        prefetch: batches of ``batch_size`` that a thread makes ahead of time; worth it where one
            costs more than some 0.1 ms: frames, transforms, copies to a device. Transforms run in
            that thread. A batch of another size is drawn when it is asked for, and those that are
            under way are given back.
        generator: draws rows; torch's global one by default.
        seed: seeds a generator of the buffer's own.

    Raises:
        UsageError: arguments that exclude one another.
    """

    def __init__(
        self,
        *,
        storage: Any = None,
        writer: Writer | None = None,
        dim_extend: int | None = None,
        sampler: Sampler | None = None,
        **reading: Unpack[ReadOptions],
    ) -> None:
        storage = ListStorage(DEFAULT_SIZE) if storage is None else storage
        super().__init__(storage=storage, sampler=sampler, **reading)
        if dim_extend not in (None, self.storage.ndim - 1):
            raise UsageError(
                f"Time is the last of the storage's {self.storage.ndim} dimensions, not "
                f"{dim_extend}."
            )
        if writer is not None and not callable(getattr(writer, "write", None)):
            raise UsageError(f"A writer is expected, such as RoundRobinWriter(), not {writer!r}.")
        self.writer: Writer = writer or self._default_writer()

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(storage={self.storage!r}, "
            f"sampler={type(self.sampler).__name__}, writer={self.writer!r}, "
            f"batch_size={self.batch_size})"
        )

    def __getitem__(self, index: Any) -> Any:
        """Return copies of rows, or of a whole column.

        Args:
            index: an int, slice, list, mask or tensor of rows; or a key, for the whole column. With
                several dimensions, one for each of them as ``extend`` takes them, time last.

        Raises:
            IndexError: a row does not exist.
            KeyError: a key does not exist.
            UsageError: the copy would take more than half of the free memory.
        """
        if not is_key(index):
            with self._lock:
                rows = rows_at(self.storage, index)
            return self.transform(rows)
        if self.transform or self.storage.ndim > 1:
            return self[:][index]
        with self._lock:
            return self.storage.column((index,) if isinstance(index, str) else index)

    def __setitem__(self, index: Any, data: Any) -> None:
        """Write rows in place of others, which keep their priorities; see ``rows.write_at``.

        Raises:
            ImmutableError: the rows are a dataset.
        """
        if is_key(index):
            raise UsageError(f"Rows can be replaced, such as rb[:3] = rows; {index!r} is a column.")
        data = self.transform.inv(data)
        with self._lock:
            if self._is_constant:
                ImmutableDatasetWriter().write(self.storage, data)
            write_at(self.storage, index, data)
            self._rewind()

    def __getitems__(self, index: list[int]) -> Any:
        """Return rows as one batch: what ``torch.utils.data.DataLoader`` asks a dataset for.

        Give the loader ``collate_fn=loaders.whole_batch``.
        """
        return self[index]

    def add(self, data: Any) -> Any:
        """Write one row; return its number, or None where the writer refused it.

        With several dimensions it is one step of all environments, ``[environments...]``, and their
        numbers int64 ``[n, ndim]`` are returned.
        """
        index = self.extend(one_row(self.storage, data))
        if self.storage.ndim > 1:
            return index
        number = int(index.flatten()[0]) if index.numel() else -1
        return None if number < 0 else number

    def extend(self, data: Any) -> torch.Tensor:
        """Write rows ``[n, ...]``, or a list of them; return their numbers int64.

        Args:
            data: rows; with several dimensions time comes last, ``[environments..., time]``.

        Returns:
            ``[n]``, or ``[n, ndim]`` with several dimensions; -1 where the writer refused a row.

        Raises:
            ImmutableError: the rows are a dataset.
            UsageError: the rows are of another form than those that are there.
        """
        return self._write(data, self._tell_sampler)

    def empty(self) -> None:
        """Forget every row.

        Raises:
            ImmutableError: they are a dataset.
        """
        if self._is_constant:
            ImmutableDatasetWriter().on_clear()
        with self._lock:
            self.writer.on_clear()
            self.storage.empty()
            self.transform.on_clear()
            if on_clear := getattr(self.sampler, "on_clear", None):
                on_clear()
            if self._prefetch:
                self._prefetch.drop()

    def update_priority(self, index: torch.Tensor, priority: Any) -> None:
        """Give rows new priorities; nothing happens unless the sampler has any.

        Args:
            index: int64 ``[B]``, or ``[B, ndim]`` with several dimensions.
            priority: float ``[B]``, or one number for all.
        """
        if update := getattr(self.sampler, "update_priority", None):
            with self._lock:
                rows = flat_rows(self.storage, torch.as_tensor(index))
                if rows.numel() and int(rows.max()) >= len(self):
                    raise UsageError(f"There is no row {int(rows.max())}, only {len(self)} rows.")
                update(rows, priority)

    def set_storage(self, storage: Any, collate_fn: Callable[[Any], Any] | None = None) -> Any:
        """Use another storage and return the one before; its rows get the default priority."""
        self._rewind()
        previous = self.storage
        self._use(storage)
        self._collate_fn = collate_fn or self._collate_fn
        self.writer = self._default_writer()
        if on_clear := getattr(self.sampler, "on_clear", None):
            on_clear()
        return previous

    def set_writer(self, writer: Writer) -> Writer:
        """Use another writer and return the one before."""
        previous, self.writer = self.writer, writer
        return previous

    def _describe(self, rows: Any, index: torch.Tensor, info: Info) -> None:
        super()._describe(rows, index, info)
        if isinstance(self.writer, TensorDictRoundRobinWriter):
            rows["index"] = expand_to_rows(
                unravel_rows(self.storage, index), self.storage.row_batch_size
            )

    def _default_writer(self) -> Writer:
        if not hasattr(self.storage, "write"):
            return ImmutableDatasetWriter()
        writer = RoundRobinWriter()
        writer.cursor = self.storage.cursor * self.storage.width  # behind rows that are there
        return writer

    def _write(self, data: Any, tell: Callable[[torch.Tensor], None]) -> torch.Tensor:
        """Write rows, tell of them, and return their numbers; see ``extend``."""
        is_list = isinstance(data, list) and bool(data)
        if is_list and (self.transform or not isinstance(self.storage, ListStorage)):
            data = stack_rows(data)
        data = self.transform.inv(data)
        if data is None:  # a transform keeps the rows until it has more
            return torch.empty(0, dtype=torch.int64)
        with self._lock:
            if self._is_constant:
                ImmutableDatasetWriter().write(self.storage, data)
            rows = self.writer.write(self.storage, data)
            tell(rows)
            self._rewind()
        return unravel_rows(self.storage, rows)

    def _tell_sampler(self, rows: torch.Tensor) -> None:
        """Tell the sampler which flat rows were written; -1 was refused."""
        if on_write := getattr(self.sampler, "on_write", None):
            on_write(rows)
