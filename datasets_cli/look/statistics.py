"""Statistics of all columns of a dataset, worked out in one pass and kept among its tables.

statistics.array    float64 [13, numbers of a row]: ``MEASURES`` of each, column after column
statistics.json     a summary of a few kilobytes: each column as a whole; NaN is null

Quantiles are of a sample of rows, and frames are measured by a sample: both are drawn by the
dataset's content, so that they are the same wherever the data are the same.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from datasets_cli.look.column_statistics import MEASURES, ColumnStatistics
from datasets_cli.look.summary import TABLE, VERSION
from datasets_cli.progress import Progress, Silent
from datasets_cli.replay.trajectories.reductions import AS_FLOAT32, block_dtype
from datasets_cli.replay.trajectories.table import Trajectories
from datasets_cli.schema.columns import Column, rows_per_block, show_key
from datasets_cli.schema.tree import entry
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.dataset import Dataset
from datasets_cli.store.layouts.records import is_frame
from datasets_cli.store.tables import map_array, save_table, write_array

SAMPLED_ROWS = 100_000
SAMPLED_BYTES = 256 << 20
SAMPLED_FRAMES = 1_000
ESTIMATED_ROWS = 2_048
CHANNELS = (1, 3, 4)
"""Sizes of a last or first dimension of frames that is one of channels."""


def load_measures(dataset: Dataset, root: CacheRoot) -> dict[str, np.ndarray] | None:
    """Return ``MEASURES`` of each number ``[13, size]`` by column; None where there are none."""
    columns = measured(dataset)
    sizes = [math.prod(column.shape) for column in columns]
    shape = len(MEASURES), sum(sizes)
    array = map_array(root, dataset.manifest.content, TABLE, np.dtype(np.float64), shape)
    if array is None:
        return None
    parts = np.split(array, np.cumsum(sizes)[:-1], axis=1)
    return {show_key(column.key): part for column, part in zip(columns, parts, strict=True)}


def measured(dataset: Dataset) -> list[Column]:
    """Return the columns that are measured number by number: those of real numbers but frames."""
    return [
        column
        for column in dataset.manifest.columns
        if (dtype := block_dtype(column)) is not None
        and dtype.kind != "c"
        and not _is_frame(column)
    ]


def table_bytes(dataset: Dataset) -> int:
    """Return about how many bytes the tables of a dataset take."""
    num_numbers = sum(math.prod(column.shape) for column in measured(dataset))
    return 8 * (len(MEASURES) * num_numbers + 4 * dataset.num_trajectories) + 8192


def seconds_for(dataset: Dataset) -> float:
    """Return about how long making the tables takes, by the time that some rows take."""
    num_rows = min(len(dataset), ESTIMATED_ROWS)
    began = time.perf_counter()
    _pass_over(dataset, Silent(), num_rows)
    return (time.perf_counter() - began) * len(dataset) / num_rows


def make_tables(dataset: Dataset, root: CacheRoot, progress: Progress) -> dict[str, Any]:
    """Work out and keep the tables of a dataset: its trajectories, its columns, their summary."""
    table = Trajectories(_Holder(dataset), root)
    trajectories = {name: table[name] for name in table}
    statistics = _pass_over(dataset, progress, len(dataset))
    content = dataset.manifest.content
    measures = {column: each.measures() for column, each in statistics.items()}
    array = np.hstack([np.zeros((len(MEASURES), 0)), *measures.values()])
    write_array(root, content, TABLE, array.dtype, array.shape, [(0, array)])
    summary = {
        "version": VERSION,
        "num_transitions": len(dataset),
        "sampled_rows": len(_sample(dataset, _num_sampled(dataset))),
        "columns": {
            show_key(column.key): _summary(measures[column], each)
            for column, each in statistics.items()
        },
        "frames": {
            show_key(column.key): _frames(dataset, column)
            for column in dataset.manifest.columns
            if _is_frame(column)
        },
        "trajectories": {
            name: _summary(each.measures(), each)
            for name, each in _of_trajectories(trajectories).items()
        },
    }
    # Last: who finds it finds the arrays.
    save_table(root, content, TABLE, summary)
    return summary


class _Holder:
    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset


def _pass_over(
    dataset: Dataset, progress: Progress, num_rows: int
) -> dict[Column, ColumnStatistics]:
    """Return statistics of the first rows of each measured column."""
    columns = measured(dataset)
    rows = dataset.rows_of(frozenset(column.key for column in columns))
    statistics = {column: ColumnStatistics(math.prod(column.shape)) for column in columns}
    sample = _sample(dataset, _num_sampled(dataset))
    step = rows_per_block(sum(column.row_bytes for column in dataset.manifest.columns))
    for start in range(0, num_rows if columns else 0, step):
        stop = min(start + step, num_rows)
        first, end = np.searchsorted(sample, (start, stop))
        tree = rows.gather(torch.arange(start, stop))
        for column, each in statistics.items():
            each.add(_numbers(entry(tree, column.key), column), sample[first:end] - start)
        progress.writing(stop)
    return statistics


def _numbers(leaf: torch.Tensor, column: Column) -> np.ndarray:
    """Return rows of a leaf as ``[n, numbers of a row]``, in a type that numpy has."""
    values = leaf.float() if column.dtype in AS_FLOAT32 else leaf
    flat: np.ndarray = values.cpu().numpy().reshape(len(leaf), math.prod(column.shape))
    return flat


def _is_frame(column: Column) -> bool:
    return is_frame(column.dtype, column.shape)


def _num_sampled(dataset: Dataset) -> int:
    """Return how many rows quantiles are taken of, so that all of them fit into memory."""
    row_bytes = sum(8 * math.prod(column.shape) for column in measured(dataset))
    return min(SAMPLED_ROWS, SAMPLED_BYTES // max(1, row_bytes))


def _sample(dataset: Dataset, size: int) -> np.ndarray:
    """Return rows drawn by the dataset's content without replacement, in order, int64 ``[n]``."""
    num_rows = len(dataset)
    if num_rows <= size:
        return np.arange(num_rows)
    generator = np.random.default_rng(int(dataset.manifest.content, 16))
    return np.sort(generator.choice(num_rows, size, replace=False, shuffle=False))


def _summary(measures: np.ndarray, statistics: ColumnStatistics) -> dict[str, Any]:
    """Return the measures of a column as a whole: of all its numbers together."""
    named = dict(zip(MEASURES, measures, strict=True))
    count, mean = named["count"], named["mean"]
    total = count.sum()
    summary: dict[str, Any] = {
        "count": int(total),
        "mean": _joined(mean, count),
        "std": None,
        "min": _finite(np.nanmin, named["min"]),
        "max": _finite(np.nanmax, named["max"]),
        "nan": int(named["nan"].sum()),
        "infinite": int(named["infinite"].sum()),
        "constant": bool(named["constant"].all()) and measures.shape[1] > 0,
    }
    if summary["mean"] is not None:
        # The variance of all is that within each number and that of their means.
        variance = named["std"] ** 2 + (mean - summary["mean"]) ** 2
        joined = _joined(variance, count)
        summary["std"] = None if joined is None else math.sqrt(joined)
    quantiles = statistics.quantiles().tolist()
    summary["quantiles"] = [None if math.isnan(value) else value for value in quantiles]
    if (distinct := statistics.distinct) is not None:
        summary["distinct"] = [[value, number] for value, number in distinct.items()]
    return summary


def _joined(values: np.ndarray, count: np.ndarray) -> float | None:
    """Return the mean of values, weighted by counts; None where it is not finite."""
    known = count > 0
    if not known.any():
        return None
    mean = float(np.average(values[known], weights=count[known]))
    return mean if math.isfinite(mean) else None


def _finite(reduce: Callable[[np.ndarray], Any], values: np.ndarray) -> float | None:
    return None if np.isnan(values).all() else float(reduce(values))


def _of_trajectories(columns: Mapping[str, np.ndarray]) -> dict[str, ColumnStatistics]:
    """Return statistics of the columns of a table of trajectories that are not numbers of it."""
    found = {}
    for name, values in columns.items():
        if name not in ("number", "start"):
            found[name] = ColumnStatistics(math.prod(values.shape[1:]))
            found[name].add(values.reshape(len(values), -1), np.arange(len(values)))
    return found


def _frames(dataset: Dataset, column: Column) -> dict[str, Any]:
    """Return mean and deviation of each channel, of a sample of frames."""
    rows, shape = dataset.rows_of(frozenset([column.key])), column.shape
    sample = torch.from_numpy(_sample(dataset, SAMPLED_FRAMES))
    axis = _channel_axis(shape)
    num_channels = 1 if axis is None else shape[axis]
    sums = np.zeros((2, num_channels))
    for part in sample.split(rows_per_block(column.row_bytes)):
        frames = entry(rows.gather(part), column.key).cpu().numpy()
        # [n, ..., channels], and all pixels of a channel in one column.
        by_channel = frames[..., None] if axis is None else np.moveaxis(frames, axis + 1, -1)
        pixels = by_channel.reshape(-1, num_channels).astype(np.float64)
        sums += pixels.sum(0), (pixels**2).sum(0)
    mean, square = sums / (len(sample) * math.prod(shape) / num_channels)
    deviation = np.sqrt(np.maximum(square - mean**2, 0))
    return {"sampled": len(sample), "mean": mean.tolist(), "std": deviation.tolist()}


def _channel_axis(shape: tuple[int, ...]) -> int | None:
    """Return which dimension of a frame is one of channels, if any."""
    if len(shape) < 3:
        return None
    return next((axis for axis in (-1, 0) if shape[axis] in CHANNELS), None)
