"""Writing frames that are read apart from their steps, part by part, in one process or several.

The parts are the recipe's and each knows where its frames belong, so that the bytes are the same
for any number of processes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from datasets_cli.errors import SourceError
from datasets_cli.formats.limits import current_limits, raised_limits
from datasets_cli.install.reading import read_blocks
from datasets_cli.install.worker_needs import KEPT, ConversionNeeds, fit_workers
from datasets_cli.parallel.engine import IN_THIS_PROCESS, Workers
from datasets_cli.parallel.tasks import run_tasks
from datasets_cli.progress import Progress, expect_rows
from datasets_cli.recipe import Block, DeferredFrames
from datasets_cli.schema.columns import Column, Key
from datasets_cli.schema.frame_table import FrameFiles, FrameRun, FrameTable
from datasets_cli.schema.trajectories import record_of
from datasets_cli.store.writer import LayoutWriter

WORTH_PROCESSES = 50_000
"""Fewer frames take less time than processes need to start."""

Records = list[tuple[int, int]]
"""Runs of records, first and one past the last, that a part has filled."""


@dataclass(frozen=True)
class FrameTask:
    """One part: everything that a worker needs."""

    id: str
    number: int
    key: Key
    part: Any
    read: Callable[[Any], Generator[Block, None, None]]
    table: FrameTable
    files: FrameFiles
    limits: Mapping[str, int]
    needs: ConversionNeeds | None


def write_frames(
    id: str,
    deferred: DeferredFrames,
    paths: Iterable[Path],
    table: FrameTable,
    writer: LayoutWriter,
    workers: Workers,
    progress: Progress,
) -> None:
    """Write every frame where it belongs."""
    column = Column(deferred.key, "uint8", deferred.shape)
    sample = partial(_sample, id, deferred, table)
    files = writer.add_frames(column, table.offsets, sample)
    if workers.may_be_left_out and table.num_frames < WORTH_PROCESSES:
        workers = IN_THIS_PROCESS
    filled: Records = []
    workers = workers.at_most(len(deferred.parts))
    expect_rows(progress, id, 0, writer.num_rows)
    with fit_workers(workers, id.partition("/")[0], writer.folder, paths) as (pool, needs):
        tasks = [
            FrameTask(
                *(id, number, deferred.key, part, deferred.read),
                *(table, files, dict(current_limits()), needs),
            )
            for number, part in enumerate(deferred.parts)
        ]
        for _, records in run_tasks(
            pool,
            write_part,
            tasks,
            KEPT,
            name=lambda task: f"{id}, part {task.number} of its frames,",
            note=progress.note,
        ):
            filled += records
            num_done = sum(end - first for first, end in filled)
            progress.writing(min(writer.num_rows, num_done))
    _check_cover(id, filled, table.num_frames)


def write_part(task: FrameTask) -> Records:
    """Write the frames of one part and return where; runs in a worker."""
    if task.needs:
        task.needs.check()
    filled: Records = []
    with (
        raised_limits(task.limits),
        closing(task.files) as files,
        closing(task.read(task.part)) as blocks,
    ):
        for run in _runs(task.id, task.key, blocks, task.table):
            files.write(run)
            first = record_of(task.table.offsets, run.trajectory, run.position)
            after = first + len(run.frames)
            if filled and filled[-1][1] == first:  # continues the last run: one run together
                first = filled.pop()[0]
            filled.append((first, after))
    return filled


def _runs(id: str, key: Key, blocks: Iterator[Block], table: FrameTable) -> Iterator[FrameRun]:
    for block in read_blocks(id, blocks):
        assert block.start is not None, "a block of frames says where it begins"
        yield from table.runs(block.start, block.columns[key])


def _sample(id: str, deferred: DeferredFrames, table: FrameTable, count: int) -> np.ndarray:
    """Return about the first ``count`` frames that the parts give, uint8 ``[n, *shape]``."""
    frames = [np.zeros((0, *deferred.shape), np.uint8)]
    num_found = 0
    for part in deferred.parts:
        with closing(deferred.read(part)) as blocks:
            for run in _runs(id, deferred.key, blocks, table):
                frames.append(run.frames[: count - num_found].copy())
                num_found += len(frames[-1])
                if num_found == count:
                    return np.concatenate(frames)
    return np.concatenate(frames)


def _check_cover(id: str, filled: Records, num_frames: int) -> None:
    """Check that the runs cover every record once: in order, each begins where one ends."""
    end = 0
    for first, after in [*sorted(filled), (num_frames, num_frames)]:
        if first != end:
            problem = "twice" if first < end else "never"
            raise SourceError(
                f"{id}: the frame of record {min(first, end)} comes {problem}; expected every "
                "frame once. Its files do not fit together, or its recipe is wrong."
            )
        end = after
