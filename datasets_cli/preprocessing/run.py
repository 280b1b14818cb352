"""A run: the rows that it reads, their chunks, the function, and the columns of the result."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from itertools import pairwise

import numpy as np

from datasets_cli.errors import EmptyBuffer, RldsError, UsageError, WrongRows, WrongSize, argument
from datasets_cli.parallel.workers import pickle_by_value
from datasets_cli.preprocessing.frames import Frames, check_chained, ends_of_kept
from datasets_cli.preprocessing.function import RowFunction, identity_of
from datasets_cli.preprocessing.mapping import PipelineFunction, RowByRow
from datasets_cli.preprocessing.options import PreprocessOptions
from datasets_cli.preprocessing.origin import origin_of, rows_of_task
from datasets_cli.preprocessing.pipeline import Pipeline
from datasets_cli.preprocessing.returned import (
    ROW_KEY,
    ResultColumns,
    Returned,
    difference_of,
)
from datasets_cli.preprocessing.task import (
    Mapped,
    PreprocessTask,
    apply,
    check_columns,
    result_of,
    rows_named,
)
from datasets_cli.preprocessing.work import Work
from datasets_cli.schema.texts import is_text
from datasets_cli.schema.trajectories import first_rows
from datasets_cli.store.dataset import Dataset
from datasets_cli.store.layouts.frames import SAMPLED_FRAMES

COMPARED_ROWS = 16_384
"""At most so many rows of the first chunk are computed twice, as a function may be slow."""
PER_TRAJECTORY, PER_ROW, PER_CHUNK = '"trajectory"', '"transition"', '"chunk"'


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
    def _by_trajectory(self) -> bool:
        # A pipeline separates trajectories itself.
        return self.options.per == "trajectory" and not isinstance(self._mapped, Pipeline)

    @property
    def num_trajectories(self) -> int:
        """The number of trajectories that are read; ``num_frames`` may cut the last one."""
        return len(self.offsets) - 1

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

    def probe(self) -> ResultColumns:
        """Call the function with the first rows; return the columns of the result."""
        # A function that drops some of these rows, or reads their numbers, gets the numbers of all
        # rows from then on.
        is_numbered = False
        first = 2 if self.options.per == "transition" else int(self.offsets[1])
        for bounds in [(0, min(first, self.num_rows)), *self.bounds]:
            returned, is_numbered = self._try(*bounds, is_numbered)
            # Of an empty result tensordict knows the shape of numbers, and not that of text.
            if not (returned.is_empty and any(map(is_text, returned.rows.values()))):
                break
        self._compare_chunk(is_numbered)
        return ResultColumns.of(returned, is_numbered, self.layout)

    def _compare_chunk(self, is_numbered: bool) -> None:
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
        # The tasks compare the results of the same rows with their input.
        call = partial(result_of, seed=self.options.seed, by_trajectory=False)
        together, is_numbered = self._try(start, stop, is_numbered, call)
        alone, _ = self._try(start, stop, is_numbered, partial(call, by_trajectory=True))
        if not (difference := difference_of(together, alone, stop - start)):
            return
        # With another seed, a function that draws with torch's gives other values, too.
        other_seed = partial(call, seed=self.options.seed + 1)
        again, _ = self._try(start, stop, is_numbered, other_seed)
        if difference_of(together, again, stop - start):
            self.notes += ("the function is random: the same rows gave other values",)
            return
        row, name, one, other = difference
        raise WrongRows(
            f"The function mixes trajectories: in row {start + row}, {name} is {one} when it gets "
            f"{rows_named(self.dataset, start, stop)} together, and {other} when it gets each "
            "trajectory alone.",
            argument="per",
            key=name,
            row=start + row,
            expected=other,
            found=one,
            advice=f"Pass {argument('per', PER_TRAJECTORY)}, or split the rows by episode in the "
            "function.",
        )

    def first_frames(self, columns: ResultColumns) -> Frames:
        """Return the frames of the result for the first rows, which must be chained."""
        if not columns.frames:
            return {}
        stop = min(SAMPLED_FRAMES, self.num_rows)
        if self.options.per != "transition":
            stop = int(self.offsets[np.searchsorted(self.offsets, stop, side="left")])
        returned, _ = self._try(0, stop, columns.is_numbered)
        check_columns(returned, columns, self.dataset, 0, stop, 0)
        is_end = ends_of_kept(self.offsets, 0, stop, returned.kept)
        check_chained(columns.frames, returned.rows, is_end, returned.numbers(0, stop))
        keys = {field.column.key for field in columns.frames}
        return {key: rows[:SAMPLED_FRAMES] for key, rows in returned.rows.items() if key in keys}

    def _try(
        self, start: int, stop: int, is_numbered: bool, call: Callable[..., Returned] | None = None
    ) -> tuple[Returned, bool]:
        """Return the result for some rows, and whether the function gets their numbers."""
        call = call or partial(
            apply,
            seed=self.options.seed,
            any_order=self.options.order == "any",
            by_trajectory=self._by_trajectory,
        )
        tried = partial(call, self.dataset, self.function, start=start, stop=stop)
        if not is_numbered:
            try:
                returned = tried()
                return returned, returned.kept is not None
            except UsageError:
                raise
            except RldsError:  # it may have read the numbers; otherwise it fails again
                if ROW_KEY in self.dataset.keys:
                    raise
        return tried(is_numbered=True), True

    def tasks(
        self, work: Work, columns: ResultColumns, *, elsewhere: bool
    ) -> Iterator[PreprocessTask]:
        """Yield the tasks that are not done; ``elsewhere`` for workers with another Python path."""
        pickled, selection = pickle_by_value(self.function, elsewhere), self.dataset.selection
        for number, (start, stop) in enumerate(self.bounds):
            mark = work.mark(number)
            if not mark.exists():
                yield PreprocessTask(
                    data=work.data,
                    packed=work.packed,
                    mark=mark,
                    part=work.part(number),
                    start=start,
                    stop=stop,
                    seed=self.options.seed,
                    function=pickled,
                    columns=columns,
                    selection=selection.rows(start, stop) if selection else None,
                    any_order=self.options.order == "any",
                    by_trajectory=self._by_trajectory,
                )


MAX_TRAJECTORY_BYTES = 1 << 30
"""The limit on the rows of one trajectory, which a function gets together.

The longest trajectory of an Atari run, half an hour of play, takes 0.4 GB.
"""


def chunk_bounds(
    offsets: np.ndarray, task_rows: int, row_bytes: int, per: str, id: str
) -> list[tuple[int, int]]:
    """Return the first row of every chunk and one past its last; together they are all rows."""
    # offsets: of the trajectories, int64 `[K + 1]`.
    num_rows = int(offsets[-1])
    if per == "transition":
        starts = range(0, num_rows, task_rows)
        return [(start, min(start + task_rows, num_rows)) for start in starts]
    _refuse_long(offsets, row_bytes, id)
    bounds = [0]
    while bounds[-1] < num_rows:
        # Up to the first end at or after the wanted row; the last end is num_rows.
        wanted = min(bounds[-1] + task_rows, num_rows)
        bounds.append(int(offsets[np.searchsorted(offsets, wanted, side="left")]))
    return list(pairwise(bounds))


def _refuse_long(offsets: np.ndarray, row_bytes: int, id: str) -> None:
    lengths = np.diff(offsets)
    longest = int(lengths.argmax())
    size = int(lengths[longest]) * row_bytes
    if size > MAX_TRAJECTORY_BYTES:
        raise WrongSize(
            f"Trajectory {longest} of {id} is too long for a function to take at once: it has "
            f"{lengths[longest]} rows of {row_bytes} bytes, {size / 1e9:.1f} GB, and the limit is "
            f"{MAX_TRAJECTORY_BYTES / 1e9:.1f} GB.",
            argument="per",
            id=id,
            expected=MAX_TRAJECTORY_BYTES,
            found=size,
            advice=f"If the function reads single rows, pass {argument('per', PER_ROW)}, which "
            "cuts trajectories.",
        )
