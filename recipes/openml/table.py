"""An OpenML dataset as a table: which columns are features, which are labels, and their rows.

``description.json`` and ``features.json`` are the API's two documents on a dataset; its file is
``dataset.arff`` or ``dataset.pq``, whose columns the second document numbers. A nominal
value is its position in the *file's* declaration; the API lists the same labels in another order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from datasets_cli.formats.arff import NOMINAL, TEXT, Attribute, open_arff
from datasets_cli.formats.parquet import open_parquet
from datasets_cli.recipe import Block, Source, SourceError

from .api import Entry, as_list, content, is_true
from .catalogue import ARFF, DESCRIPTION, FEATURES, PARQUET

MARKED = {"is_row_identifier": "row numbers", "is_ignore": "to be ignored"}


class Rows(Protocol):
    """An open file of rows."""

    attributes: tuple[Attribute, ...]

    def blocks(self, columns: Sequence[int]) -> Iterator[np.ndarray]:
        """Yield float64 ``[n, len(columns)]``; nominal values as positions, missing ones NaN."""


@dataclass(frozen=True)
class Column:
    """One feature or label.

    Args:
        index: its number in the file.
        name: as OpenML has it.
        labels: what a nominal column declares, else None.
        num_missing: missing values, as OpenML counts them.
    """

    index: int
    name: str
    labels: tuple[str, ...] | None
    num_missing: int


@dataclass(frozen=True)
class Table:
    """What a dataset's documents and its file's header say.

    Args:
        description: OpenML's.
        features: columns to learn from, in the file's order.
        targets: columns to be learned.
        left_out: ``{why: names}`` of all others.
    """

    description: Entry
    features: tuple[Column, ...]
    targets: tuple[Column, ...]
    left_out: Mapping[str, list[str]]

    @property
    def has_classes(self) -> bool:
        """Whether every label is one of a few, and none is missing."""
        nominal = all(target.labels is not None for target in self.targets)
        return bool(self.targets) and nominal and not self.num_missing_labels

    @property
    def num_missing_labels(self) -> int:
        """Labels without a value, as OpenML counts them."""
        return sum(target.num_missing for target in self.targets)


def read_table(source: Source) -> Table:
    """Return what a dataset's documents say.

    Raises:
        SourceError: they are not OpenML's, do not fit the file, or leave nothing to learn from.
    """
    document = json.loads(source.files[DESCRIPTION].read_bytes())
    description = content(document, "data_set_description", DESCRIPTION)
    entries = _entries(source.files[FEATURES])
    with open_rows(source) as rows:
        attributes = rows.attributes
    _check_columns(entries, attributes)
    features: list[Column] = []
    targets: list[Column] = []
    left_out: dict[str, list[str]] = {}
    for index, (entry, attribute) in enumerate(zip(entries, attributes, strict=True)):
        why = _why_left_out(entry, attribute)
        if why:
            left_out.setdefault(why, []).append(entry["name"])
        else:
            column = _column(index, entry, attribute)
            (targets if is_true(entry, "is_target") else features).append(column)
    if not features:
        listed = "; ".join(f"{shown(names)} ({why})" for why, names in left_out.items())
        raise SourceError(
            f"no column is left to learn from; left out: {listed or 'none, for all are labels'}."
        )
    return Table(description, tuple(features), tuple(targets), left_out)


@contextmanager
def open_rows(source: Source) -> Iterator[Rows]:
    """Open the dataset's file, whichever of the two it is."""
    path = source.files.get(PARQUET)
    with open_parquet(path) if path else open_arff(source.files[ARFF]) as rows:
        yield rows


def read_blocks(source: Source, table: Table) -> Iterator[Block]:
    """Yield the rows as one-step trajectories.

    Raises:
        SourceError: a label is missing though OpenML counts none.
    """
    columns = [column.index for column in (*table.features, *table.targets)]
    with open_rows(source) as rows:
        for block in rows.blocks(columns):
            observation, action = np.hsplit(block, [len(table.features)])
            if table.has_classes:
                if np.isnan(action).any():
                    raise SourceError(f"a label is missing, though {FEATURES} counts none.")
                action = action.astype(np.int64)
            yield one_step(observation, action[:, 0] if len(table.targets) == 1 else action)


def one_step(observation: np.ndarray, action: np.ndarray) -> Block:
    """Return rows of one step each, whose action is the label: what a perfect demonstrator does."""
    num_rows = len(observation)
    return Block(
        {
            ("observation",): observation,
            ("action",): action,
            ("next", "reward"): np.ones(num_rows),
            ("next", "terminated"): np.ones(num_rows, np.bool_),
        }
    )


def shown(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return ", ".join(names[:10]) + more


def _entries(path: Path) -> list[Entry]:
    """Return what OpenML says of each column, in the order of their numbers."""
    document = content(json.loads(path.read_bytes()), "data_features", path.name)
    entries = as_list(document.get("feature"))
    try:
        by_number = {
            int(entry["index"]): {**entry, "name": str(entry["name"])} for entry in entries
        }
    except (KeyError, TypeError, ValueError) as error:
        raise SourceError(f"{path.name} is not OpenML's: {error!r} of a column.") from error
    if sorted(by_number) != list(range(len(entries))):
        raise SourceError(
            f"{path.name} is damaged: expected the columns 0 to {len(entries) - 1}, found "
            f"{shown([str(entry['index']) for entry in entries])}."
        )
    return [by_number[number] for number in range(len(entries))]


def _check_columns(entries: Sequence[Entry], attributes: Sequence[Attribute]) -> None:
    """Check that the document is on this file."""
    if len(entries) != len(attributes):
        raise SourceError(
            f"{FEATURES} and the file are not of the same dataset: expected {len(entries)} "
            f"columns, found {len(attributes)}."
        )
    for number, (entry, attribute) in enumerate(zip(entries, attributes, strict=True)):
        if _plain(entry["name"]) != _plain(attribute.name):
            raise SourceError(
                f"{FEATURES} and the file are not of the same dataset: expected the column "
                f"{number} to be {entry['name']!r}, found {attribute.name!r}."
            )


def _plain(name: str) -> str:
    """Return the letters and digits of a name; its quotes and what is not ASCII may differ."""
    return re.sub(r"\\x[0-9a-f]{2}|[^A-Za-z0-9]", "", name)


def _why_left_out(entry: Entry, attribute: Attribute) -> str:
    """Return why a column is neither feature nor label, or nothing."""
    if is_true(entry, "is_target"):
        if attribute.kind == TEXT:
            raise SourceError(f"the label {entry['name']!r} is text; expected classes or numbers.")
        return ""
    for flag, why in MARKED.items():
        if is_true(entry, flag):
            return why
    return "text or dates" if attribute.kind == TEXT else ""


def _column(index: int, entry: Entry, attribute: Attribute) -> Column:
    labels = attribute.labels if attribute.kind == NOMINAL else None
    missing = int(float(entry.get("number_of_missing_values") or 0))
    return Column(index, entry["name"], labels, missing)
