"""Converts columns of Arrow tables to columns of steps and back, for Parquet, CSV and hf.

Import this module lazily: it needs pyarrow, an optional dependency.
The schema of a written table has the key of each column and the metadata of the dataset:
``{"keys": {"next.reward": "reward"}, "metadata": {...}}``, as JSON under ``rlds``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from datasets_cli.errors import SourceError, UsageError, WrongRows, install_extra
from datasets_cli.exchange.flat import COMPUTED, flat_steps
from datasets_cli.exchange.format import ColumnMap, Recognised
from datasets_cli.exchange.mapping import guess
from datasets_cli.exchange.steps import StepColumns
from datasets_cli.formats.limits import check_limit
from datasets_cli.schema.columns import (
    DONE,
    NUMPY_TYPES,
    REWARD,
    TERMINATED,
    TRUNCATED,
    Key,
    show_key,
)
from datasets_cli.schema.steps import ROOT_FLAGS
from datasets_cli.schema.texts import TEXT, AnyColumn

try:
    import pyarrow as pa
    import pyarrow.compute as pc

    from datasets_cli.formats import arrow
except ModuleNotFoundError as error:
    if not (error.name or "").startswith("pyarrow"):
        raise
    raise UsageError(
        "Parquet, CSV and Arrow need pyarrow, which is not installed.",
        expected="pyarrow",
        advice=install_extra("parquet"),
    ) from error

METADATA_KEY = b"rlds"
STORED = NUMPY_TYPES - {"complex64", "complex128"} | {TEXT}
SCALARS = frozenset({REWARD, TERMINATED, TRUNCATED, DONE, *ROOT_FLAGS})
"""Columns ``[N, 1]`` that other tools store as one number for each row."""

Batches = Callable[[list[str]], Iterable[pa.RecordBatch]]
"""Yields batches of the table with the named columns and possibly more."""

_NUMBERED = re.compile(r"(.*[^\d])(\d+)")


@dataclass(frozen=True)
class _Column:
    """A column of a table, a field of a struct, or numbered columns that form a vector."""

    paths: tuple[tuple[str, ...], ...]
    type: pa.DataType

    def __str__(self) -> str:
        kind, inner = _kind(self.type), arrow.element_type(self.type)
        shape = [len(self.paths)] if self.is_joined else [*arrow.row_shape(self.type)]
        return f"lists of {kind}" if _is_list(inner) else f"{kind} {shape}"

    @property
    def is_joined(self) -> bool:
        return len(self.paths) > 1

    @property
    def stem(self) -> str:
        """The common name of the numbered columns of a vector; empty for other columns."""
        return _stem(".".join(self.paths[0])).rstrip("._") if self.is_joined else ""

    def values(self, batch: pa.RecordBatch, at: _Place) -> np.ndarray:
        """Return the values ``[n, *shape]`` of a batch."""
        parts = [_values(batch, path, at) for path in self.paths]
        return np.stack(parts, 1) if self.is_joined else parts[0]


def storable(column: AnyColumn) -> bool:
    """Return whether Arrow can store the dtype and the shape of a column."""
    return column.dtype in STORED and 0 not in column.shape


def schema_of(columns: Mapping[str, AnyColumn], metadata: Mapping[str, Any]) -> pa.Schema:
    """Return the schema of a table with named columns."""
    fields = []
    for name, column in columns.items():
        kind = pa.string() if column.dtype == TEXT else pa.from_numpy_dtype(np.dtype(column.dtype))
        shape = column.shape if not (column.key in SCALARS and column.shape == (1,)) else ()
        for size in reversed(shape):
            kind = pa.list_(pa.field("element", kind, nullable=False), size)
        fields.append(pa.field(name, kind, nullable=False))
    keys = {show_key(c.key): name for name, c in columns.items() if c.key not in COMPUTED}
    return pa.schema(fields, {METADATA_KEY: json.dumps({"keys": keys, "metadata": metadata})})


def batch_of(rows: Mapping[Key, np.ndarray], names: Mapping[str, Key], schema: pa.Schema) -> Any:
    """Return rows as a record batch of a schema."""
    columns = []
    for field in schema:
        try:
            values = pa.array(rows[names[field.name]].reshape(-1), _inner(field.type))
        except UnicodeEncodeError as error:
            raise WrongRows(
                f"{field.name} contains text that is not valid UTF-8. Arrow stores only UTF-8.",
                key=names[field.name],
                expected="UTF-8",
            ) from error
        columns.append(_nested(values, field.type))
    return pa.record_batch(columns, schema=schema)


def _nested(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if not _is_list(kind):
        return values
    return pa.FixedSizeListArray.from_arrays(_nested(values, kind.value_type), type=kind)


def recognise_table(schema: pa.Schema) -> Recognised:
    """Return the columns of a table, read from its schema."""
    columns, dropped = table_columns(schema)
    document = _own_metadata(schema)
    stored = document.get("keys", {}).items()
    known = {key: name for key, name in stored if name in columns}
    stems = {column.stem or name: name for name, column in columns.items()}
    guessed = {key: stems[name] for key, name in guess(stems).items()}
    shown = {name: str(column) for name, column in columns.items()}
    notes = () if document else tuple(_unjoined_notes(columns))
    return Recognised(shown, known or guessed, dropped, document.get("metadata", {}), notes=notes)


def _unjoined_notes(columns: Mapping[str, _Column]) -> Iterator[str]:
    """Yield a sentence for each group of numbered columns that does not form a vector."""
    by_stem: dict[str, list[str]] = {}
    for name, column in columns.items():
        if not column.is_joined and (stem := _stem(name)):
            by_stem.setdefault(stem, []).append(name)
    for group in by_stem.values():
        if len(group) > 1:
            types = [*dict.fromkeys(str(columns[name]) for name in group)]
            yield (
                f"{', '.join(group)} ({', '.join(types)}) are not a vector: expected numbers "
                "from 0 without gaps, and one dtype."
            )


def table_columns(schema: pa.Schema) -> tuple[dict[str, _Column], dict[str, str]]:
    """Return the readable columns of a table, and the reason for each other column."""
    check_limit("columns", len(schema), "The table")
    columns: dict[str, _Column] = {}
    dropped: dict[str, str] = {}
    for path, kind in _leaves(schema):
        name = ".".join(path)
        if name in columns:
            dropped[name] = "the table has two columns of this name"
        elif _kind(kind):
            columns[name] = _Column((path,), kind)
        else:
            dropped[name] = f"a column cannot have values of type {_inner(kind)}"
    return (columns if _own_metadata(schema) else _joined(columns)), dropped


def table_steps(
    columns: ColumnMap, schema: pa.Schema, batches: Batches, filename: str
) -> Iterator[StepColumns]:
    """Yield all steps of a table."""
    known, _ = table_columns(schema)

    def runs(names: list[str]) -> Iterator[Mapping[str, Any]]:
        shapes: dict[str, tuple[int, ...]] = {}
        roots = [path[0] for name in names for path in known[name].paths]
        first = 0
        for batch in batches([*dict.fromkeys(roots)]):
            if batch.num_rows:
                places = {name: _Place(filename, name, first) for name in names}
                run = {name: known[name].values(batch, at) for name, at in places.items()}
                for name, values in run.items():
                    if shapes.setdefault(name, values.shape[1:]) != values.shape[1:]:
                        raise _ragged(places[name])
                yield run
                first += batch.num_rows

    with damage(filename):
        yield from flat_steps(columns, runs)


@contextmanager
def damage(filename: str) -> Iterator[None]:
    """Turn the errors of pyarrow into ``SourceError``."""
    try:
        yield
    except (SourceError, UsageError):
        raise
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise SourceError(
            f"{filename} is damaged, or has the wrong suffix: {error}.", path=filename
        ) from error


def _own_metadata(schema: pa.Schema) -> dict[str, Any]:
    """Return the keys and the metadata in a table that rlds wrote; empty for other tables."""
    text = (schema.metadata or {}).get(METADATA_KEY)
    if text is None:
        return {}
    check_limit("json_bytes", len(text), "The metadata of the table")
    try:
        document = json.loads(text)
        keys, metadata = dict(document["keys"]), dict(document["metadata"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SourceError(
            f"The metadata of the table is damaged: {error}.", key=METADATA_KEY.decode()
        ) from error
    return {"keys": {str(key): str(name) for key, name in keys.items()}, "metadata": metadata}


def _leaves(
    fields: Iterable[pa.Field], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], pa.DataType]]:
    for field in fields:
        if pa.types.is_struct(field.type) and len(above) < 32:
            yield from _leaves(field.type, (*above, field.name))
        else:
            yield (*above, field.name), field.type


def _joined(columns: dict[str, _Column]) -> dict[str, _Column]:
    """Return the columns with ``x_0``, ``x_1`` and so on joined to one vector, ``x_0..1``."""
    joined: dict[str, _Column] = {}
    by_stem: dict[str, list[str]] = {}
    for name in columns:
        by_stem.setdefault(_stem(name) or name, []).append(name)
    for stem, group in by_stem.items():
        group.sort(key=lambda each: (len(each), each))
        kinds = {columns[each].type for each in group}
        is_vector = len(kinds) == 1 and not any(map(_is_list, kinds)) and len(group) > 1
        if is_vector and group == [f"{stem}{n}" for n in range(len(group))]:
            paths = tuple(columns[each].paths[0] for each in group)
            joined[f"{group[0]}..{len(group) - 1}"] = _Column(paths, *kinds)
        else:
            joined |= {each: columns[each] for each in group}
    return joined


def _stem(name: str) -> str:
    """Return a name without the number at its end; empty for a name without a number."""
    numbered = _NUMBERED.fullmatch(name)
    return numbered[1] if numbered else ""


class _Place(NamedTuple):
    """The column and the first row of a batch, for errors."""

    filename: str
    column: str
    first_row: int


def _values(batch: pa.RecordBatch, path: tuple[str, ...], at: _Place) -> np.ndarray:
    values = batch.column(batch.schema.get_field_index(path[0]))
    for part in path[1:]:
        _check_whole(values, at, 1)
        values = values.field(part)
    values = arrow.equal_lists(values)
    inner = values
    while pa.types.is_fixed_size_list(inner.type):
        _check_whole(inner, at, len(inner) // len(values))
        inner = inner.flatten()
    if _is_list(inner.type):
        raise _ragged(at)
    if pa.types.is_dictionary(inner.type):  # of texts: the limit is for the text of all rows
        lengths = pc.binary_length(inner.dictionary).take(inner.indices)
        check_limit("text_bytes", pc.sum(lengths).as_py() or 0, f"{at.filename}: {at.column}")
        inner = inner.dictionary_decode()
    if not pa.types.is_floating(inner.type):  # in floats, pandas writes NaN as missing
        _check_whole(inner, at, len(inner) // len(values))
    return arrow.to_numpy(inner).reshape(len(values), *arrow.row_shape(values.type))


def _check_whole(values: pa.Array, at: _Place, size: int) -> None:
    """Reject missing values; a row has ``size`` values."""
    if values.null_count:
        row = at.first_row + values.is_null().index(True).as_py() // max(1, size)
        raise WrongRows(
            f"{at.filename}: {at.column} has no value in row {row:,}.",
            key=at.column,
            row=row,
            expected="a value in each row",
            advice="Fill it, or leave the column out.",
        )


def _ragged(at: _Place) -> WrongRows:
    return WrongRows(
        f"{at.filename}: {at.column} has lists of different lengths.",
        key=at.column,
        expected="one shape",
        advice="Pad them, or leave the column out.",
    )


def _is_list(kind: pa.DataType) -> bool:
    is_of_any_size = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return bool(is_of_any_size or pa.types.is_fixed_size_list(kind))


def _inner(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values of nested lists; other types are returned unchanged."""
    return _inner(kind.value_type) if _is_list(kind) else kind


def _kind(kind: pa.DataType) -> str:
    """Return the dtype of values or nested lists; empty for types that cannot be stored."""
    kind, types = _inner(kind), pa.types
    if types.is_dictionary(kind):
        kind = kind.value_type if _kind(kind.value_type) == TEXT else kind
    if types.is_string(kind) or types.is_large_string(kind):
        return TEXT
    is_number = types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind)
    return str(np.dtype(kind.to_pandas_dtype())) if is_number else ""
