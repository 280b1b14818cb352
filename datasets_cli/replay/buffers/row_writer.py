"""Writing rows: transforms, the writer and the sampler each have a part in it."""

from __future__ import annotations

from collections.abc import Callable

import torch

from datasets_cli.replay.arguments import Index, Rows
from datasets_cli.replay.buffers.checkpoint import writable
from datasets_cli.replay.buffers.parts import as_writer
from datasets_cli.replay.buffers.reader import BatchReader
from datasets_cli.replay.buffers.rows import unravel_rows, write_at
from datasets_cli.replay.storages.lists import stack_rows
from datasets_cli.replay.writers import Writer, default_writer


class RowWriter:
    """Writes the rows of a replay buffer, and tells its sampler of them.

    Args:
        reader: of the buffer; it has the storage, the sampler and the transform.
        writer: where rows are written; None takes the default for the storage.

    Attributes:
        writer: where rows are written.
    """

    def __init__(self, reader: BatchReader, writer: Writer | None) -> None:
        self._reader = reader
        self.use_writer(writer)

    def use_writer(self, writer: Writer | None) -> None:
        """Write with a writer from now on; see the class."""
        self.writer = as_writer(default_writer(self._reader.storage) if writer is None else writer)

    def extend(self, data: Rows, tell: Callable[[torch.Tensor], None]) -> torch.Tensor:
        """Write rows and return their numbers; see ``ReplayBuffer.extend``.

        Args:
            data: rows.
            tell: learns which flat rows int64 ``[n]`` were written.
        """
        reader = self._reader
        is_list = isinstance(data, list) and bool(data)
        if is_list and (reader.transform or not reader.storage.takes_lists):
            data = stack_rows(data)
        data = reader.transform.inv(data)
        if data is None:  # a transform keeps the rows until it has more
            return torch.empty(0, dtype=torch.int64)
        with reader.lock:
            storage = writable(reader)
            rows = self.writer.write(storage, data)
            tell(rows)
            reader.rewind()
        return unravel_rows(storage, rows)

    def replace(self, index: Index, data: Rows) -> None:
        """Write rows in place of others, which keep their priorities; see ``rows.write_at``."""
        data = self._reader.transform.inv(data)
        with self._reader.lock:
            write_at(writable(self._reader), index, data)
            self._reader.rewind()
