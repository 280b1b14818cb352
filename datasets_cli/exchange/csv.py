"""CSV: one row for each step. Columns numbered from 0 (``x_0``, ``x_1``) form one vector."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from datasets_cli.errors import UsageError, WrongRows, argument, by_reader
from datasets_cli.exchange.format import ColumnMap, Recognised
from datasets_cli.exchange.steps import StepColumns
from datasets_cli.schema.columns import EXACT_BELOW, first_rounded

DELIMITERS = {".csv": ",", ".tsv": "\t"}
BLOCK_BYTES = 4 << 20
"""The size of a block of text. The first block determines the dtypes of the columns."""

NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
VECTOR = re.compile(r"(.*\D)0\.\.(\d{1,5})", re.ASCII)
WHOLE = r"^\s*[+-]?[0-9]{16,}\s*$"
"""A whole number of 16 digits or more, which float64 may round."""


@dataclass(frozen=True)
class Csv:
    """The reader of CSV files; ``columns`` replaces the names in the first line."""

    columns: Sequence[str] = ()

    def recognise(self, path: Path) -> Recognised | None:
        """Return the columns of a file, by its first block; see ``Format``."""
        if path.is_dir() or path.suffix not in DELIMITERS:
            return None
        from datasets_cli.exchange import arrow_table

        with arrow_table.damage(path.name):
            table = _Table(path, self.columns)
            found = arrow_table.recognise_table(table.schema)
        return replace(found, notes=(*found.notes, table.note)) if self.columns else found

    def blocks(self, path: Path, columns: ColumnMap) -> Iterator[StepColumns]:
        from datasets_cli.exchange import arrow_table

        with arrow_table.damage(path.name):
            table = _Table(path, self.columns)
            schema = table.schema
        return arrow_table.table_steps(columns, schema, table.batches, path.name)


recognise, blocks = Csv().recognise, Csv().blocks


class _Table:
    """A CSV file with the names and dtypes of its columns."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self._path = path
        self._options: dict[str, Any] = {}
        first = self._opened().schema.names
        delimiter = DELIMITERS[path.suffix]
        if len(first) == 1 and (other := set(";,\t|") & set(first[0])):
            raise UsageError(
                f"{path.name} has one column, {first[0]!r}. Expected {delimiter!r} between "
                f"columns, found {min(other)!r}.",
                path=path,
                expected=delimiter,
                found=min(other),
                advice=f"Write the file again with {delimiter!r} between columns.",
            )
        has_names = not any(map(NUMBER.fullmatch, first))
        names = _expanded(columns) if columns else first
        shown = delimiter.join(first[:5]) + (f"{delimiter}…" if len(first) > 5 else "")
        why = ""
        if not (columns or has_names):
            why = f"has numbers in its first line, {shown}; expected the names of columns"
        elif twice := [name for name, count in Counter(names).items() if count > 1]:
            why = f"has two columns named {twice[0]!r}"
        elif len(names) != len(first):
            why = f"has {len(first):,} columns, and {argument('columns')} names {len(names):,}"
        if why:
            option = by_reader("--columns a,b,c", 'columns=["a", "b", "c"]')
            raise UsageError(
                f"{path.name} {why}.",
                argument="columns",
                path=path,
                expected=len(first),
                found=names,
                advice=f"Name each of its {len(first):,} columns once: {option}; "
                "x_0..16 names 17 of them.",
            )
        replaced = f"is replaced by {argument('columns')}"
        meaning = replaced if has_names else "is read as a step"
        self.note = f"the first line, {shown}, {meaning}"
        if columns:
            self._options = {"column_names": names, "skip_rows_after_names": int(has_names)}
        self.schema = self._schema()

    def batches(self, names: list[str]) -> Iterator[Any]:
        """Yield the rows of some columns; reject a whole number that float64 would round."""
        import pyarrow as pa
        import pyarrow.compute as pc

        types = {name: self.schema.field(name).type for name in names}
        unchecked = {name for name, kind in types.items() if pa.types.is_floating(kind)}
        for batch in self._opened(column_types=types, include_columns=names):
            for name in [*unchecked]:
                if pc.any(pc.greater_equal(pc.abs(batch[name]), EXACT_BELOW)).as_py():
                    self._check_exact(name)
                    unchecked.remove(name)
            yield batch

    def _opened(self, **convert: Any) -> Any:
        from pyarrow import csv

        return csv.open_csv(
            str(self._path),
            csv.ReadOptions(block_size=BLOCK_BYTES, **self._options),
            csv.ParseOptions(delimiter=DELIMITERS[self._path.suffix]),
            csv.ConvertOptions(timestamp_parsers=[], **convert),
        )

    def _schema(self) -> Any:
        """Return the columns and their dtypes; all numbers of a vector have one dtype."""
        import pyarrow as pa

        from datasets_cli.exchange.arrow_table import table_columns

        types = self._types()
        floats = {
            name: pa.float64() if pa.types.is_integer(kind) else kind
            for name, kind in types.items()
        }
        for column in table_columns(pa.schema(floats))[0].values():
            names = [name for (name,) in column.paths]
            if len({types[name] for name in names}) > 1:
                types |= dict.fromkeys(names, pa.float64())
        return pa.schema(types)

    def _types(self) -> dict[str, Any]:
        """Return the dtypes of the first block, after a search for fractions in later blocks."""
        import pyarrow as pa
        import pyarrow.compute as pc

        schema = self._opened().schema
        types = dict(zip(schema.names, schema.types, strict=True))
        if all(map(pa.types.is_null, schema.types)):
            raise WrongRows(
                f"{self._path.name} has no rows below its first line. Expected one row for each "
                "step.",
                path=self._path,
            )
        whole = [name for name, kind in types.items() if pa.types.is_integer(kind)]
        if whole and self._path.stat().st_size > BLOCK_BYTES:
            for batch in self._texts(whole):
                for name in whole:
                    if pc.any(pc.match_substring_regex(batch[name], "[.eEnN]")).as_py():
                        types[name] = pa.float64()
        return types

    def _check_exact(self, name: str) -> None:
        """Reject a column with a whole number that float64 would round."""
        import pyarrow.compute as pc

        first = 0
        for batch in self._texts([name]):
            rows = pc.indices_nonzero(pc.match_substring_regex(batch[name], WHOLE))
            texts = batch[name].take(rows).to_pylist()
            numbers = zip((first + row for row in rows.to_pylist()), map(int, texts), strict=True)
            if wrong := first_rounded(numbers):
                row, number, problem = wrong
                raise WrongRows(
                    f"{self._path.name}: {name} {problem}.",
                    path=self._path,
                    key=name,
                    row=row,
                    expected="numbers that float64 represents exactly",
                    found=number,
                    advice="Write it with a fraction if rounding is acceptable, or as text.",
                )
            first += batch.num_rows

    def _texts(self, names: list[str]) -> Any:
        import pyarrow as pa

        return self._opened(column_types=dict.fromkeys(names, pa.string()), include_columns=names)


def _expanded(columns: Sequence[str]) -> list[str]:
    """Return the names with each range replaced: ``x_0..2`` by ``x_0``, ``x_1``, ``x_2``."""
    names = []
    for name in columns:
        vector = VECTOR.fullmatch(name)
        names += [f"{vector[1]}{n}" for n in range(int(vector[2]) + 1)] if vector else [name]
    return names
