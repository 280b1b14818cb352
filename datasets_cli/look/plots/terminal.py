"""A chart as lines of a terminal, by plotext."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from datasets_cli.errors import UsageError
from datasets_cli.look.plots.chart import Chart, Counts, Spread, heights_of

LINES = 17
FEWEST_BARS = 4
WIDEST = 140
MARGIN = 8
"""Columns beside the canvas: an axis with its numbers."""

COLOURS = (33, 208)
"""Of the 256 of a terminal: a blue and an orange that are read on black and on white."""

MARKS = ("█", "░", "▚")
"""Of one dataset, and of the first and the second of two."""


def lines_of(chart: Chart, width: int, colour: bool) -> list[str]:
    """Return a chart as lines of at most so many columns."""
    try:
        import plotext
    except ModuleNotFoundError as error:
        raise UsageError(
            "A plot in a terminal needs plotext, which is not installed: pip install "
            "'rlds-cli[plot]'. --json prints its numbers."
        ) from error
    plotext.terminal.limit(False, False)
    figure = plotext.figure.clear()
    figure.theme("colorless")
    figure.plot_size(min(width, WIDEST), LINES)
    figure.label(chart.x, "x")
    marks = MARKS[1:] if chart.series[1:] else MARKS[:1]
    head = textwrap.wrap(chart.title, width)
    for place, (each, mark) in enumerate(zip(chart.series, marks, strict=True)):
        code = COLOURS[place] if colour else None

        def pen(symbol: str, code: int | None = code) -> Any:
            return plotext.marker(symbol, code)

        if isinstance(each, Spread):
            _draw_spread(figure, each, place / len(chart.series), mark, pen)
        else:
            _draw_counts(figure, chart, each, place, mark, pen)
        if chart.series[1:]:
            own = f"\x1b[38;5;{code}m{mark}\x1b[0m" if colour else mark
            first, *more = textwrap.wrap(f"{mark} {each.id}", width)
            head += [f"{own}{first[1:]}", *more]
    _set_ticks(figure, chart, width)
    text = str(figure.build())
    lines = (text if colour else plotext.uncolorize(text)).splitlines()
    head += textwrap.wrap(chart.y, width)
    return [*head, *lines, *textwrap.wrap(_shared_columns(chart, width), width)]


def _shared_columns(chart: Chart, width: int) -> str:
    """Return what is said where more numbers are drawn than there are columns."""
    num_drawn = sum(len(each.numbers) for each in chart.series if isinstance(each, Spread))
    canvas = min(width, WIDEST) - MARGIN
    if num_drawn <= canvas:
        return ""
    return f"{num_drawn} bars share {canvas} columns and cover one another: --out FILE.png has all."


def _draw_counts(
    figure: Any, chart: Chart, counts: Counts, place: int, mark: str, pen: Callable[[str], Any]
) -> None:
    """Draw bars; of the second of two datasets their outlines, unless the bars have names."""
    width = 0.8 / len(chart.series)
    for height, (low, high) in zip(heights_of(chart, counts), pairwise(counts.edges), strict=True):
        if not height:
            continue
        left, right = low, high
        if chart.labels:
            left, right = low + 0.1 + width * place, low + 0.1 + width * (place + 1)
        x, y = (left, left, right, right), (0, height, height, 0)
        if place and not chart.labels:
            figure.draw(figure.signal(x, y, marker=pen("hd")).lines())
        else:
            figure.draw(figure.rectangle((left, right), (0, height), marker=pen(mark)))


def _draw_spread(
    figure: Any, spread: Spread, shift: float, mark: str, pen: Callable[[str], Any]
) -> None:
    """Draw of each number a thin line from least to greatest, a thick one of the middle 80 %."""
    values = spread.low, spread.q10, spread.median, spread.q90, spread.high
    for number, low, q10, median, q90, high in zip(spread.numbers, *values, strict=True):
        x = number + shift
        figure.draw(figure.segment((x, x), (low, high), marker=pen("braille")))
        figure.draw(figure.segment((x, x), (q10, q90), marker=pen(mark)))
        figure.draw(figure.signal([x], [median], marker="─"))


def _set_ticks(figure: Any, chart: Chart, width: int) -> None:
    """Set what is written below the axis: as many numbers or names as fit there."""
    first, parts = chart.series[0], max(2, width // 16)
    if chart.labels:
        cell = max(1, (width - MARGIN) // len(chart.labels))
        step = -(-6 // cell)
        shown = [
            label if len(label) < cell * step else f"{label[: cell * step - 2]}…"
            for label in chart.labels[::step]
        ]
        beside = max(0, FEWEST_BARS - len(chart.labels)) / 2
        figure.ruler("x").lim(-0.5 - beside, len(chart.labels) - 0.5 + beside)
        figure.ruler("x").ticks([*range(0, len(chart.labels), step)], shown)
    elif isinstance(first, Counts):
        low, high = first.edges[0], first.edges[-1]
        figure.ruler("x").lim(low, high)
        at = [low + (high - low) * part / parts for part in range(parts + 1)]
        figure.ruler("x").ticks(at, [f"{value:.4g}" for value in at])
    else:
        most = max(each.numbers[-1] for each in chart.series if isinstance(each, Spread))
        numbers = [*range(0, most + 1, most // parts or 1)]
        figure.ruler("x").ticks(numbers, [*map(str, numbers)])
