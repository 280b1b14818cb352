"""Curves: the numbers of some columns over the steps of one trajectory, few points of each.

    rows     0 1 2 3 4 5 | 6 7 8 9 a b        of each bucket of rows the lowest, the highest and the
    points   0   2     5 | 6 7       b        first that is not finite, or just the first

A spike of one row stays visible in a trajectory of any length.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image

from datasets_cli.core.checked_json import JsonForm
from datasets_cli.errors import UnknownKey, UsageError
from datasets_cli.project.statistics import measured
from datasets_cli.schema.columns import Column, rows_per_block, show_key
from datasets_cli.store.arrays import DatasetArrays, plain_numbers
from datasets_cli.store.layouts.records import is_frame
from datasets_cli.store.manifest import Manifest
from datasets_cli.ui.local_page import LocalPage
from datasets_cli.verbs.chart import Chart, Series
from datasets_cli.verbs.frames import pictures_of
from datasets_cli.verbs.peek import check_below, trajectory_rows
from datasets_cli.verbs.plot_values import chart_of

MOST_POINTS = 2_000
LEAST_POINTS = 30
POINTS_PER_BUCKET = 3
MOST_NUMBERS = 32
"""Maximum numbers of a row that are drawn, beginning with the first."""
MOST_COLUMNS = 16
MOST_ROWS = 1 << 20
"""Maximum rows that one request reads."""
MOST_VALUES = 1 << 20
"""That are in memory at once."""


@dataclass(frozen=True)
class Curve(JsonForm):
    """One number of a column: some steps of the trajectory, and its value at each."""

    name: str
    steps: list[int]
    values: list[Any]


@dataclass(frozen=True)
class Curves(JsonForm):
    """Curves of the steps ``start`` to ``stop - 1`` of a trajectory, one a number of a column."""

    length: int
    start: int
    stop: int
    columns: dict[str, list[Curve]]
    notes: tuple[str, ...] = ()


def curve_columns(dataset: DatasetArrays) -> dict[str, Column]:
    """Return the columns of measured numbers, which have curves, by name."""
    columns = [each for each in measured(dataset.manifest) if math.prod(each.shape)]
    return {show_key(column.key): column for column in columns}


def curves_of(
    dataset: DatasetArrays,
    trajectory: int,
    names: Sequence[str],
    steps: tuple[int, int | None] = (0, None),
    num_points: int = MOST_POINTS,
) -> Curves:
    """Return curves of some columns of a trajectory, from one step up to another."""
    rows, known = trajectory_rows(dataset, trajectory), curve_columns(dataset)
    if unknown := [name for name in names if name not in known]:
        expected = f"expected some of {', '.join(known) or 'none'}"
        raise UnknownKey(
            f"{dataset.id} has no curve of {unknown[0]}; {expected}.",
            id=dataset.id,
            key=unknown[0],
            expected=[*known],
        )
    shown = rows[slice(*steps)]
    drawn, notes = shown[:MOST_ROWS], []
    if len(drawn) < len(shown):
        notes.append(f"{MOST_ROWS:,} of {len(shown):,} steps are shown: choose others")
    columns = [known[name] for name in dict.fromkeys(names)]
    notes += [
        f"{show_key(each.key)}: {MOST_NUMBERS} of {size:,} numbers are shown"
        for each in columns[:MOST_COLUMNS]
        if (size := math.prod(each.shape)) > MOST_NUMBERS
    ]
    if left_out := [show_key(each.key) for each in columns[MOST_COLUMNS:]]:
        notes.append(f"not shown, as more than {MOST_COLUMNS} columns: {', '.join(left_out)}")
    most = min(max(num_points, LEAST_POINTS), MOST_POINTS)
    curves = {
        show_key(each.key): _curves(dataset, each, drawn, rows.start, most)
        for each in columns[:MOST_COLUMNS]
    }
    first = drawn.start - rows.start
    return Curves(len(rows), first, first + len(drawn), curves, tuple(notes))


def _curves(
    dataset: DatasetArrays, column: Column, rows: range, first: int, most: int
) -> list[Curve]:
    """Return the curves of the numbers of a column."""
    num_numbers = min(math.prod(column.shape), MOST_NUMBERS)
    steps: list[list[int]] = [[] for _ in range(num_numbers)]
    values: list[list[Any]] = [[] for _ in range(num_numbers)]
    size = bucket_rows(len(rows), most)
    # Read whole buckets at a time: memory does not grow with the length of the trajectory.
    step = max(1, MOST_VALUES // num_numbers // size) * size
    for start in rows[::step]:
        read = _numbers(dataset, column, rows[start - rows.start :][:step])
        for number, places in enumerate(decimated(read, size)):
            steps[number] += (places + (start - first)).tolist()
            values[number] += _plain(read[places, number])
    name = show_key(column.key)
    names = [name] if column.shape in ((), (1,)) else [f"{name}[{n}]" for n in range(num_numbers)]
    return [*map(Curve, names, steps, values)]


def bucket_rows(num_rows: int, most: int) -> int:
    """Return the number of rows per bucket for at most ``most`` points."""
    return 1 if num_rows <= most else -(-num_rows // (most // POINTS_PER_BUCKET))


def decimated(values: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Yield for each number of rows ``[n, m]`` the rows of its points, int64, in their order."""
    num_rows, num_numbers = values.shape
    if size == 1:
        yield from num_numbers * [np.arange(num_rows)]
        return
    # The last bucket is filled with its last row again, which is never the first of equal ones.
    num_buckets = -(-num_rows // size)
    filled = values[np.minimum(np.arange(num_buckets * size), num_rows - 1)]
    buckets = filled.reshape(num_buckets, size, num_numbers)
    low = high = buckets
    first = np.zeros((num_buckets, num_numbers), np.int64)
    if values.dtype.kind == "f":
        is_finite = np.isfinite(buckets)
        low, high = np.where(is_finite, buckets, np.inf), np.where(is_finite, buckets, -np.inf)
        first = is_finite.argmin(1)
    places = np.stack([low.argmin(1), high.argmax(1), first])
    places += (np.arange(num_buckets) * size)[:, None]
    for number in range(num_numbers):
        yield np.unique(places[:, :, number])


def _numbers(dataset: DatasetArrays, column: Column, rows: range) -> np.ndarray:
    """Return the first numbers of rows of a column ``[n, m]``."""
    reader, step = dataset.arrays_of(frozenset({column.key})), rows_per_block(column.row_bytes)
    parts = []
    for start in rows[::step]:
        numbers = plain_numbers(reader.run(start, min(start + step, rows.stop))[column.key])
        assert numbers is not None, "a measured column has numbers"
        parts.append(numbers.reshape(len(numbers), -1)[:, :MOST_NUMBERS].copy())
    return np.concatenate(parts)


def _plain(values: np.ndarray) -> list[Any]:
    """Return values for JSON: NaN as null, infinite ones as text, as in ``peek``."""
    listed: list[Any] = values.tolist()
    if values.dtype.kind != "f" or np.isfinite(values).all():
        return listed
    constants = {"NaN": None}
    plain: list[Any] = json.loads(
        json.dumps(listed), parse_constant=lambda text: constants.get(text, text)
    )
    return plain


WIDTH, HEIGHT = 600.0, 160.0
BAR = 0.98  # of the width of a bin: a gap separates neighbours of equal height
MAX_LABELS = 6


@dataclass(frozen=True)
class Box:
    """A rectangle, its CSS class, and the text of its tooltip."""

    kind: str
    x: float
    y: float
    width: float
    height: float
    text: str


@dataclass(frozen=True)
class Drawing:
    """A chart: its boxes, the labels of the x axis, and the range of the y axis."""

    chart: Chart
    boxes: tuple[Box, ...]
    ticks: tuple[str, ...]
    range: str


def drawings_of(page: LocalPage, kinds: Iterable[str], *ids: str) -> Iterator[Drawing | str]:
    """Yield a drawing of each kind for one or two datasets, or the reason why it has no chart."""
    datasets = [page.installed(id) for id in dict.fromkeys(ids)]
    for kind in kinds:
        try:
            yield drawing_of(chart_of(kind, datasets, page.root))
        except UsageError as error:
            yield f"{kind}: {error}"


def drawing_of(chart: Chart) -> Drawing:
    """Return the drawing of a chart: spreads if it has quantiles, otherwise bars."""
    one = chart.series[0]
    if one.quantiles:
        low = min(values[0] for values in one.quantiles)
        high = max(values[-1] for values in one.quantiles)
        ticks = tuple(f"{one.x[end]:g}" for end in sorted({0, len(one.x) - 1}))
        return Drawing(chart, tuple(_spread(one, low, high)), ticks, f"{low:.6g} to {high:.6g}")
    labels = chart.labels
    if not labels:
        labels = tuple(f"{each:.6g}" for each in (one.x[0], one.x[-1]))
    elif len(labels) > MAX_LABELS:
        labels = labels[0], labels[-1]
    highest = max(bar[2] for number in range(len(chart.series)) for bar in chart.bars(number))
    return Drawing(chart, tuple(_bars(chart, highest)), labels, f"0 to {highest:.4g}")


def _bars(chart: Chart, highest: float) -> Iterator[Box]:
    """Yield the bars of all datasets, each with the range of its bin and its height."""
    edges = chart.series[0].x
    unit = WIDTH / (edges[-1] - edges[0])
    for position in range(len(chart.series)):
        for left, right, height in chart.bars(position):
            tall = HEIGHT * height / highest
            if chart.labels:
                label = chart.labels[int((left + right) / 2 - edges[0])]
            else:
                label = f"{left:.6g} to {right:.6g}"
            x, wide = (left - edges[0]) * unit, (right - left) * unit * BAR
            text = f"{label}: {height:.6g} {chart.y}"
            yield Box(f"bar{position}", x, HEIGHT - tall, wide, tall, text)


def _spread(one: Series, low: float, high: float) -> Iterator[Box]:
    """For each number, yield three boxes: all values, the middle 80 %, the median."""
    unit, step = HEIGHT / ((high - low) or 1), WIDTH / len(one.x)
    for position, (number, values) in enumerate(zip(one.x, one.quantiles, strict=True)):
        least, q10, median, q90, most = ((high - value) * unit for value in values)
        text = f"{number:g}: " + ", ".join(f"{value:.6g}" for value in values)
        x = (position + 0.5) * step
        yield Box("thin", x - step / 16, most, step / 8, least - most, text)
        yield Box("thick", x - step * 0.3, q90, step * 0.6, q10 - q90, text)
        yield Box("median", x - step * 0.4, median - 1, step * 0.8, 2, text)


def frame_columns(manifest: Manifest) -> list[str]:
    """Return the columns of frames; a step's own columns come before its successor's."""
    frames = [
        each.key
        for each in manifest.columns
        if len(each.shape) > 1 and is_frame(each.dtype, each.shape)
    ]
    return [show_key(key) for key in sorted(frames, key=lambda key: key[0] == "next")]


def frame_png(dataset: DatasetArrays, trajectory: int, step: int, column: str) -> bytes:
    """Return the frame of a step of a trajectory as the bytes of a PNG file."""
    # The column is named: an environment, whose spec names code, is never made for a page.
    pictures = pictures_of(dataset, trajectory, column)
    check_below("step", step, pictures.num_rows, "step", f"trajectory {trajectory} of {dataset.id}")
    (picture,) = pictures.read(np.array([step]))
    file = BytesIO()
    Image.fromarray(picture).save(file, format="PNG", compress_level=1)
    return file.getvalue()
