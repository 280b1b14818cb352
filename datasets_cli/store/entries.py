"""The entries of a manifest against each other, before a file is mapped by what they say."""

from __future__ import annotations

from datasets_cli.errors import DamagedDataset
from datasets_cli.store.compact.problems import check_record
from datasets_cli.store.compact.records import Record
from datasets_cli.store.manifest import Manifest

NO_RECORD = Record(size=0, num_records=0, fields=(), constants=(), made=(), frames=())
"""What a dataset in the ``ted`` layout has."""


def check_entries(manifest: Manifest) -> Record:
    """Check that the entries of a manifest agree; return its record, empty for ``ted``.

    The type of each entry was checked when the manifest was read.

    Raises:
        DamagedDataset: names the entry that is not what it must be, or that contradicts another.
    """
    try:
        if not 1 <= manifest.num_trajectories <= manifest.num_transitions:
            raise ValueError(
                f"num_trajectories: expected 1 to the {manifest.num_transitions} transitions, "
                f"found {manifest.num_trajectories}"
            )
        if manifest.layout == "ted":
            return NO_RECORD
        record = Record.from_json(manifest.record)
        check_record(record, manifest.columns, manifest.num_transitions, manifest.num_trajectories)
    except ValueError as error:
        raise DamagedDataset(
            f"The manifest of {manifest.id} does not describe a dataset: {error}. "
            f"Install it again: rlds download --force {manifest.id}"
        ) from error
    return record
