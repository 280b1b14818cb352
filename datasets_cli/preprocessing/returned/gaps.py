"""The second phase of a run that dropped rows: what each chunk left, without gaps.

    data/x.memmap      a a a . b b . .       each chunk at the place of all its rows
    closed/x.memmap    a a a b b

A file gets its name when it is whole, and the files with gaps stay until the commit: the next run
continues one that was killed at any moment.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

from datasets_cli.preprocessing.returned.remaining import Bounds
from datasets_cli.sources.disk import check_free_space, disk_errors, flush, replace_file
from datasets_cli.store.schema.columns import BLOCK_BYTES, Column


def close_gaps(
    data: Path, closed: Path, columns: tuple[Column, ...], places: Bounds, what: str
) -> None:
    """Copy the rows that are left into files of their own; memory does not grow with them."""
    num_rows = sum(count for _, count in places)
    missing = [
        column for column in columns if column.row_bytes and not (closed / column.filename).exists()
    ]
    size = sum(column.row_bytes for column in missing) * num_rows
    check_free_space(closed.parent, size, f"{what}, whose function drops rows,")
    with disk_errors(closed):
        closed.mkdir(exist_ok=True)
        for column in missing:
            # Its own in each process, where locks do not work; outside of what is committed.
            new = closed.with_name(f"{closed.name}.{os.getpid()}")
            with (data / column.filename).open("rb") as source, new.open("wb") as target:
                for start, count in places:
                    source.seek(start * column.row_bytes)
                    _copy(source, target, count * column.row_bytes)
            flush(new)
            (closed / column.filename).parent.mkdir(parents=True, exist_ok=True)
            replace_file(new, closed / column.filename)


def _copy(source: BinaryIO, target: BinaryIO, size: int) -> None:
    while size:
        block = source.read(min(size, BLOCK_BYTES))
        assert block, "a file has a place for each row that was read"
        target.write(block)
        size -= len(block)
