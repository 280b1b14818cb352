"""Plotting what is in a dataset, or in two, one over the other."""

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
    """What ``plot`` takes.

    Args:
        other: a second dataset, which is drawn over the first one.
        kind: what is drawn: how many trajectories have which return, length or end, how many rows
            which reward, or where each number of the actions or observations is.
        out: the file to draw, a .png or .svg; nothing is drawn where None.
        force: replace a file that is there.
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
    """Return what a plot of a dataset or two shows, and draw it into a file.

    It comes from the tables of trajectories and the statistics of columns, which are made and kept
    where there are none yet. A file needs matplotlib.

    Raises:
        DatasetNotInstalled: one is known, but not under this root.
        UsageError: there is no finite number to plot, the file is there already or has another
            ending, or matplotlib is not installed.
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
