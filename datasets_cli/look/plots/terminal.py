"""A chart as lines of a terminal, by plotext."""

from __future__ import annotations

import textwrap
from typing import Any

from datasets_cli.errors import UsageError
from datasets_cli.look.plots.chart import Chart

LINES = 17
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
            "A plot in a terminal needs plotext, which is not installed: "
            "pip install 'rlds-cli[plot]'. --json prints its numbers."
        ) from error
    plotext.terminal.limit(False, False)
    figure, head = plotext.figure.clear(), textwrap.wrap(chart.title, width)
    figure.theme("colorless").plot_size(min(width, WIDEST), LINES).label(chart.x, "x")
    for place, one in enumerate(chart.series):
        mark, code = MARKS[place + len(chart.series) - 1], COLOURS[place] if colour else None
        pens = {name: plotext.marker(name, code) for name in (mark, "hd", "braille")}
        draw = _draw_spread if one.quantiles else _draw_bars
        draw(figure, chart, place, pens[mark], pens["braille" if one.quantiles else "hd"])
        if chart.series[1:]:
            named = textwrap.wrap(f"{mark} {one.id}", width)
            head += [f"\x1b[38;5;{code}m{each}\x1b[0m" if colour else each for each in named]
    _set_ticks(figure, chart, width)
    text = str(figure.build())
    lines = (text if colour else plotext.uncolorize(text)).splitlines()
    num_drawn, canvas = sum(len(each.quantiles) for each in chart.series), width - MARGIN
    foot = f"{num_drawn} bars share {canvas} columns: --out FILE.png shows them one by one."
    lines += textwrap.wrap(foot, width) if num_drawn > canvas else []
    return [*head, *textwrap.wrap(chart.y, width), *lines]


def _draw_bars(figure: Any, chart: Chart, place: int, pen: Any, outline: Any) -> None:
    """Draw bars; of the second of two datasets their outlines, unless they are side by side."""
    for left, right, height in chart.bars(place):
        if place and not chart.labels:
            x, y = (left, left, right, right), (0, height, height, 0)
            figure.draw(figure.signal(x, y, marker=outline).lines())
        else:
            figure.draw(figure.rectangle((left, right), (0, height), marker=pen))


def _draw_spread(figure: Any, chart: Chart, place: int, pen: Any, thin: Any) -> None:
    """Draw of each number a thin line from least to greatest, a thick one of the middle 80 %."""
    one = chart.series[place]
    for number, (low, q10, median, q90, high) in zip(one.x, one.quantiles, strict=True):
        x = number + place / 2
        figure.draw(figure.segment((x, x), (low, high), marker=thin))
        figure.draw(figure.segment((x, x), (q10, q90), marker=pen))
        figure.draw(figure.signal([x], [median], marker="─"))


def _set_ticks(figure: Any, chart: Chart, width: int) -> None:
    """Set what is written below the axis: as many numbers or names as fit there."""
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
