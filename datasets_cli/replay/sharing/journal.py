"""A journal: the rows that are on their way over others, kept until they are there.

A process that is killed while it writes over rows leaves some that are half old, half new. The next
one to hold the lock writes them once more, from here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from datasets_cli.replay.sharing.counters import JOURNAL, JOURNAL_COUNT, JOURNAL_START, SEQUENCE

JOURNAL_BYTES = 2**22
"""Rows are written over in parts of this size: few for a large write, and small for a cache."""

_ALIGNMENT = 64

Span = slice | torch.Tensor
"""Rows: consecutive ones, or numbered int64 ``[n]``."""


class Journal:
    """The rows of one part of a write, in a file that several processes map."""

    # columns: of the storage, `[rows, ...]`.

    def __init__(
        self, path: Path, numbers: memoryview, columns: Sequence[torch.Tensor], width: int
    ) -> None:
        self._numbers = numbers
        row_bytes = sum(column[:1].nbytes for column in columns) + 8
        steps = max(1, JOURNAL_BYTES // (row_bytes * max(1, width)))
        self.num_rows = min(steps * max(1, width), max(1, len(columns[0])))
        shapes = [(self.num_rows,), *((self.num_rows, *column.shape[1:]) for column in columns)]
        dtypes = [torch.int64, *(column.dtype for column in columns)]
        sizes = [
            math.prod(shape) * dtype.itemsize for shape, dtype in zip(shapes, dtypes, strict=True)
        ]
        space = [-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes]
        mapped = torch.from_file(str(path), shared=True, size=sum(space), dtype=torch.uint8)
        parts = [part[:size] for part, size in zip(mapped.split(space), sizes, strict=True)]
        self._index, *self._columns = [
            part.view(dtype).view(shape)
            for part, dtype, shape in zip(parts, dtypes, shapes, strict=True)
        ]

    def parts(
        self, rows: Span, columns: list[torch.Tensor]
    ) -> Iterator[tuple[Span, list[torch.Tensor]]]:
        """Yield rows and their columns in parts that fit."""
        count = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
        for start in range(0, count, self.num_rows):
            stop = min(start + self.num_rows, count)
            if isinstance(rows, slice):
                part: Span = slice(rows.start + start, rows.start + stop)
            else:
                part = rows[start:stop]
            yield part, [column[start:stop] for column in columns]

    def record(self, rows: Span, columns: list[torch.Tensor]) -> None:
        """Keep a part of the write that begins next."""
        count = len(columns[0])
        for own, new in zip(self._columns, columns, strict=True):
            own[:count] = new
        if isinstance(rows, slice):
            self._numbers[JOURNAL_START] = rows.start
        else:
            self._numbers[JOURNAL_START] = -1
            self._index[:count] = rows
        self._numbers[JOURNAL_COUNT] = count
        self._numbers[JOURNAL] = self._numbers[SEQUENCE] + 1  # last: now it holds

    def entry(self) -> tuple[Span, list[torch.Tensor]] | None:
        """Return the rows of the write under way, and their columns; None where it kept none."""
        if self._numbers[JOURNAL] != self._numbers[SEQUENCE]:
            return None
        start, count = self._numbers[JOURNAL_START], self._numbers[JOURNAL_COUNT]
        rows = self._index[:count].clone() if start < 0 else slice(start, start + count)
        return rows, [column[:count] for column in self._columns]
