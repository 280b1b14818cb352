"""A chart as a PNG or SVG, by matplotlib, in colours that are read on white and on black."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

from datasets_cli.errors import UsageError
from datasets_cli.look.plots.chart import Chart, Counts, Spread, heights_of

GREY = "#7d8590"
COLOURS = ("#3987e5", "#e5803a")
STYLE = {
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor"), GREY),
    **dict.fromkeys(("xtick.color", "ytick.color"), GREY),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "text.usetex"), False),
    "text.parse_math": False,  # a name is no formula
    "svg.fonttype": "none",
    "svg.hashsalt": "rlds",  # the same chart is the same file
    "legend.frameon": False,
}
MOST_LABELS = 24
NARROWEST = 4


def draw_file(chart: Chart, path: Path, form: str) -> None:
    """Draw a chart into a file, which has no background."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise UsageError(
            "A plot in a file needs matplotlib, which is not installed: "
            "pip install 'rlds-cli[plot]'"
        ) from error
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(7, 4), dpi=150, layout="constrained")
        axes = figure.add_subplot()
        axes.set(xlabel=chart.x, ylabel=chart.y, title=chart.title)
        for place, each in enumerate(chart.series):
            if isinstance(each, Spread):
                _draw_spread(axes, each, place, len(chart.series))
            else:
                _draw_counts(axes, chart, each, place)
        if chart.labels:
            _name_bars(axes, chart.labels)
        else:
            axes.locator_params(axis="x", integer=isinstance(chart.series[0], Spread))
        if chart.series[1:]:
            figure.legend(loc="outside lower center")
        metadata = {"Date": None} if form == "svg" else None
        figure.savefig(path, format=form, transparent=True, metadata=metadata)


def _name_bars(axes: Any, labels: tuple[str, ...]) -> None:
    step = -(-len(labels) // MOST_LABELS)
    axes.set_xticks(range(0, len(labels), step), labels[::step])
    beside = max(0, NARROWEST - len(labels)) / 2  # one bar is not as wide as the plot
    axes.set_xlim(-0.5 - beside, len(labels) - 0.5 + beside)


def _draw_counts(axes: Any, chart: Chart, counts: Counts, place: int) -> None:
    colour, heights = COLOURS[place], heights_of(chart, counts)
    fill = {"label": counts.id, "facecolor": (colour, 0.45), "edgecolor": colour}
    if not chart.labels:
        axes.stairs(heights, counts.edges, fill=True, **fill)
        return
    width = 0.8 / len(chart.series)
    left = [number - 0.4 + width * place for number in range(len(heights))]
    axes.bar(left, heights, width, align="edge", **fill)


def _draw_spread(axes: Any, spread: Spread, place: int, num_series: int) -> None:
    """Draw of each number a thin line from least to greatest, a thick one of the middle 80 %."""
    step = min((b - a for a, b in pairwise(spread.numbers)), default=1)
    at = [number + 0.36 * step * (place - (num_series - 1) / 2) for number in spread.numbers]
    colour, width = COLOURS[place], min(6, 160 / len(at) / num_series)
    axes.vlines(at, spread.low, spread.high, color=colour, linewidth=min(1, width / 2))
    middle = {"color": colour, "linewidth": width, "alpha": 0.6, "label": spread.id}
    axes.vlines(at, spread.q10, spread.q90, **middle)
    axes.plot(at, spread.median, "_", color=GREY, markersize=width + 3)
