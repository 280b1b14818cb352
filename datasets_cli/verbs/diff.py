"""Comparing two datasets."""

from __future__ import annotations

from dataclasses import dataclass, field

from datasets_cli.catalogue.selection import INSTALLED_IDS
from datasets_cli.config import RootOptions
from datasets_cli.core.options import takes_fields
from datasets_cli.core.progress import ProgressOptions
from datasets_cli.core.progress_bars import shown
from datasets_cli.install.find import open_installed
from datasets_cli.store.manifest import Manifest
from datasets_cli.verbs.difference import ColumnDifference, DatasetDifference


@dataclass(frozen=True)
class CompareCall(ProgressOptions, RootOptions):
    """What ``compare_datasets`` takes.

    Args:
        id: an installed dataset.
        other: another one.
    """

    FIRST = ("id", "other")

    id: str = field(metadata={**INSTALLED_IDS, "help": "Id of an installed dataset."})
    other: str = field(
        metadata={
            **INSTALLED_IDS,
            "metavar": "ID2",
            "help": "Id of the installed dataset to compare it with.",
        }
    )


@takes_fields(CompareCall)
def compare_datasets(call: CompareCall) -> DatasetDifference:
    """Compare two installed datasets of any layouts, bit by bit; text as text.

    Where one has more rows than the other, its first ones are compared; where one is the other one
    repaired, rows of one step of the publisher's file. Memory does not grow with the number of
    rows, but for those that differ from a repaired dataset's.

    Raises:
        DatasetNotInstalled, UnknownDataset: one is not there.
        DamagedDataset: one is not what its manifest says.
    """
    from datasets_cli.verbs.row_comparison import compare_rows  # with numpy

    config = call.chosen_config()
    first, second = (open_installed(text, config) for text in (call.id, call.other))
    known = compare_manifests(first.manifest, second.manifest)
    if known.num_shared:
        return known
    with shown(call.progress, "steps compared") as told:
        return compare_rows(first, second, known, told)


def compare_manifests(first: Manifest, second: Manifest) -> DatasetDifference:
    """Return what two manifests tell of the difference."""
    columns, others = first.all_columns, second.all_columns
    num_trajectories = (first.num_trajectories, second.num_trajectories)
    return DatasetDifference(
        (first.id, second.id),
        (first.content, second.content),
        (first.layout, second.layout),
        (first.num_transitions, second.num_transitions),
        num_trajectories,
        (
            tuple(each for each in columns if each not in others),
            tuple(each for each in others if each not in columns),
        ),
        num_trajectories if first.content == second.content else None,
        tuple(ColumnDifference(each) for each in columns if each in others),
    )
