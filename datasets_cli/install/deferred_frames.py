"""Writing pictures that are read apart from their steps, part by part, in one process or several.

The parts are the recipe's and each knows where its pictures go, so that the bytes are the same for
any number of processes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from datasets_cli.errors import SourceError
from datasets_cli.install.reading import read_blocks
from datasets_cli.parallel.tasks import local_pool, run_tasks
from datasets_cli.progress import Progress
from datasets_cli.recipe import Block, DeferredFrames
from datasets_cli.store.schema.columns import Column, Key
from datasets_cli.store.schema.frame_table import PictureFiles, PictureTable, Run

if TYPE_CHECKING:
    from datasets_cli.store.compact.writer import CompactWriter
    from datasets_cli.store.ted.writer import TedWriter

WORTH_PROCESSES = 50_000
"""Fewer pictures take less time than processes need to start."""

Records = list[tuple[int, int]]
"""Runs of records, first and one past the last, that a part has filled."""


@dataclass(frozen=True)
class Task:
    """One part: everything that a worker needs."""

    id: str
    key: Key
    part: Any
    read: Callable[[Any], Generator[Block, None, None]]
    table: PictureTable
    files: PictureFiles


def write_pictures(
    id: str,
    pictures: DeferredFrames,
    table: PictureTable,
    writer: TedWriter | CompactWriter,
    num_workers: int | None,
    progress: Progress,
) -> None:
    """Write every picture to its place.

    Args:
        id: named in messages.
        pictures: what to read.
        table: where the pictures belong.
        writer: has all other columns.
        num_workers: processes; all cores where None, this process where 0.
        progress: told of the rows done.

    Raises:
        SourceError: a part cannot be read, or a picture is missing or there twice.
        DiskFull: no room.
        RldsError: a worker process died.
    """
    column = Column(pictures.key, "uint8", pictures.shape)
    sample = partial(_sample, id, pictures, table)
    files = writer.add_pictures(column, table.offsets, sample)
    tasks = [Task(id, pictures.key, part, pictures.read, table, files) for part in pictures.parts]
    if num_workers is None and table.num_pictures < WORTH_PROCESSES:
        num_workers = 0
    if len(tasks) <= 1:
        num_workers = 0
    filled: Records = []
    with local_pool(num_workers and min(num_workers, len(tasks))) as pool:
        for _, records in run_tasks(pool, write_part, tasks, "What has been downloaded is kept."):
            filled += records
            num_done = sum(end - first for first, end in filled)
            progress.converting(min(writer.num_rows, num_done))
    _check_cover(id, filled, table.num_pictures)


def write_part(task: Task) -> Records:
    """Write the pictures of one part and return where; runs in a worker."""
    filled: Records = []
    with closing(task.files) as files, closing(task.read(task.part)) as blocks:
        for run in _runs(task.id, task.key, blocks, task.table):
            files.write(run)
            first = int(task.table.offsets[run.trajectory]) + run.trajectory + run.position
            after = first + len(run.pictures)
            if filled and filled[-1][1] == first:
                first = filled.pop()[0]
            filled.append((first, after))
    return filled


def _runs(id: str, key: Key, blocks: Iterator[Block], table: PictureTable) -> Iterator[Run]:
    for block in read_blocks(id, blocks):
        assert block.start is not None, "a block of pictures says where it begins"
        yield from table.runs(block.start, block.columns[key])


def _sample(id: str, pictures: DeferredFrames, table: PictureTable, count: int) -> np.ndarray:
    """Return about the first ``count`` pictures that the parts give, uint8 ``[n, *shape]``."""
    found = [np.zeros((0, *pictures.shape), np.uint8)]
    num_found = 0
    for part in pictures.parts:
        with closing(pictures.read(part)) as blocks:
            for run in _runs(id, pictures.key, blocks, table):
                found.append(run.pictures[: count - num_found].copy())
                num_found += len(found[-1])
                if num_found == count:
                    return np.concatenate(found)
    return np.concatenate(found)


def _check_cover(id: str, filled: Records, num_pictures: int) -> None:
    end = 0
    for first, after in [*sorted(filled), (num_pictures, num_pictures)]:
        if first != end:
            problem = "twice" if first < end else "never"
            raise SourceError(
                f"{id}: the picture of record {min(first, end)} comes {problem}. Its files do not "
                "fit together, or its recipe is wrong."
            )
        end = after
