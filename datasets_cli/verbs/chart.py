"""A chart: the numbers of a plot of one or two datasets, and its rendering in a terminal."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.system_errors import import_optional

LINES = 17
WIDEST = 140
MARGIN = 8
"""The width of the vertical axis and its numbers, in columns."""

COLOURS = (33, 208)
"""A blue and an orange of the 256 terminal colours, legible on black and on white."""

MARKS = ("█", "░", "▚")
"""The markers of one dataset, and of the first and the second of two."""


@dataclass(frozen=True)
class Series(JsonForm):
    """The series of one dataset in a chart: counts in bins, or quantiles.

    Args:
        id: the id of the dataset.
        x: the edges of the bins, or the indices of the numbers of a row.
        counts: the number of values in each bin.
        quantiles: for each number, the minimum, the 0.1, 0.5 and 0.9 quantile, the maximum.
    """

    JSON = "id x counts|null quantiles|null"

    id: str
    x: tuple[float, ...]
    counts: tuple[int, ...] = ()
    quantiles: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class Chart(JsonForm):
    """The numbers of a plot.

    Args:
        kind: the requested kind.
        x: the quantity on the horizontal axis.
        y: the quantity on the vertical axis.
        series: one for each dataset.
        labels: labels of the bins if each has one value.
        notes: remarks on data that was omitted, sampled or merged.
        path: the file with the plot, or None.
    """

    kind: str
    x: str
    y: str
    series: tuple[Series, ...]
    labels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    path: Path | None = None

    @property
    def title(self) -> str:
        """The kind, with the id if only one dataset is plotted."""
        return self.kind if self.series[1:] else f"{self.kind} of {self.series[0].id}"

    def bars(self, place: int) -> list[tuple[float, float, float]]:
        """Return left edge, right edge and height of each bar that is not empty."""
        one, num_series = self.series[place], len(self.series)
        # Two datasets may differ in size: their bars are percentages.
        unit = sum(one.counts) / 100 if num_series > 1 else 1
        bars = zip(one.x, one.x[1:], [count / unit for count in one.counts], strict=False)
        if self.labels:  # side by side
            width = 0.8 / num_series
            firsts = [(left + 0.1 + width * place, height) for left, _, height in bars]
            return [(left, left + width, height) for left, height in firsts if height]
        return [bar for bar in bars if bar[2]]

    def lines(self, width: int, colour: bool = False) -> list[str]:
        """Return the chart as lines of a terminal.

        Args:
            width: the columns of the terminal.
            colour: whether it shows the codes of colours.

        Raises:
            UsageError: plotext is not installed.
        """
        more = " --json prints its numbers."
        plotext = import_optional("plotext", "A plot in a terminal", "plot", more)
        plotext.terminal.limit(False, False)
        figure, head = plotext.figure.clear(), textwrap.wrap(self.title, width)
        figure.theme("colorless").plot_size(min(width, WIDEST), LINES).label(self.x, "x")
        for place, one in enumerate(self.series):
            mark, code = MARKS[place + len(self.series) - 1], COLOURS[place] if colour else None
            pens = {name: plotext.marker(name, code) for name in (mark, "hd", "braille")}
            draw = _draw_spread if one.quantiles else _draw_bars
            draw(figure, self, place, pens[mark], pens["braille" if one.quantiles else "hd"])
            if self.series[1:]:
                named = textwrap.wrap(f"{mark} {one.id}", width)
                head += [f"\x1b[38;5;{code}m{each}\x1b[0m" if colour else each for each in named]
        _set_ticks(figure, self, width)
        text = str(figure.build())
        lines = (text if colour else plotext.uncolorize(text)).splitlines()
        num_drawn, canvas = sum(len(each.quantiles) for each in self.series), width - MARGIN
        foot = f"{num_drawn} bars share {canvas} columns: --out FILE.png shows them one by one."
        lines += textwrap.wrap(foot, width) if num_drawn > canvas else []
        return [*head, *textwrap.wrap(self.y, width), *lines]


def _draw_bars(figure: Any, chart: Chart, place: int, pen: Any, outline: Any) -> None:
    """Draw bars; the bars of a second dataset are outlines, unless bars are side by side."""
    for left, right, height in chart.bars(place):
        if place and not chart.labels:
            x, y = (left, left, right, right), (0, height, height, 0)
            figure.draw(figure.signal(x, y, marker=outline).lines())
        else:
            figure.draw(figure.rectangle((left, right), (0, height), marker=pen))


def _draw_spread(figure: Any, chart: Chart, place: int, pen: Any, thin: Any) -> None:
    """Draw a thin line for the range of each number, and a thick one for the middle 80 %."""
    one = chart.series[place]
    for number, (low, q10, median, q90, high) in zip(one.x, one.quantiles, strict=True):
        x = number + place / 2
        figure.draw(figure.segment((x, x), (low, high), marker=thin))
        figure.draw(figure.segment((x, x), (q10, q90), marker=pen))
        figure.draw(figure.signal([x], [median], marker="─"))


def _set_ticks(figure: Any, chart: Chart, width: int) -> None:
    """Set the labels below the axis: as many numbers or names as fit."""
    x, names, ruler = chart.series[0].x, [*chart.labels], figure.ruler("x")
    low, high, parts = x[0], x[-1], max(2, width // 16)
    at = [low + (high - low) * part / parts for part in range(parts + 1)]
    if names:
        beside, cell = max(0, 4 - len(names)) / 2, max(1, (width - MARGIN) // len(names))
        step = -(-6 // cell)
        at, room = [edge + 0.5 for edge in x[:-1:step]], cell * step - 1
        names = [n if len(n) <= room else f"{n[: room - 1]}…" for n in names[::step]]
        ruler.lim(low - beside, high + beside)
    elif chart.series[0].quantiles:
        at = [float(round(each)) for each in at]
    else:
        ruler.lim(low, high)
    ruler.ticks(at, names or [f"{each:.4g}" for each in at])
