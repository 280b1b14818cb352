"""The entries of a manifest against each other, before a file is mapped by what they say."""

from __future__ import annotations

import math
import reprlib

from datasets_cli.errors import DamagedDataset
from datasets_cli.store.compact.problems import check_record
from datasets_cli.store.compact.records import Record
from datasets_cli.store.manifest import LAYOUTS, Manifest
from datasets_cli.store.schema.columns import Key, show_key
from datasets_cli.store.schema.json_values import LARGEST, check_column, number_at, object_at

NO_RECORD = Record(size=0, num_records=0, fields=(), constants=(), made=(), frames=())
"""What a dataset in the ``ted`` layout has."""


def check_entries(manifest: Manifest) -> Record:
    """Check that the entries of a manifest agree; return its record, empty for ``ted``.

    Its cost depends on the number of columns and files, and not on that of rows.

    Raises:
        DamagedDataset: names the entry that is not what it must be, or that contradicts another.
    """
    try:
        _check_numbers(manifest)
        _check_columns(manifest)
        _check_files(manifest)
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


def _check_numbers(manifest: Manifest) -> None:
    if manifest.layout not in LAYOUTS:
        raise ValueError(f"layout: expected {' or '.join(LAYOUTS)}, found {manifest.layout!r}")
    num_rows = number_at(manifest.num_transitions, "num_transitions", 1)
    if number_at(manifest.num_trajectories, "num_trajectories", 1) > num_rows:
        raise ValueError(
            f"num_trajectories: expected at most the {num_rows} transitions, found "
            f"{manifest.num_trajectories}"
        )


def _check_columns(manifest: Manifest) -> None:
    if not manifest.columns:
        raise ValueError("columns: expected one or more, found none")
    for number, column in enumerate(manifest.columns):
        where = f"columns[{number}]"
        check_column(column, where)
        # Also where a dimension is 0 and there is no file: torch multiplies the others.
        values = manifest.num_transitions * math.prod(max(1, size) for size in column.shape)
        if values >= LARGEST:
            raise ValueError(f"{where}.shape: expected fewer than 2**48 values, found {values}")
    _check_keys([column.key for column in manifest.columns])


def _check_keys(keys: list[Key]) -> None:
    """Check that no key is there twice, and that none is a leaf and has leaves below it."""
    known = set(keys)
    if len(known) != len(keys):
        raise ValueError("columns: expected different keys, found one twice")
    above = {key[:depth]: key for key in keys for depth in range(1, len(key))}
    for key in above.keys() & known:
        raise ValueError(
            f"columns: expected either {show_key(key)} or {show_key(above[key])}, which is below "
            "it, found both"
        )


def _check_files(manifest: Manifest) -> None:
    for name, entry in object_at(manifest.files, "files").items():
        if not isinstance(entry, dict) or not isinstance(entry.get("sha256"), str):
            raise ValueError(f"files.{name}.sha256: expected text, found {reprlib.repr(entry)}")
        number_at(entry.get("bytes"), f"files.{name}.bytes")
