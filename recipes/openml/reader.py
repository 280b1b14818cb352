"""Reading an OpenML dataset: its description and its rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from datasets_cli.recipe import Block, Description, Source, SourceError

from .api import shown, text
from .catalogue import DESCRIPTION, FEATURES
from .prepared import Prepared, prepare
from .table import Table, num_missing_labels, read_blocks, read_table

IDENTITY = {"data_id": "id", "openml_name": "name", "version": "version"}
STATED = ("name", "version", "status", "licence", "citation", "creator", "upload_date")


def describe(source: Source) -> Description:
    """Return OpenML's description of the dataset and its columns, and notes."""
    table = read_table(source)
    _check_identity(source, table)
    stated = table.description
    metadata: dict[str, Any] = {key: text(stated, key) for key in STATED if stated.get(key)}
    metadata |= {"data_id": text(stated, "id"), "left_out": dict(table.left_out)}
    prepared = _prepared(source, table)
    metadata |= prepared.metadata if prepared else _columns(table)
    notes = [f"left out, {why}: {shown(names)}" for why, names in table.left_out.items()]
    if metadata.get("status") not in (None, "active"):
        notes.append(f"OpenML marks it as {metadata['status']}: problems were found in it")
    notes += [f"OpenML says: {text(stated, key)}" for key in ("error", "warning") if key in stated]
    if not table.targets:
        notes.append("the table has no label; the action is empty")
    notes += table.notes
    if prepared is None and (missing := num_missing_labels(source, table)):
        notes.append(f"labels missing: {missing}; the action is NaN there")
        counted = sum(target.num_missing for target in table.targets)
        if missing != counted:
            notes.append(f"{FEATURES} counts {counted} missing labels")
    return Description(metadata, tuple(notes))


def blocks(source: Source) -> Iterator[Block]:
    """Yield the rows in the file's order."""
    table = read_table(source)
    prepared = _prepared(source, table)
    yield from prepared.blocks() if prepared else read_blocks(source, table)


def _check_identity(source: Source, table: Table) -> None:
    """Reject the files of another dataset. A name without a version fits every version."""
    expected = source.entry.details if source.entry else {"openml_name": source.name}
    for key, field in IDENTITY.items():
        wanted, found = expected.get(key), text(table.description, field)
        if wanted and str(wanted).lower() != found.lower():
            raise SourceError(
                f"{DESCRIPTION} belongs to another dataset: expected the {field} {wanted}, "
                f"found {found or 'none'}.",
                path=DESCRIPTION,
                key=field,
                expected=wanted,
                found=found,
                advice="Check --source.",
            )


def _prepared(source: Source, table: Table) -> Prepared | None:
    """Return the table in TorchRL's encoding if the name is one of TorchRL's."""
    details = source.entry.details if source.entry else {}
    if not details.get("encoding"):
        return None
    return prepare(source, table, details["encoding"], details["target"] or "")


def _columns(table: Table) -> dict[str, Any]:
    return {
        "feature_names": [column.name for column in table.features],
        "categories": {c.name: list(c.labels) for c in table.features if c.labels is not None},
        "target_names": [column.name for column in table.targets],
        "classes": {c.name: list(c.labels) for c in table.targets if c.labels is not None},
    }
