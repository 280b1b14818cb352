"""Statistics of all columns of a dataset, computed in one pass and stored among its tables.

statistics.array    float64 [13, numbers of a row]: ``MEASURES`` of each, column after column
statistics.json     a summary of a few kilobytes: each column as a whole; NaN is null

Quantiles and frames are measured in samples of rows. The dataset's content seeds the samples, so
equal data have equal statistics.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from datasets_cli.core.progress import Progress, Rows
from datasets_cli.errors import DiskFull
from datasets_cli.replay.trajectories.trajectory_table import TEXTS, Trajectories, block_dtype
from datasets_cli.schema.column_statistics import MEASURES, ColumnStatistics
from datasets_cli.schema.columns import Column, rows_per_block, show_key
from datasets_cli.store.arrays import ArraySource, plain_numbers
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.layouts.records import is_frame
from datasets_cli.store.manifest import Manifest
from datasets_cli.store.tables import (
    STATISTICS,
    STATISTICS_VERSION,
    map_array,
    save_table,
    write_array,
)

logger = logging.getLogger(__name__)

SAMPLED_ROWS = 100_000
SAMPLED_BYTES = 256 << 20
SAMPLED_FRAMES = 1_000
ESTIMATED_ROWS = 2_048
PART_ROWS = 1 << 20
PART_BYTES = 256 << 20
CHANNELS = (1, 3, 4)
"""Numbers of channels, by which the last or the first dimension of a frame is recognized."""


def load_measures(manifest: Manifest, root: CacheRoot) -> dict[str, np.ndarray] | None:
    """Return the stored ``MEASURES`` of each number ``[13, size]`` by column, or None."""
    columns = measured(manifest)
    sizes = [math.prod(column.shape) for column in columns]
    shape = len(MEASURES), sum(sizes)
    array = map_array(root, manifest.content, STATISTICS, np.dtype(np.float64), shape)
    if array is None:
        return None
    parts = np.split(array, np.cumsum(sizes)[:-1], axis=1)
    return {show_key(column.key): part for column, part in zip(columns, parts, strict=True)}


def measured(manifest: Manifest) -> list[Column]:
    """Return the columns of real numbers, without frames: they are measured number by number."""
    return [
        column
        for column in manifest.columns
        if (dtype := block_dtype(column)) is not None
        and dtype.kind != "c"
        and not _is_frame(column)
    ]


def table_bytes(manifest: Manifest) -> int:
    """Return the approximate size of the tables of a dataset."""
    num_numbers = sum(math.prod(column.shape) for column in measured(manifest))
    return 8 * (len(MEASURES) * num_numbers + 4 * manifest.num_trajectories) + 8192


def seconds_for(dataset: ArraySource) -> float:
    """Return the approximate time of making the tables, extrapolated from some rows."""
    num_rows = min(len(dataset), ESTIMATED_ROWS)
    began = time.perf_counter()
    RowStatistics(dataset, range(num_rows))
    return (time.perf_counter() - began) * len(dataset) / num_rows


def parts_of(manifest: Manifest) -> list[range]:
    """Return the parts of the rows whose statistics are computed separately and then joined."""
    num_rows, row_bytes = manifest.num_transitions, _row_bytes(manifest)
    step = max(1, min(PART_ROWS, PART_BYTES // max(1, row_bytes)))
    return [range(start, min(start + step, num_rows)) for start in range(0, num_rows, step)]


class RowStatistics:
    """The statistics of consecutive rows: of columns, and sums of the sampled frames."""

    def __init__(self, dataset: ArraySource, rows: range) -> None:
        manifest = dataset.manifest
        self.rows = rows
        self.columns: dict[Column, ColumnStatistics] = {}
        sample = sampled_rows(manifest)
        columns = measured(manifest)
        reader = dataset.arrays_of(frozenset(column.key for column in columns))
        step = rows_per_block(_row_bytes(manifest))
        for start in rows[::step] if columns else ():
            stop = min(start + step, rows.stop)
            read = reader.run(start, stop)
            sampled = _within(sample, range(start, stop)) - start
            for column in columns:
                block = ColumnStatistics(_numbers(read[column.key]), sampled)
                if column in self.columns:
                    self.columns[column].join(block)
                else:
                    self.columns[column] = block
        sample = _within(sampled_frames(manifest), rows)
        self.frames = {
            column: _frame_sums(dataset, column, sample)
            for column in manifest.columns
            if _is_frame(column)
        }

    def join(self, following: RowStatistics) -> None:
        """Join the statistics of the following rows."""
        assert following.rows.start == self.rows.stop, "the order of sums decides the last bits"
        self.rows = range(self.rows.start, following.rows.stop)
        for column, each in following.columns.items():
            self.columns[column].join(each)
        for column, sums in following.frames.items():
            self.frames[column] += sums


def make_tables(
    dataset: ArraySource, root: CacheRoot, progress: Progress, *, again: bool = False
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Compute the summary and the measures of a dataset, and store them if there is room."""
    manifest = dataset.manifest
    for folder in root.tables_to_read(manifest.content) if again else ():
        for path in folder.glob("trajectories-*.array"):
            path.unlink(missing_ok=True)
    progress(Rows(dataset.id, 0, len(dataset)))
    joined: RowStatistics | None = None
    for rows in parts_of(manifest):
        part = RowStatistics(dataset, rows)
        if joined is None:
            joined = part
        else:
            joined.join(part)
        progress(Rows(dataset.id, rows.stop, len(dataset)))
    assert joined is not None, "a dataset has rows"
    measures = {show_key(column.key): each.measures() for column, each in joined.columns.items()}
    try:
        return save_statistics(dataset, root, joined), measures
    except (OSError, DiskFull) as error:
        logger.warning("%s: the statistics are not kept (%s)", dataset.id, error)
        return summary_of(dataset, root, joined), measures


def save_statistics(
    dataset: ArraySource, root: CacheRoot, statistics: RowStatistics
) -> dict[str, Any]:
    """Store the statistics of all rows of a dataset with their summary; return the summary."""
    content = dataset.manifest.content
    measures = [each.measures() for each in statistics.columns.values()]
    array = np.hstack([np.zeros((len(MEASURES), 0)), *measures])
    write_array(root, content, STATISTICS, array.dtype, array.shape, [(0, array)])
    summary = summary_of(dataset, root, statistics)
    # Last, so the arrays exist once it does.
    save_table(root, content, STATISTICS, summary)
    return summary


def summary_of(dataset: ArraySource, root: CacheRoot, statistics: RowStatistics) -> dict[str, Any]:
    """Return the summary of the statistics of all rows of a dataset, and of its trajectories."""
    manifest, num_frames = dataset.manifest, len(sampled_frames(dataset.manifest))
    return {
        "version": STATISTICS_VERSION,
        "content": manifest.content,
        "num_transitions": len(dataset),
        "sampled_rows": len(sampled_rows(manifest)),
        "columns": {
            show_key(column.key): _summary(each.measures(), each)
            for column, each in statistics.columns.items()
        },
        "frames": {
            show_key(column.key): _of_frames(column, sums, num_frames)
            for column, sums in statistics.frames.items()
        },
        "trajectories": {
            name: _summary(each.measures(), each)
            for name, each in _of_trajectories(trajectory_columns(dataset, root)).items()
        },
    }


class _Holder(NamedTuple):
    dataset: ArraySource


def trajectory_columns(dataset: ArraySource, root: CacheRoot) -> dict[str, np.ndarray]:
    """Compute and store the columns of numbers of the table of trajectories; return them."""
    table = trajectory_table(dataset, root)
    return {name: table[name] for name in table if name not in TEXTS}


def trajectory_table(dataset: ArraySource, root: CacheRoot | None) -> Trajectories:
    """Return the table of trajectories, cached on disk below the root if there is one."""
    return Trajectories(_Holder(dataset), root)


def _numbers(rows: np.ndarray) -> np.ndarray:
    """Return rows as ``[n, numbers of a row]``, in a dtype of numpy."""
    numbers = plain_numbers(rows)
    assert numbers is not None, "a measured column has numbers"
    return numbers.reshape(len(rows), -1)


def _row_bytes(manifest: Manifest) -> int:
    return sum(column.row_bytes for column in manifest.columns)


def _is_frame(column: Column) -> bool:
    return is_frame(column.dtype, column.shape)


def sampled_rows(manifest: Manifest) -> np.ndarray:
    """Return the rows of which quantiles are computed, as many as fit in memory, int64 ``[n]``."""
    row_bytes = sum(8 * math.prod(column.shape) for column in measured(manifest))
    return _sample(manifest, min(SAMPLED_ROWS, SAMPLED_BYTES // max(1, row_bytes)))


def sampled_frames(manifest: Manifest) -> np.ndarray:
    """Return the rows whose frames are measured, int64 ``[n]``."""
    return _sample(manifest, SAMPLED_FRAMES)


def _sample(manifest: Manifest, size: int) -> np.ndarray:
    """Return rows drawn by the dataset's content without replacement, in order, int64 ``[n]``."""
    num_rows = manifest.num_transitions
    if num_rows <= size:
        return np.arange(num_rows)
    generator = np.random.default_rng(int(manifest.content, 16))
    return np.sort(generator.choice(num_rows, size, replace=False, shuffle=False))


def _within(sample: np.ndarray, rows: range) -> np.ndarray:
    """Return the sampled rows within consecutive rows."""
    first, end = np.searchsorted(sample, (rows.start, rows.stop))
    return sample[first:end]


@np.errstate(all="ignore")  # deviations of the largest numbers are infinite, and null then
def _summary(measures: np.ndarray, statistics: ColumnStatistics) -> dict[str, Any]:
    """Return the measures of a whole column, over all its numbers."""
    named = dict(zip(MEASURES, measures, strict=True))
    count, mean = named["count"], named["mean"]
    low, high = statistics.range.whole
    summary: dict[str, Any] = {
        "count": int(count.sum()),
        "mean": _joined(mean, count),
        "std": None,
        "min": low,
        "max": high,
        "nan": int(named["nan"].sum()),
        "infinite": int(named["infinite"].sum()),
        "constant": bool(named["constant"].all()) and measures.shape[1] > 0,
    }
    if summary["mean"] is not None:
        # The total variance is that within each number plus that of the means.
        variance = named["std"] ** 2 + (mean - summary["mean"]) ** 2
        joined = _joined(variance, count)
        summary["std"] = None if joined is None else math.sqrt(joined)
    quantiles = statistics.quantiles().tolist()
    summary["quantiles"] = [value if math.isfinite(value) else None for value in quantiles]
    if (distinct := statistics.distinct) is not None:
        summary["distinct"] = [[value, number] for value, number in distinct.items()]
    return summary


def _joined(values: np.ndarray, count: np.ndarray) -> float | None:
    """Return the mean of values, weighted by counts; None if it is not finite."""
    known = count > 0
    if not known.any():
        return None
    mean = float(np.average(values[known], weights=count[known]))
    return mean if math.isfinite(mean) else None


def _of_trajectories(columns: Mapping[str, np.ndarray]) -> dict[str, ColumnStatistics]:
    """Return the statistics of the columns of a table of trajectories, without row numbers."""
    return {
        name: ColumnStatistics(values.reshape(len(values), -1), np.arange(len(values)))
        for name, values in columns.items()
        if name not in ("number", "start")
    }


def _frame_sums(dataset: ArraySource, column: Column, sample: np.ndarray) -> np.ndarray:
    """Return the sums of the pixels and squared pixels of frames by channel, ``[2, c]``."""
    rows = dataset.arrays_of(frozenset([column.key]))
    axis = _channel_axis(column.shape)
    num_channels = 1 if axis is None else column.shape[axis]
    sums = np.zeros((2, num_channels))
    step = rows_per_block(column.row_bytes)
    for start in range(0, len(sample), step):
        frames = rows.gather(sample[start : start + step])[column.key]
        # [n, ..., channels]; then all pixels of a channel in one column.
        by_channel = frames[..., None] if axis is None else np.moveaxis(frames, axis + 1, -1)
        pixels = by_channel.reshape(-1, num_channels).astype(np.float64)
        sums += pixels.sum(0), (pixels**2).sum(0)
    return sums


def _of_frames(column: Column, sums: np.ndarray, num_frames: int) -> dict[str, Any]:
    """Return mean and deviation of each channel of the sampled frames."""
    mean, square = sums / (num_frames * math.prod(column.shape) / sums.shape[1])
    deviation = np.sqrt(np.maximum(square - mean**2, 0))
    return {"sampled": num_frames, "mean": mean.tolist(), "std": deviation.tolist()}


def _channel_axis(shape: tuple[int, ...]) -> int | None:
    """Return the dimension of the channels of a frame, or None."""
    if len(shape) < 3:
        return None
    return next((axis for axis in (-1, 0) if shape[axis] in CHANNELS), None)
