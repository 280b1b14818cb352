"""Plots of one dataset, or of two over each other."""

from __future__ import annotations

import os
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Literal, get_args

from datasets_cli.catalogue.selection import INSTALLED_IDS, InstalledId
from datasets_cli.core.options import check_choice, takes_fields
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
            rewards of rows, or the range of each number of the actions or observations.
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
    kind: Kind = field(
        default="returns",
        metadata={"metavar": "KIND", "help": f"Quantity to plot: {', '.join(KINDS)}."},
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
    from datasets_cli.verbs.picture import draw_file

    with replacing(path) as new:
        draw_file(chart, new, path.suffix[1:].lower())
    return replace(chart, path=path)
