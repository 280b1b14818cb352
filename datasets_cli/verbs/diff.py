"""Compares two datasets."""

from __future__ import annotations

from dataclasses import dataclass, field

from datasets_cli.catalogue.names import INSTALLED_IDS
from datasets_cli.config import RootOptions
from datasets_cli.core.options import takes_fields
from datasets_cli.core.progress import ProgressOptions
from datasets_cli.core.progress_display import displayed
from datasets_cli.install.find import open_installed
from datasets_cli.store.manifest import Manifest
from datasets_cli.verbs.difference import ColumnDifference, DatasetDifference


@dataclass(frozen=True)
class CompareCall(ProgressOptions, RootOptions):
    """The arguments of ``compare_datasets``.

    Args:
        id: id of an installed dataset.
        other: id of the dataset to compare with.
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
    """Compare two installed datasets bit by bit, in any layouts.

    If one dataset has more rows, its first rows are compared. If one dataset is the repair of the
    other, rows of the same step of the publisher's file are compared. Memory grows only with the
    number of repaired rows.

    Raises:
        DatasetNotInstalled, UnknownDataset: a dataset is not installed.
        DamagedDataset: a dataset differs from its manifest.
    """
    from datasets_cli.verbs.row_comparison import compare_rows  # with numpy

    config = call.chosen_config()
    first, second = (open_installed(text, config) for text in (call.id, call.other))
    known = compare_manifests(first.manifest, second.manifest)
    if known.num_shared:
        return known
    with displayed(call.progress, "transitions compared") as progress:
        return compare_rows(first, second, known, progress)


def compare_manifests(first: Manifest, second: Manifest) -> DatasetDifference:
    """Return the difference of two manifests."""
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
        final_steps=(first.final_steps, second.final_steps),
    )
