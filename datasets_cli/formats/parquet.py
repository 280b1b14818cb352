"""Parquet tables of labelled columns.

Import this module only to read such a file: pyarrow is an optional dependency. A nominal column is
a dictionary, whose values are its labels; or plain strings, booleans or numbers whose labels stand
in a document beside the file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from datasets_cli.errors import SourceError
from datasets_cli.formats.arff import NAN, NOMINAL, NUMERIC, TEXT, Attribute
from datasets_cli.formats.arrow import is_text, open_parquet_file, rows_at_once
from datasets_cli.formats.limits import LABEL_BYTES, check_limit
from datasets_cli.schema.columns import rows_per_block

Labels = Sequence[str] | None
"""The declared labels of a column, empty if unknown; None if it is not nominal."""

BUFFER_BYTES = 1 << 20
"""Without a buffer size, pyarrow reads the compressed bytes of a whole row group."""

TRUTH = {"true": True, "1": True, "false": False, "0": False}


class _Labels:
    """The distinct values of a nominal column, and the first row of each."""

    def __init__(self, *, is_dictionary: bool) -> None:
        self._is_dictionary = is_dictionary
        self.first_rows: dict[Any, int] = {}
        self.positions: dict[Any, float] = {}
        self._last: tuple[pa.Array | None, list[Any]] = (None, [])

    @property
    def num_bytes(self) -> int:
        """The memory of the values as labels."""
        texts = (value for value in self.first_rows if isinstance(value, bytes))
        return LABEL_BYTES * len(self.first_rows) + sum(map(len, texts))

    def add(self, coded: pa.DictionaryArray, start: int) -> None:
        """Add the values of a block whose first row is ``start``."""
        values = self._values(coded)
        used = range(len(values)) if self._is_dictionary else coded.indices.unique().to_pylist()
        for number in used:
            value = None if number is None else values[number]
            if value not in self.first_rows:
                first = 0 if number is None else coded.indices.index(number).as_py()
                self.first_rows[value] = start + first

    def to_floats(self, coded: pa.DictionaryArray) -> np.ndarray:
        """Return the positions of the values of some rows, float64 ``[n]``; NaN is missing."""
        # A value of the dictionary that occurs in no row has no position.
        positions = [self.positions.get(value, NAN) for value in self._values(coded)]
        # A missing value gets the index -1: the NaN at the end of the positions.
        indices = coded.indices.cast("int64").fill_null(-1)
        return np.asarray(np.array([*positions, NAN])[indices.to_numpy()])

    def _values(self, coded: pa.DictionaryArray) -> list[Any]:
        """Return the values of a dictionary; all batches of a row group have the same one."""
        dictionary, values = self._last
        if dictionary is None or not dictionary.equals(coded.dictionary):
            self._last = coded.dictionary, (values := _raw(coded.dictionary))
        return values


class Parquet:
    """An open file, read in bounded blocks, with the methods of ``arff.Arff``.

    Args:
        path: the path of the file.
        declared: the labels of each column.

    Raises:
        SourceError: a nominal column has a value that is not a label, or the file is beyond the
            limits.
    """

    notes: tuple[str, ...] = ()

    def __init__(self, path: Path, declared: Sequence[Labels]) -> None:
        self.name = path.name
        self._file, schema = open_parquet_file(path, buffer_size=BUFFER_BYTES)
        check_limit("columns", len(schema), self.name)
        check_limit("rows", self._file.metadata.num_rows, self.name)
        self._names = schema.names
        self._has_own_names = len(set(self._names)) == len(self._names)
        self._step = min(rows_per_block(8 * max(1, len(schema))), rows_at_once(self._file))
        # pandas writes row labels as columns; a range is not a column, but a dict.
        index = (schema.pandas_metadata or {}).get("index_columns", [])
        index = index if len(schema) > len(declared) else []
        self._kept = [number for number, name in enumerate(self._names) if name not in index]
        self._labels: dict[int, _Labels] = {}
        labels = dict(enumerate(declared))
        fields = [schema.field(number) for number in self._kept]
        for number, field in enumerate(fields):
            if _is_nominal(field.type, labels.get(number)):
                is_dictionary = isinstance(field.type, pa.DictionaryType)
                self._labels[number] = _Labels(is_dictionary=is_dictionary)
        self._collect()
        self.attributes = tuple(
            self._attribute(number, field, labels.get(number))
            for number, field in enumerate(fields)
        )

    def blocks(self, columns: Sequence[int]) -> Iterator[np.ndarray]:
        """Yield float64 ``[n, len(columns)]``: nominal values are positions, missing ones NaN."""
        for batch in self._batches(columns):
            table = np.empty((batch.num_rows, len(columns)))
            for position, column in enumerate(columns):
                table[:, position] = self._floats(batch, column)
            yield table

    def _batches(self, columns: Sequence[int]) -> Iterator[pa.RecordBatch]:
        """Yield the rows, with these columns only if their names are unique."""
        names = [self._names[self._kept[column]] for column in columns]
        can_choose = self._has_own_names and names and not any("." in name for name in self._names)
        with _damage(self.name):
            yield from self._file.iter_batches(self._step, columns=names if can_choose else None)

    def _column(self, batch: pa.RecordBatch, number: int) -> pa.Array:
        place = self._kept[number]
        return batch.column(self._names[place] if self._has_own_names else place)

    def _floats(self, batch: pa.RecordBatch, column: int) -> np.ndarray:
        values = self._column(batch, column)
        if labels := self._labels.get(column):
            return labels.to_floats(_encoded(values))
        floats = values.cast("float64", safe=False).to_numpy(zero_copy_only=False)
        return np.asarray(floats)

    def _collect(self) -> None:
        """Find the values of all nominal columns."""
        if not self._labels:
            return
        start = 0
        for batch in self._batches([*self._labels]):
            for number, labels in self._labels.items():
                labels.add(_encoded(self._column(batch, number)), start)
            num_bytes = sum(labels.num_bytes for labels in self._labels.values())
            check_limit("text_bytes", num_bytes, f"{self.name}, in its labels,")
            start += batch.num_rows

    def _attribute(self, number: int, field: pa.Field, declared: Labels) -> Attribute:
        labels = self._labels.get(number)
        if labels is None:
            return Attribute(field.name, NUMERIC if _kind(field.type) == NUMERIC else TEXT)
        values = list(labels.first_rows)
        shown = _decoded(values)
        if isinstance(field.type, pa.DictionaryType):
            names = tuple(map(str, shown))
            positions = [NAN if value is None else float(i) for i, value in enumerate(values)]
        else:
            known = sorted(value for value in shown if value is not None)
            names = tuple(declared or map(_label, known))
            positions = self._positions(labels, shown, field, names)
        labels.positions = dict(zip(values, positions, strict=True))
        return Attribute(field.name, NOMINAL, names)

    def _positions(
        self, own: _Labels, values: list[Any], field: pa.Field, labels: Sequence[str]
    ) -> list[float]:
        """Return the positions of a plain column's values among its labels; NaN is missing."""
        meaning = _meaning(field.type)
        index = {meaning(label): float(i) for i, label in reversed(list(enumerate(labels)))}
        index[None] = NAN
        for value, row in zip(values, own.first_rows.values(), strict=True):
            if value not in index:
                raise SourceError(
                    f"{self.name}, row {row} (the first is 0): {field.name!r} is {value!r}; "
                    f"expected one of its labels: {', '.join(labels[:10])}.",
                    path=self.name,
                    key=field.name,
                    row=row,
                    expected=list(labels[:10]),
                    found=value,
                )
        return [index[value] for value in values]


@contextmanager
def open_parquet(path: Path, declared: Sequence[Labels] = ()) -> Iterator[Parquet]:
    """Open a Parquet file.

    Args:
        path: the file.
        declared: the labels of each column.

    Raises:
        SourceError: it is not a complete Parquet file, a column has a value that is not declared,
            or it is beyond the limits.
    """
    with _damage(path.name):
        parquet = Parquet(path, declared)
    yield parquet


@contextmanager
def _damage(name: str) -> Iterator[None]:
    """Turn the errors of pyarrow into ``SourceError``."""
    try:
        yield
    except SourceError:
        raise
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise SourceError(f"{name} is not a complete Parquet file ({error}).", path=name) from error


def _is_nominal(dtype: pa.DataType, labels: Labels) -> bool:
    """Return whether a column is a dictionary, or declared and of a type that labels can have."""
    is_dictionary = isinstance(dtype, pa.DictionaryType)
    return is_dictionary or (labels is not None and _kind(dtype) != TEXT)


def _encoded(values: pa.Array) -> pa.DictionaryArray:
    if isinstance(values, pa.DictionaryArray):
        return values
    if pa.types.is_null(values.type):
        values = values.cast("string")  # all values are missing
    return values.dictionary_encode()


def _kind(dtype: pa.DataType) -> str:
    """Return ``NUMERIC``, ``NOMINAL`` for strings, which can be labels, or ``TEXT``."""
    is_number = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_null)
    if pa.types.is_boolean(dtype) or any(test(dtype) for test in is_number):
        return NUMERIC
    return NOMINAL if is_text(dtype) else TEXT


def _raw(dictionary: pa.Array) -> list[Any]:
    """Return the values of a dictionary: texts as bytes, a missing value as None."""
    if is_text(dictionary.type):
        return list(dictionary.cast("large_binary").to_pylist())
    values = dictionary.to_pylist()
    return [None if isinstance(v, float) and math.isnan(v) else v for v in values]


def _decoded(values: list[Any]) -> list[Any]:
    """Return bytes as text: UTF-8 or, if a value of the column is not, Latin-1."""
    for encoding in ("utf-8", "latin-1"):
        try:
            return [v.decode(encoding) if isinstance(v, bytes) else v for v in values]
        except UnicodeDecodeError:
            continue
    raise AssertionError("Latin-1 has a character for each byte")


def _label(value: Any) -> str:
    """Return a value as a label. Integers beside missing values are stored as floats."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _meaning(dtype: pa.DataType) -> Callable[[str], Any]:
    """Return a function from a label to a value of a column's type, if it can be one."""
    if is_text(dtype):
        return str
    if pa.types.is_boolean(dtype):
        return lambda label: TRUTH.get(label.lower(), label)
    return _number


def _number(label: str) -> Any:
    try:
        return float(label)
    except ValueError:
        return label
