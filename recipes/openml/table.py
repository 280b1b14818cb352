"""An OpenML dataset as a table of features and labels.

``description.json`` and ``features.json`` are the API's two documents on a dataset; its file is
``dataset.arff`` or ``dataset.pq``, whose columns the second document numbers. A nominal value is
its position in the *file's* declaration; the API lists the same labels in another order.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from datasets_cli.formats.arff import NOMINAL, TEXT, Attribute
from datasets_cli.formats.limits import read_json_file
from datasets_cli.recipe import Block, Source, SourceError

from .api import Entry, column_entries, content, is_true, shown
from .catalogue import DESCRIPTION, FEATURES
from .rows import num_missing, open_rows

MARKED = {"is_row_identifier": "row numbers", "is_ignore": "to be ignored"}


@dataclass(frozen=True)
class TableColumn:
    """One feature or label."""

    index: int
    name: str
    labels: tuple[str, ...] | None
    num_missing: int


@dataclass(frozen=True)
class Table:
    """The columns of a dataset, from its documents and its file's header."""

    description: Entry
    features: tuple[TableColumn, ...]
    targets: tuple[TableColumn, ...]
    left_out: Mapping[str, list[str]]
    notes: tuple[str, ...]


def num_missing_labels(source: Source, table: Table) -> int:
    """Return the number of missing labels in the file."""
    return num_missing(source, [target.index for target in table.targets])


def read_table(source: Source) -> Table:
    """Return the table of a dataset."""
    document = read_json_file(source.files[DESCRIPTION])
    description = content(document, "data_set_description", DESCRIPTION)
    entries = column_entries(source.files[FEATURES])
    with open_rows(source) as rows:
        attributes, notes = rows.attributes, rows.notes
    _check_columns(entries, attributes)
    entries = _with_own_names(entries)
    features: list[TableColumn] = []
    targets: list[TableColumn] = []
    left_out: dict[str, list[str]] = {}
    for index, (entry, attribute) in enumerate(zip(entries, attributes, strict=True)):
        if why := _why_left_out(entry, attribute):
            left_out.setdefault(why, []).append(entry["name"])
        else:
            labels = attribute.labels if attribute.kind == NOMINAL else None
            missing = int(float(entry.get("number_of_missing_values") or 0))
            column = TableColumn(index, entry["name"], labels, missing)
            (targets if is_true(entry, "is_target") else features).append(column)
    if not features:
        listed = "; ".join(f"{shown(names)} ({why})" for why, names in left_out.items())
        raise SourceError(
            f"no feature remains; left out: {listed or 'none, all columns are labels'}.",
            found=listed,
        )
    return Table(description, tuple(features), tuple(targets), left_out, notes)


def read_blocks(source: Source, table: Table) -> Iterator[Block]:
    """Yield the rows as one-step trajectories."""
    # float64 if a label is missing; OpenML's count may be wrong, so the whole file is read.
    has_classes = bool(table.targets) and all(c.labels is not None for c in table.targets)
    has_classes = has_classes and not num_missing_labels(source, table)
    columns = [column.index for column in (*table.features, *table.targets)]
    with open_rows(source) as rows:
        for block in rows.blocks(columns):
            observation, action = np.hsplit(block, [len(table.features)])
            if has_classes:
                action = action.astype(np.int64)
            yield one_step(observation, action[:, 0] if len(table.targets) == 1 else action)


def one_step(observation: np.ndarray, action: np.ndarray) -> Block:
    """Return trajectories of one step, whose action is the label, as of a perfect demonstrator."""
    num_rows = len(observation)
    return Block(
        {
            ("observation",): observation,
            ("action",): action,
            ("next", "reward"): np.ones(num_rows),
            ("next", "terminated"): np.ones(num_rows, np.bool_),
        }
    )


def _check_columns(entries: Sequence[Entry], attributes: Sequence[Attribute]) -> None:
    if len(entries) != len(attributes):
        raise SourceError(
            f"{FEATURES} and the file do not belong to the same dataset: expected {len(entries)} "
            f"columns, found {len(attributes)}.",
            path=FEATURES,
            expected=len(entries),
            found=len(attributes),
        )
    for number, (entry, attribute) in enumerate(zip(entries, attributes, strict=True)):
        if _plain(entry["name"]) != _plain(attribute.name):
            raise SourceError(
                f"{FEATURES} and the file do not belong to the same dataset: expected the column "
                f"{number} to be {entry['name']!r}, found {attribute.name!r}.",
                path=FEATURES,
                key=attribute.name,
                expected=entry["name"],
                found=attribute.name,
            )


def _plain(name: str) -> str:
    """Return the ASCII letters and digits of a name; quotes and other characters may differ."""
    return re.sub(r"[^A-Za-z0-9]", "", name)


def _with_own_names(entries: Sequence[Entry]) -> list[Entry]:
    """Return the columns with unique names: a repeated name gets the number of its column."""
    # The manifest describes columns by name.
    counts = Counter(entry["name"] for entry in entries)
    return [
        {**entry, "name": f"{entry['name']} (column {number})"}
        if counts[entry["name"]] > 1
        else entry
        for number, entry in enumerate(entries)
    ]


def _why_left_out(entry: Entry, attribute: Attribute) -> str:
    """Return why a column is neither feature nor label; empty if it is one."""
    if is_true(entry, "is_target"):
        if attribute.kind == TEXT:
            raise SourceError(
                f"the label {entry['name']!r} is text; expected classes or numbers.",
                key=entry["name"],
                expected="classes or numbers",
                found="text",
            )
        return ""
    for flag, why in MARKED.items():
        if is_true(entry, flag):
            return why
    return "text or dates" if attribute.kind == TEXT else ""
