"""Parquet tables, read by pyarrow, which need not be installed: import this where one is read.

A nominal column is a dictionary, whose values are its labels; or plain strings, booleans or
numbers, of which a document beside the file says that they are labels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from datasets_cli.errors import SourceError
from datasets_cli.formats.attribute import NAN, NOMINAL, NUMERIC, TEXT, Attribute
from datasets_cli.store.schema.columns import rows_per_block

Labels = Sequence[str] | None
"""What a column is declared to have, empty where that is not known; None: it is not nominal."""

TRUTH = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True)
class _Codes:
    """The values of a nominal column.

    Args:
        values: a dictionary array ``[N]``.
        positions: float64 ``[V + 1]``, of each value of the dictionary among the labels; NaN for
            what is missing, which is the last.
    """

    values: pa.DictionaryArray
    positions: np.ndarray

    def to_floats(self, start: int, count: int) -> np.ndarray:
        """Return the positions of some rows, float64 ``[count]``."""
        # A missing value gets the index -1, and with it the NaN at the end of the positions.
        indices = self.values.slice(start, count).indices.cast("int64").fill_null(-1)
        return np.asarray(self.positions[indices.to_numpy()])


class Parquet:
    """A table in memory, with the methods of ``arff.Arff``.

    Args:
        name: of the file, for messages.
        table: as pyarrow read it.
        declared: the labels of each column.

    Raises:
        SourceError: a nominal column has a value that is none of its declared labels.
    """

    notes: tuple[str, ...] = ()

    def __init__(self, name: str, table: pa.Table, declared: Sequence[Labels]) -> None:
        self.name = name
        self._table = _without_index(table) if table.num_columns > len(declared) else table
        self._codes: dict[int, _Codes] = {}
        labels = dict(enumerate(declared))
        self.attributes = tuple(
            self._attribute(number, column_name, labels.get(number))
            for number, column_name in enumerate(self._table.column_names)
        )

    def blocks(self, columns: Sequence[int]) -> Iterator[np.ndarray]:
        """Yield float64 ``[n, len(columns)]``; nominal values as positions, missing ones NaN."""
        step = rows_per_block(8 * len(columns))
        for start in range(0, self._table.num_rows, step):
            count = min(step, self._table.num_rows - start)
            table = np.empty((count, len(columns)))
            for position, column in enumerate(columns):
                table[:, position] = self._floats(column, start, count)
            yield table

    def _floats(self, column: int, start: int, count: int) -> np.ndarray:
        if codes := self._codes.get(column):
            return codes.to_floats(start, count)
        values = self._table.column(column).slice(start, count)
        return np.asarray(values.cast("float64", safe=False).to_numpy())

    def _attribute(self, number: int, name: str, labels: Labels) -> Attribute:
        column = self._table.column(number)
        is_dictionary = isinstance(column.type, pa.DictionaryType)
        if not is_dictionary and (labels is None or _kind(column.type) == TEXT):
            return Attribute(name, NUMERIC if _kind(column.type) == NUMERIC else TEXT)
        if pa.types.is_null(column.type):
            column = column.cast("string")  # all are missing, whatever they would be
        encoded = column.unify_dictionaries() if is_dictionary else column.dictionary_encode()
        coded = encoded.combine_chunks()
        values = _values(coded.dictionary)
        if is_dictionary:
            found = tuple(map(str, values))
            positions = [NAN if value is None else float(i) for i, value in enumerate(values)]
        else:
            found = tuple(labels or map(_label, sorted(v for v in values if v is not None)))
            positions = self._positions(name, coded, values, found)
        self._codes[number] = _Codes(coded, np.array([*positions, NAN]))
        return Attribute(name, NOMINAL, found)

    def _positions(
        self, name: str, coded: pa.DictionaryArray, values: list[Any], labels: Sequence[str]
    ) -> list[float]:
        """Return where the values of a plain column are among the labels; NaN is missing."""
        meaning = _meaning(coded.dictionary.type)
        index = {meaning(label): float(i) for i, label in reversed(list(enumerate(labels)))}
        index[None] = NAN
        for number, value in enumerate(values):
            if value not in index:
                row = coded.indices.index(number).as_py()
                raise SourceError(
                    f"{self.name}, row {row} (the first is 0): {name!r} is {value!r}; expected one "
                    f"of {', '.join(labels[:10])}, which are declared as its labels."
                )
        return [index[value] for value in values]


@contextmanager
def open_parquet(path: Path, declared: Sequence[Labels] = ()) -> Iterator[Parquet]:
    """Read a Parquet file.

    Args:
        path: the file.
        declared: of each column the labels that it is said to have.

    Raises:
        SourceError: it is not a whole Parquet file, or a column has a value that is not declared.
    """
    try:
        table = pq.ParquetFile(path).read()
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{path.name} is not a whole Parquet file ({error}).") from error
    yield Parquet(path.name, table, declared)


def _without_index(table: pa.Table) -> pa.Table:
    """Return a table without the row labels that pandas wrote as columns."""
    index = (table.schema.pandas_metadata or {}).get("index_columns", [])
    # A range is no column, but a dict of start, stop and step.
    return table.drop_columns([name for name in index if name in table.column_names])


def _kind(dtype: pa.DataType) -> str:
    """Return ``NUMERIC``, ``NOMINAL`` for what may be a label but no number, or ``TEXT``."""
    is_number = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)
    if pa.types.is_boolean(dtype) or any(test(dtype) for test in is_number):
        return NUMERIC
    return NOMINAL if _is_text(dtype) else TEXT


def _is_text(dtype: pa.DataType) -> bool:
    """Tell whether values are strings, or bytes, as some programs write strings."""
    return str(dtype).removeprefix("large_").removesuffix("_view") in ("string", "binary")


def _values(dictionary: pa.Array) -> list[Any]:
    """Return the values of a dictionary, None for a missing one.

    Bytes become text: UTF-8 or, where one is not, Latin-1 in the whole column.
    """
    if not _is_text(dictionary.type):
        values = dictionary.to_pylist()
        return [None if isinstance(v, float) and math.isnan(v) else v for v in values]
    texts = dictionary.cast("large_binary").to_pylist()
    try:
        return [text if text is None else text.decode() for text in texts]
    except UnicodeDecodeError:
        return [text if text is None else text.decode("latin-1") for text in texts]


def _label(value: Any) -> str:
    """Return a value as a label; integers beside missing ones are written as floats."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _meaning(dtype: pa.DataType) -> Callable[[str], Any]:
    """Return what makes a value of a column's type of a label, or leaves it as it is."""
    if _is_text(dtype):
        return str
    if pa.types.is_boolean(dtype):
        return lambda label: TRUTH.get(label.lower(), label)
    return _number


def _number(label: str) -> Any:
    try:
        return float(label)
    except ValueError:
        return label
