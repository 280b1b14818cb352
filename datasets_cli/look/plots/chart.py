"""A chart: what a plot shows of one dataset or of two, before anything is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from datasets_cli.json_form import JsonForm


@dataclass(frozen=True)
class Counts(JsonForm):
    """How many values of a dataset are in each bin; the last bin has both of its edges.

    Args:
        id: of the dataset.
        edges: of the bins, one more than there are counts.
        counts: of the values in each bin.
    """

    id: str
    edges: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Spread(JsonForm):
    """Where the values of each number of a row are, over all rows of a dataset.

    Args:
        id: of the dataset.
        numbers: which numbers of a row, or the first one of each group of them.
        low: the least value of each.
        q10: a tenth of the values is below it.
        median: half of the values are below it.
        q90: a tenth of the values is above it.
        high: the greatest value of each.
    """

    id: str
    numbers: tuple[int, ...]
    low: tuple[float, ...]
    q10: tuple[float, ...]
    median: tuple[float, ...]
    q90: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True)
class Chart(JsonForm):
    """What a plot shows, as numbers.

    Args:
        kind: as it was asked for.
        x: what is on the horizontal axis.
        y: what is on the vertical axis.
        series: one for each dataset, in the order of their ids.
        labels: of the bins, where they are no numbers of an axis.
        notes: what was left out, sampled or joined.
        path: the file that it was drawn into; None where there is none.
    """

    kind: str
    x: str
    y: str
    series: tuple[Counts, ...] | tuple[Spread, ...]
    labels: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    path: Path | None = None

    @property
    def title(self) -> str:
        """The kind, with the id of the dataset where there is one."""
        return self.kind if self.series[1:] else f"{self.kind} of {self.series[0].id}"


def heights_of(chart: Chart, counts: Counts) -> list[float]:
    """Return how high bars are: counts; of two datasets, which differ in size, per cent."""
    total = sum(counts.counts) / 100 if chart.series[1:] else 1
    return [count / total for count in counts.counts]
