"""A chart as rectangles, which a template draws: an SVG without styles, scripts or text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from datasets_cli.errors import UsageError
from datasets_cli.look.plots.chart import Chart, Series
from datasets_cli.look.plots.values import chart_of
from datasets_cli.page.local_page import LocalPage

WIDTH, HEIGHT = 600.0, 160.0
BAR = 0.98  # of the width of a bin, so that two of one height are two
MOST_LABELS = 6


@dataclass(frozen=True)
class Box:
    """A rectangle, its class, and what is told of it."""

    kind: str
    x: float
    y: float
    width: float
    height: float
    text: str


@dataclass(frozen=True)
class Drawing:
    """A chart, with what stands below its boxes, and beside them."""

    chart: Chart
    boxes: tuple[Box, ...]
    ticks: tuple[str, ...]
    range: str


def drawings_of(page: LocalPage, kinds: Iterable[str], *ids: str) -> Iterator[Drawing | str]:
    """Yield plots of one dataset or two; of a kind that there is none of, why."""
    datasets = [page.installed(id) for id in dict.fromkeys(ids)]
    for kind in kinds:
        try:
            yield drawing_of(chart_of(kind, datasets, page.root))
        except UsageError as error:
            yield f"{kind}: {error}"


def drawing_of(chart: Chart) -> Drawing:
    """Return what is drawn of a chart."""
    one = chart.series[0]
    if one.quantiles:
        low = min(values[0] for values in one.quantiles)
        high = max(values[-1] for values in one.quantiles)
        ticks = tuple(f"{one.x[place]:g}" for place in sorted({0, len(one.x) - 1}))
        return Drawing(chart, tuple(_spread(one, low, high)), ticks, f"{low:.6g} to {high:.6g}")
    labels = chart.labels
    if not labels:
        labels = tuple(f"{each:.6g}" for each in (one.x[0], one.x[-1]))
    elif len(labels) > MOST_LABELS:
        labels = labels[0], labels[-1]
    highest = max(bar[2] for place in range(len(chart.series)) for bar in chart.bars(place))
    return Drawing(chart, tuple(_bars(chart, highest)), labels, f"0 to {highest:.4g}")


def _bars(chart: Chart, highest: float) -> Iterator[Box]:
    """Yield the bars of all datasets, and of each what is in it."""
    edges = chart.series[0].x
    unit = WIDTH / (edges[-1] - edges[0])
    for place in range(len(chart.series)):
        for left, right, height in chart.bars(place):
            tall = HEIGHT * height / highest
            if chart.labels:
                inside = chart.labels[int((left + right) / 2 - edges[0])]
            else:
                inside = f"{left:.6g} to {right:.6g}"
            x, wide = (left - edges[0]) * unit, (right - left) * unit * BAR
            told = f"{inside}: {height:.6g} {chart.y}"
            yield Box(f"bar{place}", x, HEIGHT - tall, wide, tall, told)


def _spread(one: Series, low: float, high: float) -> Iterator[Box]:
    """Yield of each number three boxes: of all values, of the middle 80 %, of the median."""
    unit, step = HEIGHT / ((high - low) or 1), WIDTH / len(one.x)
    for place, (number, values) in enumerate(zip(one.x, one.quantiles, strict=True)):
        least, q10, median, q90, most = ((high - value) * unit for value in values)
        told = f"{number:g}: " + ", ".join(f"{value:.6g}" for value in values)
        x = (place + 0.5) * step
        yield Box("thin", x - step / 16, most, step / 8, least - most, told)
        yield Box("thick", x - step * 0.3, q90, step * 0.6, q10 - q90, told)
        yield Box("median", x - step * 0.4, median - 1, step * 0.8, 2, told)
