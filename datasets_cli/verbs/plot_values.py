"""The values of charts, from the tables of trajectories and the statistics of columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from datasets_cli.core.progress import silent
from datasets_cli.errors import UnknownKey, UsageError
from datasets_cli.preprocessing.columns import KnownColumns
from datasets_cli.project.statistics import (
    load_measures,
    make_tables,
    measured,
    sampled_rows,
    trajectory_columns,
)
from datasets_cli.schema.column_statistics import MEASURES
from datasets_cli.schema.columns import REWARD, Key, show_key
from datasets_cli.store.arrays import DatasetArrays, plain_numbers
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.verbs.chart import Chart, Series

MOST_BARS = 50
MOST_NUMBERS = 250
"""Maximum numbers of a row that are drawn separately; more are joined."""

LARGEST_WHOLE = 2.0**50
LARGEST = 1e300
"""The largest value that is plotted: margins and bins around it stay finite."""

ENDS = ("terminated", "truncated", "both", "neither")
SPREAD = "thin: all, thick: 80 %, dash: median"


def chart_of(kind: str | None, datasets: Sequence[DatasetArrays], root: CacheRoot) -> Chart:
    """Return the numbers of a plot; missing tables are computed and cached."""
    if kind is None and (
        without := [each.id for each in datasets if not each.manifest.has_rewards]
    ):
        note = f"lengths instead of returns: {' and '.join(without)} without rewards"
        chart = chart_of("lengths", datasets, root)
        return replace(chart, notes=(note, *chart.notes))
    kind = kind or "returns"
    if kind == "ends":
        return _ends(datasets, root)
    if kind in ("returns", "reward"):
        for each in datasets:
            each.manifest.check_rewards(f"a plot of {kind}")
    if kind in ("returns", "lengths"):
        values = [_of_trajectories(each, kind[:-1], root) for each in datasets]
        return _histogram(kind, kind[:-1], "trajectories", datasets, values)
    key = REWARD if kind == "reward" else (kind[:-1],)
    if kind == "observations" or not all(_has_one_number(each, key) for each in datasets):
        return _spread(kind, key[0], datasets, root)
    values = [_sampled(each, key) for each in datasets]
    return _histogram(kind, key[-1], "transitions", datasets, values)


def _of_trajectories(dataset: DatasetArrays, name: str, root: CacheRoot) -> np.ndarray:
    columns = trajectory_columns(dataset, root)
    if name not in columns:
        known = ", ".join(columns)
        raise UnknownKey(
            f"The trajectories of {dataset.id} have no {name}; they have {known}.",
            argument="kind",
            id=dataset.id,
            key=name,
            expected=[*columns],
            found=name,
        )
    return columns[name]


def _ends(datasets: Sequence[DatasetArrays], root: CacheRoot) -> Chart:
    """Return the number of trajectories by the flags of their last rows."""
    series, edges = [], tuple(place - 0.5 for place in range(len(ENDS) + 1))
    for each in datasets:
        terminated, truncated = (
            flags.reshape(len(flags), -1).any(1)
            for flags in (_of_trajectories(each, name, root) for name in ENDS[:2])
        )
        both = terminated & truncated
        ways = terminated & ~both, truncated & ~both, both, ~(terminated | truncated)
        series.append(Series(each.id, edges, tuple(int(way.sum()) for way in ways)))
    return _chart("ends", "last row", "trajectories", series, ENDS)


def _chart(
    kind: str,
    x: str,
    y: str,
    series: Sequence[Series],
    labels: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> Chart:
    y = f"% of {y}" if series[1:] and series[0].counts else y
    return Chart(kind, x, y, tuple(series), tuple(labels), tuple(notes))


def _has_one_number(dataset: DatasetArrays, key: Key) -> bool:
    """Return whether a column has one number per row; rewards may have several."""
    columns = (each for each in measured(dataset.manifest) if each.key == key)
    return any(key == REWARD or math.prod(each.shape) == 1 for each in columns)


def _sampled(dataset: DatasetArrays, key: Key) -> np.ndarray:
    """Return the sampled rows of a column."""
    read = dataset.arrays_of(frozenset({key})).gather(sampled_rows(dataset.manifest))
    numbers = plain_numbers(read[key])
    assert numbers is not None, "a measured column has numbers"
    return numbers


def _histogram(
    kind: str, x: str, y: str, datasets: Sequence[DatasetArrays], values: Sequence[np.ndarray]
) -> Chart:
    """Return the number of values in each bin; all datasets have the same bins."""
    finite = [each[np.isfinite(each)].astype(np.float64) for each in values]
    series, notes = [], []
    for dataset, known in zip(datasets, finite, strict=True):
        _check_any(dataset, kind, known.size)
    edges, labels = _bins(np.concatenate(finite))
    for dataset, every, known in zip(datasets, values, finite, strict=True):
        counts = np.histogram(known, edges)[0]
        series.append(Series(dataset.id, tuple(edges.tolist()), tuple(counts.tolist())))
        if y == "transitions" and len(every) < len(dataset):
            sample = f"a sample of {len(every):,} of {len(dataset):,} transitions"
            notes.append(f"{dataset.id}: {sample}")
        if left_out := every.size - known.size:
            notes.append(f"{dataset.id}: {left_out:,} of {every.size:,} values are not finite")
    return _chart(kind, x, y, series, labels, notes)


def _check_any(dataset: DatasetArrays, kind: str, num_values: int) -> None:
    if not num_values:
        raise UsageError(
            f"Nothing to plot: {dataset.id} has no finite {kind}.",
            argument="kind",
            id=dataset.id,
            found=kind,
        )


def _bins(values: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Return the edges of bins, and their labels if each contains one whole number."""
    low, high = float(values.min()), float(values.max())
    _check_span(low, high)
    is_whole = max(-low, high) < LARGEST_WHOLE and not (values % 1).any()
    if is_whole and high - low < MOST_BARS:
        return np.arange(low, high + 2) - 0.5, [f"{low + k:g}" for k in range(int(high - low) + 1)]
    if low == high:
        half = max(0.5, abs(low) / 1000)
        return np.array([low - half, high + half]), []
    return np.linspace(low, high, min(MOST_BARS, math.isqrt(len(values)) + 1) + 1), []


def _check_span(low: float, high: float) -> None:
    if max(-low, high) > LARGEST:
        raise UsageError(
            f"Values from {low:g} to {high:g} cannot be plotted; expected magnitudes of at most "
            f"{LARGEST:g}.",
            expected=LARGEST,
            found=(low, high),
            advice="See: rlds stats",
        )


def _spread(kind: str, name: str, datasets: Sequence[DatasetArrays], root: CacheRoot) -> Chart:
    """Return the ranges of the numbers of a part of a row, from cached statistics."""
    several = [_measures_below(each, name, root) for each in datasets]
    most = max(measures.shape[1] for measures in several)
    step, series, notes = -(-most // MOST_NUMBERS), [], []
    for dataset, measures in zip(datasets, several, strict=True):
        of = dict(zip(MEASURES, measures, strict=True))
        firsts = np.arange(0, measures.shape[1], step)
        least = [np.fmin.reduceat(of[each], firsts) for each in ("min", "q10")]
        most_of = [np.fmax.reduceat(of[each], firsts) for each in ("q90", "max")]
        rows = np.stack([*least, of["q50"][firsts], *most_of], 1)
        counts = {name: int(of[name].sum()) for name in ("count", "nan", "infinite")}
        _check_any(dataset, kind, counts["count"])
        _check_span(np.nanmin(of["min"]), np.nanmax(of["max"]))
        known = np.isfinite(rows).all(1)
        quantiles = tuple(map(tuple, rows[known].tolist()))
        series.append(Series(dataset.id, tuple(firsts[known].tolist()), (), quantiles))
        if left_out := counts["nan"] + counts["infinite"]:
            total = left_out + counts["count"]
            notes.append(f"{dataset.id}: {left_out:,} of {total:,} values are not finite")
    if step > 1:
        notes.append(f"{most:,} numbers are joined by {step}: all of them, the first one's median")
    return _chart(kind, f"number of the {name}", SPREAD, series, (), notes)


def _measures_below(dataset: DatasetArrays, name: str, root: CacheRoot) -> np.ndarray:
    """Return ``MEASURES`` of all numbers at and below a key ``[13, size]``."""
    manifest = dataset.manifest
    columns = [each for each in measured(manifest) if each.key[0] == name and 0 not in each.shape]
    if not columns:
        keys = KnownColumns(manifest).of(name, "kind")
        types = ", ".join(
            f"{show_key(each.key)} {each.dtype}"
            for each in manifest.all_columns
            if each.key in keys
        )
        raise UsageError(
            f"Nothing to plot: {name} of {dataset.id} has no numeric column: {types}.",
            id=dataset.id,
            key=name,
            advice="For frames, see: rlds render",
        )
    if (measures := load_measures(manifest, root)) is None:
        _, measures = make_tables(dataset, root, silent)
    return np.hstack([measures[show_key(each.key)] for each in columns])
