"""Converts the raw files of one dataset: reads their steps and writes its rows into a folder."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from datasets_cli.catalogue.entries import load_recipe
from datasets_cli.catalogue.names import Resolved, recipe_of
from datasets_cli.core.progress import File, Note, Progress, Rows
from datasets_cli.core.quantities import counted
from datasets_cli.errors import RldsError, SourceError
from datasets_cli.formats.limits import current_limits, raised_limits
from datasets_cli.install.fetch import read_blocks, source_errors
from datasets_cli.parallel.engine import IN_THIS_PROCESS, Workers
from datasets_cli.recipe import Block, CatalogueEntry, DeferredFrames, Description, Source
from datasets_cli.schema.columns import TRAJECTORY_END, Column, Key
from datasets_cli.schema.texts import is_text
from datasets_cli.schema.trajectories import record_of
from datasets_cli.schema.transitions import Transitions, iterate_rows
from datasets_cli.sources.disk import check_free_space, make_folder
from datasets_cli.sources.resource import RawFile
from datasets_cli.store.content import SUCCESSOR_RULE_VERSION
from datasets_cli.store.layouts.records import is_frame
from datasets_cli.store.manifest import UNCHECKED, UNVERIFIED, Manifest
from datasets_cli.store.writer import FinalFrames, LayoutWriter
from datasets_cli.version import TOOL

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from datasets_cli.parallel.cluster import WorkerCheck
    from datasets_cli.schema.frame_table import FrameFiles, FrameTable, FrameTableBuilder


@dataclass(frozen=True)
class Conversion:
    """The conversion of a dataset's raw files to rows in a folder."""

    resolved: Resolved
    files: tuple[RawFile, ...]
    folder: Path
    layout: str | None = None

    @property
    def source(self) -> Source:
        """The source that the recipe reads."""
        paths = {file.filename: file.path for file in self.files}
        return Source(self.resolved.name, paths, self.resolved.entry)


def convert(conversion: Conversion, progress: Progress, workers: Workers) -> Manifest:
    """Write the rows of a dataset into a folder; return its manifest."""
    resolved, files = conversion.resolved, conversion.files
    id, source = resolved.id, conversion.source
    description, deferred = _described(resolved, source)
    for note in description.notes:
        progress(Note(f"{id}: {note}"))
    if traps := description.metadata.get("known_traps"):
        found = counted(len(traps), "known trap")
        progress(Note(f"{id}: {found} of the published file; see: rlds info {id}"))
    builder = _new_builder() if deferred else None
    layout = conversion.layout or ("compact" if deferred else None)
    with LayoutWriter(layout, conversion.folder, id) as writer:
        transitions = _transitions(resolved, deferred, writer, builder)
        for rows in _rows(conversion, source, transitions, builder):
            writer.write(rows)
            if not deferred:
                progress(Rows(id, writer.num_rows))
        if not writer.num_rows:
            raise SourceError(f"{id} has no transitions: every trajectory is empty.", id=id)
        if deferred and builder:
            paths = source.files.values()
            write_frames(id, deferred, paths, builder.table(), writer, workers, progress)
        progress(Rows(id, writer.num_rows, writer.num_rows))
        text_notes = [*writer.notes, *transitions.notes]
        written = writer.finish(description.files)
    for note in (*text_notes, *_notes_of(files)):
        progress(Note(f"{id}: {note}"))
    return Manifest(
        id=id,
        **vars(written),
        resources=tuple(file.to_json() for file in files),
        recipe=resolved.recipe.to_json(),
        successors={**transitions.rule, "version": SUCCESSOR_RULE_VERSION},
        metadata={**description.metadata, "notes": [*description.notes, *text_notes]},
        recorded=transitions.recorded(description.names),
        tool=TOOL,
    )


def _transitions(
    resolved: Resolved,
    deferred: DeferredFrames | None,
    writer: LayoutWriter,
    builder: FrameTableBuilder | None,
) -> Transitions:
    return Transitions(
        resolved.id,
        deferred.key if deferred else None,
        needs_rewards=resolved.recipe.has_rewards,
        final=lambda rows: writer.write_final(builder.without_step(rows) if builder else rows),
    )


def _described(resolved: Resolved, source: Source) -> tuple[Description, DeferredFrames | None]:
    with source_errors(resolved.id):
        return resolved.recipe.describe(source), resolved.recipe.deferred_frames(source)


def _new_builder() -> FrameTableBuilder:
    # Imported only for deferred frames, which need workers and compressors.
    from datasets_cli.schema.frame_table import FrameTableBuilder

    return FrameTableBuilder()


def _notes_of(files: Iterable[RawFile]) -> Iterator[str]:
    for file in files:
        if file.version:
            yield f"{file.filename} is the version {file.version}"
        if file.checked.startswith(UNVERIFIED):
            yield file.checked
    if unchecked := [file for file in files if file.checked in UNCHECKED]:
        yield _unchecked(unchecked)


def _unchecked(unchecked: list[RawFile]) -> str:
    names = ", ".join(file.filename for file in unchecked[:3])
    more = f" and {len(unchecked) - 3} more" if unchecked[3:] else ""
    compared = "only the size was" if unchecked[0].checked == "size" else "nothing was"
    is_local = not unchecked[0].url.startswith(("http://", "https://"))
    why = "with a source no publisher is asked" if is_local else "no checksum is known"
    return f"unchecked: {names}{more}: {compared} compared with what is published, for {why}"


def _rows(
    conversion: Conversion,
    source: Source,
    transitions: Transitions,
    builder: FrameTableBuilder | None,
) -> Iterator[dict[Key, np.ndarray]]:
    """Yield the complete rows, without deferred frames."""
    resolved = conversion.resolved
    blocks = read_blocks(resolved.id, resolved.recipe.blocks(source))
    steps = (block.columns for block in _with_space(blocks, conversion))
    if builder is None:
        yield from iterate_rows(transitions, steps)
        return
    for rows in iterate_rows(transitions, map(builder.number, steps)):
        yield builder.take(rows)


def _with_space(blocks: Iterator[Block], conversion: Conversion) -> Iterator[Block]:
    """Yield blocks, after a check that the disk has space for all rows of their files."""
    # A compressed file of 2 kB can have 10^9 rows.
    for number, block in enumerate(blocks):
        if number == 0 and block.total_rows:
            row_bytes = sum(
                _stored_bytes(key, rows, conversion.layout) for key, rows in block.columns.items()
            )
            num_bytes = block.total_rows * row_bytes
            check_free_space(conversion.folder, num_bytes, conversion.resolved.id)
        yield block


def _stored_bytes(key: Key, rows: np.ndarray, layout: str | None) -> int:
    """Return the minimal size of a row of a column on disk; 0 if it is unknown."""
    if (
        key == TRAJECTORY_END
        or is_text(rows)
        or (layout != "ted" and is_frame(rows.dtype.name, rows.shape[1:]))
    ):
        return 0
    return int(math.prod(rows.shape[1:]) * rows.dtype.itemsize)


KEPT = "The downloaded files are kept: run the same command again."


@contextmanager
def fit_workers(
    workers: Workers, folder: Path, files: Iterable[Path]
) -> Iterator[tuple[Executor, WorkerCheck | None]]:
    """Yield the workers of a conversion; at the end its tasks are finished or cancelled."""
    # In functions: most conversions need no workers.
    from datasets_cli.parallel.cluster import TOKEN, WorkerCheck
    from datasets_cli.parallel.local import LocalWorkers
    from datasets_cli.parallel.tasks import CallingProcess, OwnTasks

    with workers.pool() as pool:
        needs = None
        if not isinstance(pool, CallingProcess | LocalWorkers):
            make_folder(folder)
            needs = WorkerCheck(folder, files=tuple(path.absolute() for path in files))
            needs.write_token()
        try:
            if workers.ends_tasks:
                yield pool, needs
            else:
                with OwnTasks(pool) as tasks:
                    yield tasks, needs
        finally:
            if needs is not None:
                (folder / TOKEN).unlink(missing_ok=True)


WORTH_PROCESSES = 50_000
"""The number of frames from which the start of processes pays off."""

Records = list[tuple[int, int]]
"""Runs of written records: the first, and one past the last."""


@dataclass(frozen=True)
class FrameTask:
    """A worker's task: the frames of one part."""

    id: str
    number: int
    key: Key
    part: Any
    read: Callable[[Any], Generator[Block, None, None]]
    table: FrameTable
    files: FrameFiles
    final: FinalFrames | None
    limits: Mapping[str, int]
    needs: WorkerCheck | None


def write_frames(
    id: str,
    deferred: DeferredFrames,
    paths: Iterable[Path],
    table: FrameTable,
    writer: LayoutWriter,
    workers: Workers,
    progress: Progress,
) -> None:
    """Write the deferred frames of all parts, in parallel."""
    from datasets_cli.parallel.tasks import run_tasks

    column = Column(deferred.key, "uint8", deferred.shape)
    sample = partial(_sample, id, deferred, table)
    files = writer.add_frames(column, table.offsets, sample)
    final = writer.add_final_frames(column)
    if workers.is_optional and table.num_frames < WORTH_PROCESSES:
        workers = IN_THIS_PROCESS
    filled: Records = []
    num_frames = table.num_frames + (len(final.steps) if final else 0)
    workers = workers.at_most(len(deferred.parts))
    progress(Rows(id, 0, writer.num_rows))
    with fit_workers(workers, writer.folder, paths) as (pool, needs):
        tasks = [
            FrameTask(
                *(id, number, deferred.key, part, deferred.read),
                *(table, files, final, dict(current_limits()), needs),
            )
            for number, part in enumerate(deferred.parts)
        ]
        for _, records in run_tasks(
            pool,
            write_part,
            tasks,
            KEPT,
            name=lambda task: f"{id}, part {task.number} of its frames,",
            progress=progress,
        ):
            filled += records
            num_done = sum(end - first for first, end in filled)
            progress(Rows(id, min(writer.num_rows, num_done), writer.num_rows))
    _check_cover(id, filled, num_frames)


def write_part(task: FrameTask) -> Records:
    """Write the frames of one part; return their records, then final steps. Runs in a worker."""
    # The frames of final steps are counted on from the last record.
    if task.needs:
        task.needs.check_here()
    filled: Records = []
    final: Records = []
    with (
        raised_limits(task.limits),
        closing(task.files) as files,
        closing(task.read(task.part)) as blocks,
    ):
        for start, frames in _frames(task.id, task.key, blocks):
            if task.final and (places := task.final.write(start, frames)):
                _add(final, task.table.num_frames + places.start, len(places))
            for run in task.table.runs(start, frames):
                files.write(run)
                first = record_of(task.table.offsets, run.trajectory, run.position)
                _add(filled, first, len(run.frames))
    return filled + final


def _add(filled: Records, first: int, count: int) -> None:
    after = first + count
    if filled and filled[-1][1] == first:  # continues the last run: one run together
        first = filled.pop()[0]
    filled.append((first, after))


def _frames(id: str, key: Key, blocks: Iterator[Block]) -> Iterator[tuple[int, np.ndarray]]:
    for block in read_blocks(id, blocks):
        assert block.start is not None, "a block of frames has a start"
        yield block.start, block.columns[key]


def _sample(id: str, deferred: DeferredFrames, table: FrameTable, count: int) -> np.ndarray:
    """Return the first ``count`` frames of the parts, or fewer, uint8 ``[n, *shape]``."""
    frames = [np.zeros((0, *deferred.shape), np.uint8)]
    num_found = 0
    for part in deferred.parts:
        with closing(deferred.read(part)) as blocks:
            for start, found in _frames(id, deferred.key, blocks):
                for run in table.runs(start, found):
                    frames.append(run.frames[: count - num_found].copy())
                    num_found += len(frames[-1])
                    if num_found == count:
                        return np.concatenate(frames)
    return np.concatenate(frames)


def _check_cover(id: str, filled: Records, num_frames: int) -> None:
    """Raise SourceError unless the runs cover every record exactly once."""
    end = 0
    for first, after in [*sorted(filled), (num_frames, num_frames)]:
        if first != end:
            problem = "occurs twice" if first < end else "is missing"
            raise SourceError(
                f"{id}: the frame of record {min(first, end)} {problem}. Its files do not fit "
                "together, or its recipe is wrong.",
                id=id,
                row=min(first, end),
                expected="each frame once",
            )
        end = after


@dataclass(frozen=True)
class StagingTask:
    """A worker's task: the conversion of one dataset."""

    # Some functions of recipes cannot be pickled: the worker loads the recipe by its family.

    family: str
    version: int
    name: str
    entry: CatalogueEntry | None
    files: tuple[RawFile, ...]
    folder: Path
    layout: str | None
    limits: Mapping[str, int]
    needs: WorkerCheck | None


def convert_elsewhere(conversion: Conversion, progress: Progress, workers: Workers) -> Manifest:
    """Write the rows of a dataset in a worker; return its manifest."""
    from datasets_cli.parallel.tasks import run_tasks

    resolved, files = conversion.resolved, conversion.files
    family, paths = resolved.recipe.family, [file.path for file in files]
    progress(Rows(resolved.id, 0))  # the progress of the rows starts
    with fit_workers(workers, conversion.folder, paths) as (pool, needs):
        task = StagingTask(
            *(family, resolved.recipe.version, resolved.name, resolved.entry),
            files=files,
            folder=conversion.folder,
            layout=conversion.layout,
            limits=dict(current_limits()),
            needs=needs,
        )
        for _, (manifest, notes) in run_tasks(
            pool, write_in_worker, [task], KEPT, name=lambda _: resolved.id, progress=progress
        ):
            for note in notes:
                progress(note)
            num_rows = manifest.num_transitions
            progress(Rows(resolved.id, num_rows, num_rows))
    return manifest


def write_in_worker(task: StagingTask) -> tuple[Manifest, list[Note]]:
    """Write the rows of a dataset; return its manifest and the notes. Runs in a worker."""
    if task.needs:
        task.needs.check_here()
    _clear(task.folder)
    recipe = recipe_of(load_recipe(task.family), task.name)
    if recipe.version != task.version:
        raise RldsError(
            f"A worker has version {recipe.version} of the recipe {task.family}, expected version "
            f"{task.version}.",
            expected=task.version,
            found=recipe.version,
            advice="Install the same recipes on all machines.",
        )
    resolved = Resolved(recipe, task.name, task.entry)
    notes: list[Note] = []

    def collect(event: File | Rows | Note) -> None:
        if isinstance(event, Note):
            notes.append(event)

    conversion = Conversion(resolved, task.files, task.folder, task.layout)
    with raised_limits(task.limits):
        return convert(conversion, collect, IN_THIS_PROCESS), notes


def _clear(folder: Path) -> None:
    """Remove the files of a killed worker from a folder."""
    from datasets_cli.parallel.cluster import TOKEN

    for path in folder.glob("*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != TOKEN:
            path.unlink(missing_ok=True)
