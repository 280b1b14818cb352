"""What charts show, taken from the tables of trajectories and the statistics of columns."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence, Sized
from typing import Any, NamedTuple

import numpy as np

from datasets_cli.errors import UsageError
from datasets_cli.look.plots.chart import Chart, Counts, Spread
from datasets_cli.look.statistics import (
    RowStatistics,
    load_measures,
    measured,
    sampled_rows,
    save_statistics,
    trajectory_columns,
)
from datasets_cli.look.summary import load_summary
from datasets_cli.schema.column_statistics import MEASURES
from datasets_cli.schema.columns import REWARD, Key, show_key
from datasets_cli.schema.texts import AnyColumn, TextColumn
from datasets_cli.store.arrays import DatasetArrays, open_arrays, plain_numbers
from datasets_cli.store.cache_root import CacheRoot

MOST_BARS = 50
MOST_NUMBERS = 250
"""Of a row that are drawn one by one; more are joined, so that no plot has 20,000 points."""

FEW = 16
"""Values that are no whole numbers and yet have a bar each."""

NAMED_COLUMNS = 8
LARGEST_WHOLE = 2.0**50
SPREAD = "thin: all, thick: 80 %, dash: median"
ENDS = ("terminated", "truncated", "both", "neither")


class Tables(NamedTuple):
    """A dataset, and the root that keeps its tables."""

    dataset: DatasetArrays
    root: CacheRoot

    @property
    def id(self) -> str:
        """Its id."""
        return self.dataset.id

    @property
    def summary(self) -> dict[str, Any]:
        """The summary of its statistics, which are made where there are none yet."""
        content = self.dataset.manifest.content
        if (summary := load_summary(self.root, content)) is None:
            rows = RowStatistics(self.dataset, range(len(self.dataset)))
            save_statistics(self.dataset, self.root, rows)
            summary = load_summary(self.root, content)
        assert summary is not None, "they were kept"
        return summary

    def of_trajectories(self, name: str) -> np.ndarray:
        """Return a column of the table of its trajectories."""
        columns = trajectory_columns(self.dataset, self.root)
        if name not in columns:
            raise UsageError(
                f"The trajectories of {self.id} have no {name}. It has: {', '.join(columns)}."
            )
        return columns[name]


def opened(id: str, root: CacheRoot) -> Tables:
    """Open an installed dataset, with what is kept of it."""
    return Tables(open_arrays(root.dataset(id)), root)


def returns(datasets: Sequence[Tables]) -> Chart:
    """Return how many trajectories have which return."""
    values = [each.of_trajectories("return") for each in datasets]
    return _histogram("returns", ("return", "trajectories"), datasets, values)


def lengths(datasets: Sequence[Tables]) -> Chart:
    """Return how many trajectories have which length."""
    values = [each.of_trajectories("length") for each in datasets]
    return _histogram("lengths", ("steps", "trajectories"), datasets, values)


def reward(datasets: Sequence[Tables]) -> Chart:
    """Return how many rows have which reward."""
    if any(_distinct(each, REWARD) is None for each in datasets):
        values = [_sampled_rewards(each) for each in datasets]
        notes = [
            f"{each.id}: a sample of {len(rows):,} of its {len(each.dataset):,} rows"
            for each, rows in zip(datasets, values, strict=True)
            if len(rows) < len(each.dataset)
        ]
        return _histogram("reward", ("reward", "rows"), datasets, values, notes)
    return _of_distinct("reward", "reward", datasets, REWARD)


def actions(datasets: Sequence[Tables]) -> Chart:
    """Return where each number of an action is; of one that has few values, how often each."""
    if all(_distinct(each, ("action",)) is not None for each in datasets):
        return _of_distinct("actions", "action", datasets, ("action",))
    return _spreads("action", datasets)


def observations(datasets: Sequence[Tables]) -> Chart:
    """Return where each number of an observation is."""
    return _spreads("observation", datasets)


def ends(datasets: Sequence[Tables]) -> Chart:
    """Return how many trajectories ended in which way, by the flags of their last row."""
    series = []
    for each in datasets:
        # [K], of flags that may be [K] or, of several agents, [K, n].
        terminated, truncated = (
            flags.reshape(len(flags), -1).any(1)
            for flags in (each.of_trajectories("terminated"), each.of_trajectories("truncated"))
        )
        both = terminated & truncated
        ways = terminated & ~both, truncated & ~both, both, ~(terminated | truncated)
        series.append(Counts(each.id, _places(ENDS), tuple(int(way.sum()) for way in ways)))
    return _chart("ends", ("last row", "trajectories"), series, ENDS)


KINDS: dict[str, Callable[[Sequence[Tables]], Chart]] = {
    each.__name__: each for each in (returns, lengths, reward, actions, observations, ends)
}


def _chart(
    kind: str,
    axes: tuple[str, str],
    series: Sequence[Counts] | Sequence[Spread],
    labels: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> Chart:
    x, y = axes
    y = f"% of {y}" if series[1:] and isinstance(series[0], Counts) else y
    return Chart(kind, x, y, tuple(series), tuple(labels), tuple(notes))


def _places(labels: Sequence[object]) -> tuple[float, ...]:
    """Return the edges of bins that have names."""
    return tuple(place - 0.5 for place in range(len(labels) + 1))


def _distinct(tables: Tables, key: Key) -> dict[float, int] | None:
    """Return how often a column of one number has each of its few values; None of many values."""
    column = next((each for each in tables.dataset.manifest.columns if each.key == key), None)
    if column is None or math.prod(column.shape) != 1:
        return None
    pairs = tables.summary["columns"].get(show_key(key), {}).get("distinct")
    if pairs is None or (
        len(pairs) > FEW and not all(float(value).is_integer() for value, _ in pairs)
    ):
        return None
    return dict(map(tuple, pairs))


def _of_distinct(kind: str, x: str, datasets: Sequence[Tables], key: Key) -> Chart:
    """Return how often each value of a column of few values occurs, counted over all rows."""
    several = {each.id: _distinct(each, key) or {} for each in datasets}
    values = sorted({value for pairs in several.values() for value in pairs})
    _check_any(datasets, kind, [[*pairs] for pairs in several.values()])
    series = [
        Counts(id, _places(values), tuple(pairs.get(value, 0) for value in values))
        for id, pairs in several.items()
    ]
    return _chart(kind, (x, "rows"), series, [f"{value:g}" for value in values])


def _sampled_rewards(tables: Tables) -> np.ndarray:
    """Return the rewards of the rows that the quantiles are of."""
    rows = sampled_rows(tables.dataset.manifest)
    values = plain_numbers(tables.dataset.arrays_of(frozenset({REWARD})).gather(rows)[REWARD])
    assert values is not None, "rewards are numbers"
    return values


def _histogram(
    kind: str,
    axes: tuple[str, str],
    datasets: Sequence[Tables],
    values: Sequence[np.ndarray],
    notes: Sequence[str] = (),
) -> Chart:
    """Return how many values are in each of some bins, which are the same for all datasets."""
    finite = [each[np.isfinite(each)].astype(np.float64) for each in values]
    _check_any(datasets, kind, finite)
    edges = _edges(np.concatenate(finite))
    series, told = [], [*notes]
    for tables, every, known in zip(datasets, values, finite, strict=True):
        counts = np.histogram(known, edges)[0]
        series.append(Counts(tables.id, tuple(edges.tolist()), tuple(counts.tolist())))
        if left_out := every.size - known.size:
            told.append(
                f"{tables.id}: {left_out:,} of {every.size:,} values are not finite, and left out"
            )
        if every.size > len(every):
            told.append(
                f"{tables.id}: each {axes[0]} is {every[0].size} numbers, all of them together"
            )
    return _chart(kind, axes, series, (), told)


def _check_any(datasets: Sequence[Tables], kind: str, finite: Sequence[Sized]) -> None:
    for tables, known in zip(datasets, finite, strict=True):
        if not len(known):
            raise UsageError(
                f"There is nothing to plot: no value for {kind} of {tables.id} is a finite number. "
                "rlds plot --kind has others."
            )


def _edges(values: np.ndarray) -> np.ndarray:
    """Return the edges of bins: of whole numbers around each where they are few."""
    low, high = float(values.min()), float(values.max())
    if not math.isfinite(high - low):
        raise UsageError(f"Values from {low:g} to {high:g} are too far apart to plot.")
    if low == high:
        half = max(0.5, abs(low) / 1000)
        return np.array([low - half, high + half])
    if high - low < MOST_BARS and abs(high) < LARGEST_WHOLE and (values == np.rint(values)).all():
        return np.arange(low, high + 2) - 0.5
    return np.linspace(low, high, min(MOST_BARS, math.isqrt(len(values)) + 1) + 1)


def _spreads(name: str, datasets: Sequence[Tables]) -> Chart:
    """Return where each number of a part of a row is, from the statistics that are kept of it."""
    several = {each.id: _measures_below(each, name) for each in datasets}
    most = max(measures.shape[1] for measures in several.values())
    step = -(-most // MOST_NUMBERS)
    series, notes = [], []
    for tables, measures in zip(datasets, several.values(), strict=True):
        series.append(spread := _spread(tables.id, measures, step))
        if without := -(-measures.shape[1] // step) - len(spread.numbers):
            notes.append(f"{tables.id}: {without} without a finite value are left out")
        notes += _columns_note(tables, name)
    _check_any(datasets, f"{name}s", [each.numbers for each in series])
    if step > 1:
        notes.append(
            f"{most:,} numbers are joined by {step}: least and greatest values, median of medians"
        )
    return _chart(f"{name}s", (f"number of the {name}", SPREAD), series, (), notes)


def _spread(id: str, measures: np.ndarray, step: int) -> Spread:
    """Return the spread of numbers, or of groups of them; of those that have finite values."""
    of = dict(zip(MEASURES, measures, strict=True))
    firsts = np.arange(0, measures.shape[1], step)
    parts = [np.fmin.reduceat(of[name], firsts) for name in ("min", "q10")]
    medians = np.pad(of["q50"], (0, -len(of["q50"]) % step), constant_values=np.nan)
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # all of a group NaN
        parts.append(np.nanmedian(medians.reshape(-1, step), axis=1))
    parts += [np.fmax.reduceat(of[name], firsts) for name in ("q90", "max")]
    known = np.isfinite(parts).all(0)
    return Spread(id, *(tuple(part[known].tolist()) for part in (firsts, *parts)))


def _measures_below(tables: Tables, name: str) -> np.ndarray:
    """Return ``MEASURES`` of all numbers at and below a key ``[13, size]``."""
    manifest = tables.dataset.manifest
    columns = [each for each in measured(manifest) if each.key[0] == name]
    if not any(math.prod(each.shape) for each in columns):
        others = [each for each in (*manifest.columns, *manifest.texts) if each.key[0] == name]
        kinds = ", ".join(
            f"{show_key(each.key)} is {_kind(each)}" for each in others[:NAMED_COLUMNS]
        )
        raise UsageError(
            f"There is nothing to plot: {name} of {tables.id} has no numbers "
            f"({kinds or 'it has no such column'}). rlds render shows frames, rlds peek text."
        )
    assert tables.summary, "the measures are made with it"
    measures = load_measures(tables.dataset, tables.root)
    assert measures is not None, "they were kept"
    return np.hstack([measures[show_key(each.key)] for each in columns])


def _columns_note(tables: Tables, name: str) -> list[str]:
    """Return which numbers are of which column, where there are several."""
    columns = [each for each in measured(tables.dataset.manifest) if each.key[0] == name]
    if not columns[1:]:
        return []
    ends = np.cumsum([math.prod(each.shape) for each in columns]).tolist()
    parts = [
        f"{show_key(each.key)} up to {end - 1}" for each, end in zip(columns, ends, strict=True)
    ]
    more = f", and {len(parts) - NAMED_COLUMNS} more" if parts[NAMED_COLUMNS:] else ""
    return [f"{tables.id}: the numbers are {', '.join(parts[:NAMED_COLUMNS])}{more}"]


def _kind(column: AnyColumn) -> str:
    if isinstance(column, TextColumn):
        return "text"
    return f"{column.dtype} {list(column.shape)}"
