"""Draws a chart as PNG or SVG with matplotlib, in colours legible on white and on black."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from datasets_cli.core.system_errors import import_optional
from datasets_cli.verbs.chart import Chart

GREY = "#7d8590"
COLOURS = ("#3987e5", "#e5803a")
STYLE: dict[Any, Any] = {
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor"), GREY),
    **dict.fromkeys(("xtick.color", "ytick.color"), GREY),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    **dict.fromkeys(("text.usetex", "text.parse_math"), False),  # a name is not a formula
    "svg.fonttype": "none",
    "svg.hashsalt": "rlds",  # the same chart is the same file
}
MOST_LABELS = 24
FEWEST_BARS = 4


def draw_file(chart: Chart, path: Path, form: str) -> None:
    """Draw a chart into a file with a transparent background."""
    matplotlib = import_optional("matplotlib", "A plot in a file", "plot")
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7, 4), dpi=150, layout="constrained")
        axes = figure.add_subplot()
        axes.set(xlabel=chart.x, ylabel=chart.y, title=chart.title)
        axes.locator_params(axis="x", integer=bool(chart.series[0].quantiles))
        for place, colour in enumerate(COLOURS[: len(chart.series)]):
            draw = _draw_spread if chart.series[0].quantiles else _draw_bars
            draw(axes, chart, place, colour)
        if chart.labels:
            _name_bars(axes, chart)
        if chart.series[1:]:
            figure.legend(loc="outside lower center")
        metadata = {"Date": None} if form == "svg" else None
        figure.savefig(path, format=form, transparent=True, metadata=metadata)


def _draw_bars(axes: Any, chart: Chart, place: int, colour: str) -> None:
    left, right, heights = zip(*chart.bars(place), strict=True)
    widths = [b - a for a, b in zip(left, right, strict=True)]
    look = {"facecolor": (colour, 0.45), "edgecolor": colour, "label": chart.series[place].id}
    axes.bar(left, heights, widths, align="edge", **look)


def _draw_spread(axes: Any, chart: Chart, place: int, colour: str) -> None:
    """Draw a thin line for the range of each number, and a thick one for the middle 80 %."""
    one, num_series = chart.series[place], len(chart.series)
    low, q10, median, q90, high = zip(*one.quantiles, strict=True)
    step = min((b - a for a, b in zip(one.x, one.x[1:], strict=False)), default=1)
    at = [number + 0.36 * step * (place - (num_series - 1) / 2) for number in one.x]
    width = min(6, 160 / len(at) / num_series)
    axes.vlines(at, low, high, color=colour, linewidth=min(1, width / 2))
    axes.vlines(at, q10, q90, color=colour, linewidth=width, alpha=0.6, label=one.id)
    axes.plot(at, median, "_", color=GREY, markersize=width + 3)


def _name_bars(axes: Any, chart: Chart) -> None:
    step, edges = -(-len(chart.labels) // MOST_LABELS), chart.series[0].x
    axes.set_xticks([edge + 0.5 for edge in edges[:-1:step]], chart.labels[::step])
    beside = max(0, FEWEST_BARS - len(chart.labels)) / 2  # one bar is not as wide as the plot
    axes.set_xlim(edges[0] - beside, edges[-1] + beside)
