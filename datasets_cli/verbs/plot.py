"""Plots of one dataset, or of two over each other; a file is drawn with matplotlib."""

from __future__ import annotations

import os
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from datasets_cli.catalogue.names import INSTALLED_IDS, InstalledId
from datasets_cli.core.options import check_choice, takes_fields
from datasets_cli.core.system_errors import import_optional
from datasets_cli.install.find import open_installed
from datasets_cli.sources.new_files import file_to_make, replacing
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.verbs.chart import Chart

Kind = Literal["returns", "lengths", "reward", "actions", "observations", "ends"]
KINDS: tuple[str, ...] = get_args(Kind)


@dataclass(frozen=True)
class PlotCall(InstalledId):
    """The arguments of ``plot``.

    Args:
        other: id of a second dataset, drawn over the first.
        kind: the quantity: histograms of the returns, lengths or ends of trajectories, or of the
            rewards of rows, or the range of each number of the actions or observations. The
            default is returns, or lengths if a dataset has no rewards.
        out: the .png or .svg file to write; by default none.
        force: replace an existing file.
    """

    other: str | None = field(
        default=None,
        metadata={
            **INSTALLED_IDS,
            "metavar": "ID2",
            "help": "Id of a second dataset, drawn over the first.",
        },
    )
    _: KW_ONLY
    kind: Kind | None = field(
        default=None,
        metadata={
            "metavar": "KIND",
            "help": f"Quantity to plot: {', '.join(KINDS)}.",
            "typed": Kind,
            "default": "returns, or lengths without rewards",
        },
    )
    out: str | os.PathLike[str] | None = field(
        default=None,
        metadata={
            "metavar": "FILE",
            "help": "Write a .png or .svg file instead of drawing in the terminal.",
        },
    )
    force: bool = field(default=False, metadata={"help": "Replace an existing file."})


@takes_fields(PlotCall)
def plot(call: PlotCall) -> Chart:
    """Return the numbers of a plot of one or two datasets, and draw it into a file.

    The numbers come from cached tables of trajectories and statistics of columns, which are
    computed if missing. A file requires matplotlib.

    Raises:
        DatasetNotInstalled: a dataset is not installed.
        UsageError: no number is finite, the file exists or has another ending, or matplotlib is
            not installed.
    """
    from datasets_cli.verbs.plot_values import chart_of  # numpy

    config = call.chosen_config()
    if call.kind is not None:
        check_choice("kind", call.kind, KINDS)
    path = None if call.out is None else file_to_make(call.out, (".png", ".svg"), call.force)
    opened = [open_installed(text, config) for text in (call.id, call.other) if text is not None]
    datasets = {each.id: each for each in opened}  # one alone where both are the same
    chart = chart_of(call.kind, [*datasets.values()], CacheRoot(config.root))
    if len(datasets) < len(opened):
        chart = replace(
            chart, notes=(*chart.notes, f"both are {opened[0].id}, which is drawn once")
        )
    if path is None:
        return chart
    with replacing(path) as new:
        draw_file(chart, new, path.suffix[1:].lower())
    return replace(chart, path=path)


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
