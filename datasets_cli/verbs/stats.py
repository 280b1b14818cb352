"""Statistics of the columns and trajectories of a dataset, cached as tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets_cli.catalogue.names import InstalledId
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import takes_fields
from datasets_cli.core.progress import Progress, ProgressOptions
from datasets_cli.core.progress_display import displayed
from datasets_cli.core.quantities import channels, splits_and_counts
from datasets_cli.errors import RldsError
from datasets_cli.install.find import folder_and_id, read_sound_manifest_of
from datasets_cli.preprocessing.columns import KnownColumns
from datasets_cli.preprocessing.pipeline import texts_of
from datasets_cli.schema.columns import show_key
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.lock import dest_locked
from datasets_cli.store.manifest import Manifest
from datasets_cli.store.tables import STATISTICS, load_summary

if TYPE_CHECKING:
    import numpy as np

Measures = Mapping[str, Any]
PARTS = ("columns", "frames", "trajectories")
MOST_NUMBERS = 64
"""Maximum numbers of a column with a row each in the table."""

OF_STEPS = "length, return and success are computed from recorded steps; all else from transitions."


@dataclass(frozen=True)
class DatasetStatistics(JsonForm):
    """The statistics of a dataset, with None for values that are not finite.

    Args:
        id: the full id.
        content: the digest of its data.
        num_transitions: the number of transitions.
        num_trajectories: the number of trajectories.
        columns: for all numbers of each column together: count, mean, standard deviation, range,
            quantiles (1, 10, 50, 90 and 99 %), NaN and infinite numbers, whether it is constant,
            and the count of each value if there are at most 64.
        numbers: the measures of each number of a row, for each requested column.
        trajectories: the same for returns, lengths and ends; returns, lengths and successes are
            computed from recorded steps, all else from transitions.
        frames: mean and standard deviation of each channel of frame columns.
        num_sampled: the number of transitions from which quantiles are computed.
        unmeasured: the dtype of each column without statistics: text, complex or packed numbers.
        splits: the numbers of trajectories and transitions of each of the publisher's splits.
        steps: a sentence on recorded steps, or empty if each is a transition.
        made: whether this call read the rows.
        changed: the columns whose statistics changed; only after ``recompute``.
    """

    id: str
    content: str
    num_transitions: int
    num_trajectories: int
    columns: Mapping[str, Measures]
    numbers: Mapping[str, Mapping[str, list[float | None]]]
    trajectories: Mapping[str, Measures]
    frames: Mapping[str, Measures]
    num_sampled: int
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    splits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    steps: str = ""
    made: bool = False
    changed: tuple[str, ...] = ()

    def table(self) -> list[dict[str, str]]:
        """Return the table of columns, by heading; each is followed by its numbers, if few."""
        rows = []
        for name, measures in self.columns.items():
            rows.append({"COLUMN": name, **_cells(measures)})
            numbers = self.numbers.get(name, {})
            each = [*zip(*numbers.values(), strict=True)]
            for number, values in enumerate(each if 1 < len(each) <= MOST_NUMBERS else ()):
                part = dict(zip(numbers, values, strict=True))
                rows.append({"COLUMN": f"{name}[{number}]", **_cells(part)})
        return rows

    def trajectory_table(self) -> list[dict[str, str]]:
        """Return the table of returns, lengths and ends of trajectories, by heading."""
        return [
            {"TRAJECTORIES": name, **_cells(each)}
            for name, each in self.trajectories.items()
            if self.steps or name != "num_transitions"  # else equal to length
        ]

    @property
    def remarks(self) -> list[str]:
        """Remarks on recorded steps, sampled quantiles and omitted columns."""
        few = [name for name, each in self.numbers.items() if len(each["count"]) > MOST_NUMBERS]
        sampled = self.num_sampled < self.num_transitions
        return [
            *[f"{self.steps}. {OF_STEPS}"] * bool(self.steps),
            *[f"splits: {splits_and_counts(self.splits)}"] * bool(self.splits),
            *[f"Q50 is of {self.num_sampled:,} sampled transitions."] * sampled,
            *(f"{name}: {channels(each)}" for name, each in self.frames.items()),
            *(f"{name} has more than {MOST_NUMBERS} numbers; --json has each." for name in few),
            *(f"{name} is not measured: it is {of}." for name, of in self.unmeasured.items()),
            *(
                f"{name}: - stands for values beyond the largest float64."
                for name, each in (*self.columns.items(), *self.trajectories.items())
                if each["count"] and None in (each["mean"], each["std"], each["quantiles"][2])
            ),
        ]


@dataclass(frozen=True)
class StatsCall(ProgressOptions, InstalledId):
    """The arguments of ``dataset_stats``.

    Args:
        columns: show only these columns, and each of their numbers; ``"next"`` selects its group.
            By default all columns, each as a whole.
        recompute: read all transitions again and report statistics that have changed.
    """

    _: KW_ONLY
    columns: str | Iterable[str | tuple[str, ...]] = field(
        default=(),
        metadata={"metavar": "KEYS", "help": "Show only these columns, and each of their numbers."},
    )
    recompute: bool = field(
        default=False,
        metadata={"help": "Read all transitions again and report statistics that have changed."},
    )


@takes_fields(StatsCall)
def dataset_stats(call: StatsCall) -> DatasetStatistics:
    """Return the statistics of an installed dataset, and cache them.

    Raises:
        UnknownDataset, DatasetNotInstalled: the dataset is unknown or not installed.
        UsageError: a column does not exist or has no statistics.
        DamagedDataset: its files differ from its manifest.
    """
    return statistics_of(call, CacheRoot(call.chosen_config().root))


def statistics_of(call: StatsCall, root: CacheRoot) -> DatasetStatistics:
    """Return statistics from tables in the cache root, which are computed if missing."""
    config = call.chosen_config()
    folder, id = folder_and_id(call.id, config)
    manifest = read_sound_manifest_of(folder, id)
    known, columns = KnownColumns(manifest), call.columns
    texts = texts_of("columns", columns if isinstance(columns, str) else [*columns])
    named = (column for text in texts for column in known.of_numbers(text, "columns"))
    names = {show_key(column.key) for column in named}
    stored = load_summary(root, manifest.content)
    summary, measures = stored or {}, None
    if stored is None or call.recompute:
        dest, what = root.tables(manifest.content) / STATISTICS, f"the tables of {id}"
        with (
            displayed(call.progress, "transitions read") as progress,
            dest_locked(dest, config.lock_timeout, progress, what),
        ):
            summary, measures = _computed(root, folder, manifest, progress, again=call.recompute)
    dtypes = {show_key(each.key): each.dtype for each in manifest.all_columns}
    before, measured = stored or summary, {*summary["columns"], *summary["frames"]}
    return DatasetStatistics(
        id,
        manifest.content,
        manifest.num_transitions,
        manifest.num_trajectories,
        _selected(summary["columns"], names),
        _numbers(root, manifest, names & summary["columns"].keys(), measures),
        summary["trajectories"],
        _selected(summary["frames"], names),
        summary["sampled_rows"],
        {name: dtype for name, dtype in dtypes.items() if name not in measured},
        manifest.splits,
        manifest.recorded_steps,
        summary is not stored,
        tuple(
            name
            for part in PARTS
            for name, values in summary[part].items()
            if before[part].get(name) != values
        ),
    )


def _computed(
    root: CacheRoot, folder: Path, manifest: Manifest, progress: Progress, *, again: bool
) -> tuple[dict[str, Any], dict[str, np.ndarray] | None]:
    """Return the summary of tables that this or another process has just computed."""
    from datasets_cli.project.statistics import make_tables  # with numpy
    from datasets_cli.store.arrays import open_arrays

    if again or load_summary(root, manifest.content) is None:
        dataset = open_arrays(folder)
        if dataset.manifest.content == manifest.content:
            return make_tables(dataset, root, progress, again=again)
    elif summary := load_summary(root, manifest.content):
        return summary, None
    raise RldsError(
        f"Another process replaced {manifest.id} during this command.",
        id=manifest.id,
        advice="Run the command again.",
    )


def _numbers(
    root: CacheRoot, manifest: Manifest, names: set[str], measures: dict[str, np.ndarray] | None
) -> dict[str, dict[str, list[float | None]]]:
    """Return the measures of each number of columns."""
    if not names:
        return {}
    from datasets_cli.project.statistics import load_measures
    from datasets_cli.schema.column_statistics import MEASURES

    if (measures := measures or load_measures(manifest, root)) is None:
        raise RldsError(
            f"The cached table of numbers of {manifest.id} is missing or damaged.",
            id=manifest.id,
            advice=f"Recreate it: rlds stats {manifest.id} --recompute",
        )
    return {
        name: {
            measure: [value if math.isfinite(value) else None for value in values]
            for measure, values in zip(MEASURES, measures[name].tolist(), strict=True)
        }
        for name in measures
        if name in names
    }


def _selected(measures: Mapping[str, Measures], names: set[str]) -> dict[str, Measures]:
    return {name: each for name, each in measures.items() if not names or name in names}


def _cells(measures: Measures) -> dict[str, str]:
    """Return the measures of a column, or of one of its numbers, as text."""
    median = measures["quantiles"][2] if "quantiles" in measures else measures["q50"]
    values = {name: measures[name] for name in ("mean", "std", "min")}
    values |= {"q50": median, "max": measures["max"]}
    wrong = {name: measures[name] for name in ("nan", "infinite")}
    return {
        "COUNT": f"{int(measures['count']):,}",
        **{name.upper(): "-" if x is None else f"{x:.6g}" for name, x in values.items()},
        **{name.upper(): f"{int(count):,}" if count else "" for name, count in wrong.items()},
        "CONSTANT": "yes" if measures["constant"] else "",
    }
