"""A run: the rows that it reads, their chunks, the function, the columns of the result, its folder.

Tasks write into the folder of the run until the new dataset is renamed into place:

<dest's parent>/.<dest's name>.<plan>.partial/    plan.json, data/ at full size, parts/<k>.done,
                                                  text and frames of each part in parts/<k>/;
                                                  closed/, data without the gaps of dropped rows;
                                                  packed/, committed in the compact layout
<dest's parent>/.<dest's name>.lock               while a process works on the destination
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np

from datasets_cli.core.quantities import dropped_steps
from datasets_cli.errors import EmptyBuffer, RldsError, UsageError, WrongRows, argument
from datasets_cli.parallel.workers import pickle_by_value
from datasets_cli.preprocessing.chunk import RowChunk, chunk_bounds
from datasets_cli.preprocessing.frames import Frames, begin_frames, bytes_of_one
from datasets_cli.preprocessing.function import RowFunction, identity_of
from datasets_cli.preprocessing.function_call import CallOptions, checked_result, result_of
from datasets_cli.preprocessing.mapping import PipelineFunction, RowByRow
from datasets_cli.preprocessing.options import PreprocessOptions
from datasets_cli.preprocessing.origin import origin_of, rows_of_task
from datasets_cli.preprocessing.pipeline import Mapped, Pipeline
from datasets_cli.preprocessing.result import (
    ROW_KEY,
    FunctionResult,
    ResultColumns,
    difference_of,
)
from datasets_cli.preprocessing.task import PreprocessTask, check_columns
from datasets_cli.schema.columns import TERMINATED, TRUNCATED, one_file_each
from datasets_cli.schema.texts import RecordedColumn, is_text
from datasets_cli.schema.trajectories import first_rows
from datasets_cli.sources.disk import allocate, check_free_space, disk_errors
from datasets_cli.store.cache_root import runs_to
from datasets_cli.store.dataset import Dataset
from datasets_cli.store.layouts.frames import SAMPLED_FRAMES

PLAN = "plan.json"
COMPARED_ROWS = 16_384
"""Maximum rows of the first chunk that are computed twice; a function may be slow."""
PER_TRAJECTORY, PER_CHUNK = '"trajectory"', '"chunk"'


FinalPlaces = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Final steps, by their place in a dataset; their new trajectories and numbers; int64 ``[n]``."""


class PreprocessRun:
    """The rows that a run reads, their chunks, and the function."""

    def __init__(self, dataset: Dataset, function: Mapped, options: PreprocessOptions) -> None:
        manifest = dataset.manifest
        if not len(dataset):
            raise EmptyBuffer(
                f"The view of {manifest.id} has no rows to preprocess.", id=manifest.id
            )
        self.dataset, self.options = dataset, options
        self._mapped = function
        self.layout = options.layout or manifest.layout
        self.num_rows = options.num_rows(len(dataset))
        self.offsets = first_rows(dataset.offsets.numpy(), self.num_rows)
        identity = function.identity if isinstance(function, Pipeline) else identity_of(function)
        self.origin = origin_of(manifest, identity, options, dataset.selection)
        self.notes: tuple[str, ...] = ()
        task_rows = rows_of_task(manifest, options, self.num_rows)
        self.bounds = chunk_bounds(
            self.offsets, task_rows, dataset.row_bytes, options.per, manifest.id
        )

    @property
    def call_options(self) -> CallOptions:
        """The seed of the function and the rows that it gets together and returns."""
        # A pipeline separates trajectories itself.
        is_alone = self.options.per == "trajectory" and not isinstance(self._mapped, Pipeline)
        return CallOptions(self.options.seed, is_alone)

    @property
    def num_trajectories(self) -> int:
        """The number of trajectories that are read; ``num_frames`` may cut the last one."""
        return len(self.offsets) - 1

    @property
    def _is_selection(self) -> bool:
        return self._mapped == Pipeline()

    @property
    def recorded(self) -> tuple[RecordedColumn, ...]:
        """The source's columns, if they have all of the result, whose ends are the source's."""
        dataset, recorded = self.dataset, self.dataset.manifest.recorded
        is_cut = self.num_rows not in dataset.starts
        if dataset.selection is not None:
            is_cut |= bool(dataset.selection.ends_early(dataset.whole.offsets.numpy()).any())
        has_ends = {TERMINATED, TRUNCATED} <= {each.key for each in recorded}
        return recorded if self._is_selection and has_ends and not is_cut else ()

    @cached_property
    def final(self) -> FinalPlaces:
        """The final steps that the result keeps: those of trajectories that are only selected."""
        dataset, final = self.dataset, self.dataset.final
        if not self._is_selection:
            none = np.zeros(0, np.int64)
            return none, none, none
        if dataset.selection is None and self.num_rows == len(dataset):
            return np.arange(len(final)), final.episodes, final.steps
        numbers, places = dataset.final_places()
        ends = dataset.offsets.numpy()[numbers + 1]
        is_read = ends <= self.num_rows
        numbers, ends = numbers[is_read], ends[is_read]
        return places[is_read], numbers, ends + np.arange(len(ends))

    @property
    def final_notes(self) -> list[str]:
        """A note with the number of final steps that are dropped; empty without any."""
        why = "functions and transforms receive only transitions"
        why = "a trajectory is cut or left out" if self._is_selection else why
        return dropped_steps(self.dataset.num_final - len(self.final[0]), why)

    @cached_property
    def function(self) -> RowFunction:
        """The function of consecutive rows; a pipeline reads the statistics that it needs."""
        is_alone = self.options.chunksize == 0
        if not isinstance(self._mapped, Pipeline):
            return RowByRow(self._mapped) if is_alone else self._mapped
        if is_alone:
            raise UsageError(
                f"{argument('chunksize', '0')} passes each row alone to a function, and a pipeline "
                "needs rows together.",
                argument="chunksize",
                found=0,
                advice="Leave it out.",
            )
        if self._mapped.needs_trajectories and self.options.per == "transition":
            raise UsageError(
                f"{argument('returns_to_go')} and {argument('n_step')} need "
                f"{argument('per', PER_CHUNK)}, the default, since a row depends on other rows of "
                f"its trajectory; found {argument('per', repr(self.options.per))}.",
                argument="per",
                expected="chunk",
                found=self.options.per,
            )
        return PipelineFunction(self._mapped, self.dataset, self.num_rows)

    @cached_property
    def columns(self) -> ResultColumns:
        """The columns of the result, found by calling the function with the first rows."""
        # A function that drops some of these rows, or reads their numbers, gets the numbers of all
        # rows from then on.
        options = self.call_options
        first = 2 if self.options.per == "transition" else int(self.offsets[1])
        for start, stop in [(0, min(first, self.num_rows)), *self.bounds]:
            result, options = self._try(RowChunk(self.dataset, start, stop), options)
            # Of an empty result tensordict knows the shape of numbers, and not that of text.
            if not (result.is_empty and any(map(is_text, result.rows.values()))):
                break
        self._compare_chunk(options)
        return ResultColumns.of(result, options.is_numbered, self.layout)

    def _compare_chunk(self, options: CallOptions) -> None:
        """Refuse a function whose values depend on the trajectories that it gets together."""
        if self.options.per != "chunk" or isinstance(self.function, PipelineFunction | RowByRow):
            return
        firsts, lasts = np.searchsorted(self.offsets, np.transpose(self.bounds))
        if not (several := np.flatnonzero(lasts - firsts > 1)).size:
            return
        first, last = firsts[several[0]], lasts[several[0]]
        start = int(self.offsets[first])
        enough = np.searchsorted(self.offsets, start + COMPARED_ROWS)
        stop = int(self.offsets[np.clip(enough, first + 2, last)])
        chunk = RowChunk(self.dataset, start, stop)
        # The tasks compare the results of the same rows with their input.
        together, options = self._try(chunk, options, result_of)
        alone, _ = self._try(chunk, replace(options, by_trajectory=True), result_of)
        if not (difference := difference_of(together, alone, len(chunk))):
            return
        # With another seed, a function that draws with torch's gives other values, too.
        again, _ = self._try(chunk, replace(options, seed=options.seed + 1), result_of)
        if difference_of(together, again, len(chunk)):
            self.notes += ("the function is random: the same rows gave other values",)
            return
        row, name, one, other = difference
        raise WrongRows(
            f"The function mixes trajectories: in row {start + row}, {name} is {one} when it gets "
            f"{chunk} together, and {other} when it gets each trajectory alone.",
            argument="per",
            key=name,
            row=start + row,
            expected=other,
            found=one,
            advice=f"Pass {argument('per', PER_TRAJECTORY)}, or split the rows by episode in the "
            "function.",
        )

    def first_frames(self) -> Frames:
        """Return the frames of the result for the first rows, which must be chained."""
        if not self.columns.frames:
            return {}
        stop = min(SAMPLED_FRAMES, self.num_rows)
        if self.options.per != "transition":
            stop = int(self.offsets[np.searchsorted(self.offsets, stop, side="left")])
        chunk = RowChunk(self.dataset, 0, stop)
        result, _ = self._try(chunk, self._task_options)
        check_columns(result, self.columns, chunk)
        keys = {field.column.key for field in self.columns.frames}
        return {key: rows[:SAMPLED_FRAMES] for key, rows in result.rows.items() if key in keys}

    def result_bytes(self, first_frames: Frames) -> int:
        """Return the approximate bytes of the result, without text."""
        columns = self.columns
        sizes = [column.row_bytes for column in columns.leaves]
        sizes += [bytes_of_one(field, first_frames[field.column.key]) for field in columns.frames]
        return self.num_rows * sum(sizes)

    @property
    def plan(self) -> bytes:
        """Everything that decides the bytes of the result, as JSON."""
        columns, origin = self.columns, self.origin
        plan = {
            "source": origin.parent["content"],
            "function": origin.function.digest,
            "columns": [column.entry(origin.arguments["num_frames"]) for column in columns.numbers],
            "texts": [column.to_json() for column in columns.texts],
            "arguments": origin.arguments,
            "seed": origin.seed,
            "layout": columns.layout,
        }
        return json.dumps(plan).encode()

    @property
    def _task_options(self) -> CallOptions:
        return replace(self.call_options, is_numbered=self.columns.is_numbered)

    def _try(
        self,
        chunk: RowChunk,
        options: CallOptions,
        call: Callable[[RowFunction, RowChunk, CallOptions], FunctionResult] = checked_result,
    ) -> tuple[FunctionResult, CallOptions]:
        """Return the result for a chunk, and the options with which it was computed."""
        numbered = replace(options, is_numbered=True)
        if not options.is_numbered:
            try:
                result = call(self.function, chunk, options)
                return result, options if result.kept is None else numbered
            except UsageError:
                raise
            except RldsError:  # it may have read the numbers; otherwise it fails again
                if ROW_KEY in self.dataset.keys:
                    raise
        return call(self.function, chunk, numbered), numbered

    def tasks(self, folder: RunFolder, *, elsewhere: bool) -> Iterator[PreprocessTask]:
        """Yield the tasks that are not done; ``elsewhere`` for workers with another Python path."""
        pickled, selection = pickle_by_value(self.function, elsewhere), self.dataset.selection
        for number, (start, stop) in enumerate(self.bounds):
            mark = folder.mark(number)
            if not mark.exists():
                yield PreprocessTask(
                    data=folder.data,
                    packed=folder.packed,
                    mark=mark,
                    part=folder.part(number),
                    start=start,
                    stop=stop,
                    function=pickled,
                    options=self._task_options,
                    columns=self.columns,
                    selection=selection.rows(start, stop) if selection else None,
                )


class RunFolder:
    """The folder of a run and its files."""

    def __init__(self, dest: Path, plan: bytes) -> None:
        self.dest = dest
        digest = hashlib.sha256(plan).hexdigest()[:16]
        self.path = dest.parent / f".{dest.name}.{digest}.partial"
        self.data = self.path / "data"
        self.closed = self.path / "closed"
        self.packed = self.path / "packed"
        self._plan = plan
        # A folder of the caller may be temporary: no later call could find the files beside it.
        self._is_kept = not dest.is_dir() or any(dest.iterdir())

    @property
    def kept(self) -> str:
        """The sentence of error messages about the finished chunks of an interrupted run."""
        if self._is_kept:
            return f"Finished chunks are kept in {self.path}; the same call resumes from there."
        return f"Nothing is kept, because the folder {self.dest} existed before."

    def mark(self, number: int) -> Path:
        """Return the file that marks a task as done."""
        return self.path / "parts" / f"{number}.done"

    def part(self, number: int) -> Path:
        """Return the folder for the text and the frames of a task's rows."""
        return self.path / "parts" / str(number)

    def prepare(self, run: PreprocessRun) -> None:
        """Create the folder, or keep that of a killed run of the same plan; delete other runs."""
        # Only runs of this destination: the lock of out does not protect runs of out.v2.
        for other in runs_to(self.dest):
            if other != self.path:
                shutil.rmtree(other, ignore_errors=True)
        plan = self.path / PLAN
        if plan.is_file() and plan.read_bytes() == self._plan:
            return
        shutil.rmtree(self.path, ignore_errors=True)
        columns, frames = run.columns, run.first_frames()
        total = run.result_bytes(frames)
        # Packed files are written next to their source files.
        needed = total if columns.layout == "ted" else 2 * total
        check_free_space(self.dest.parent, needed, str(self.dest))
        with disk_errors(self.path):
            self.mark(0).parent.mkdir(parents=True)
            if frames:
                begin_frames(self.packed, columns.frames, frames)
            for column in columns.leaves:
                if column.row_bytes:
                    path = self.data / column.filename
                    with one_file_each(path, column.key):
                        path.parent.mkdir(parents=True, exist_ok=True)
                        allocate(path, column.row_bytes * run.num_rows)
            plan.write_bytes(self._plan)

    def discard_unusable(self) -> None:
        """Delete the folder of a failed run, unless a later call can continue it."""
        if not self._is_kept or not any(self.path.glob("parts/*.done")):
            shutil.rmtree(self.path, ignore_errors=True)
