"""A chart: what a plot shows of one dataset or of two, before anything is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from datasets_cli.json_form import JsonForm


@dataclass(frozen=True)
class Series(JsonForm):
    """What a chart shows of one dataset: how many values are in bins, or where they are.

    Args:
        id: of the dataset.
        x: the edges of the bins, one more than there are; or which numbers of a row.
        counts: of the values in each bin.
        quantiles: of each number: the least value, the 0.1, 0.5 and 0.9 quantile, the greatest.
    """

    JSON = "id x counts|null quantiles|null"

    id: str
    x: tuple[float, ...]
    counts: tuple[int, ...] = ()
    quantiles: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class Chart(JsonForm):
    """What a plot shows, as numbers.

    Args:
        kind: as it was asked for.
        x: what is on the horizontal axis.
        y: what is on the vertical axis.
        series: one for each dataset.
        labels: of the bins, where each is of one value.
        notes: what was left out, sampled or joined.
        path: the file that it was drawn into; None where there is none.
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
        """The kind, with the id of the dataset where there is one."""
        return self.kind if self.series[1:] else f"{self.kind} of {self.series[0].id}"

    def bars(self, place: int) -> list[tuple[float, float, float]]:
        """Return left edge, right edge and height of each bar of a dataset; none that is empty."""
        one, num_series = self.series[place], len(self.series)
        # Two datasets differ in size: of each the bars are per cent.
        unit = sum(one.counts) / 100 if num_series > 1 else 1
        bars = zip(one.x, one.x[1:], [count / unit for count in one.counts], strict=False)
        if self.labels:  # side by side
            width = 0.8 / num_series
            firsts = [(left + 0.1 + width * place, height) for left, _, height in bars]
            return [(left, left + width, height) for left, height in firsts if height]
        return [bar for bar in bars if bar[2]]
