r"""ARFF: Weka's tables as text, read in bounded blocks.

    @relation flowers
    @attribute 'petal width' numeric
    @attribute class {setosa, 'virginica, young', '?'}
    @data
    1.5, setosa
    ?, 'virginica, young'       a bare ? is missing; a quoted one is the label
    {1 '?'}                     a sparse row: what it does not name is 0, or the first label

Neither scikit-learn nor pandas has a public reader of this: ``fetch_openml`` opens connections of
its own and holds the whole table, and ``pandas.read_csv`` knows one quote character, ends a line at
any %, takes a quoted "?" for missing and fills short rows with NaN.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from datasets_cli.errors import SourceError
from datasets_cli.store.schema.columns import rows_per_block

NUMERIC, NOMINAL, TEXT = "numeric", "nominal", "text"
KINDS = {"numeric": NUMERIC, "real": NUMERIC, "integer": NUMERIC, "string": TEXT, "date": TEXT}

CELL_BYTES = 1024
"""Of a parsed value: about four times what it takes, so that a block stays in the cache."""
MISSING = ("?", "")
NAN = float("nan")

Value = str | None
"""A value as it is written, without its quotes; None where it is missing."""

_KEYWORD = re.compile(r"@(\w+)\s*(.*)", re.DOTALL)
_QUOTED = r"""'(?P<single>(?:[^'\\]|\\.|'')*)'|"(?P<double>(?:[^"\\]|\\.|"")*)\""""
_VALUE = rf"""(?:{_QUOTED}|(?P<bare>(?!['"])[^,]*?))\s*,"""
_DENSE = re.compile(rf"\s*+{_VALUE}", re.DOTALL)
_SPARSE = re.compile(rf"\s*(?P<column>\d+)\s++{_VALUE}", re.DOTALL)
_NAMED = re.compile(rf"(?:{_QUOTED}|(?P<bare>[^\s{{]+))\s*(?P<type>.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


@dataclass(frozen=True)
class Attribute:
    """One column of the file.

    Args:
        name: without its quotes.
        kind: ``NUMERIC``, ``NOMINAL``, or ``TEXT`` (strings and dates).
        labels: the values that a nominal column declares, in that order.
    """

    name: str
    kind: str
    labels: tuple[str, ...] = ()

    def to_floats(self, values: Sequence[Value]) -> list[float]:
        """Return the values as numbers; a ValueError or KeyError says that one cannot be."""
        if self.kind == NOMINAL:
            index: dict[Value, float] = {label: float(i) for i, label in enumerate(self.labels)}
            return list(map((index | {None: NAN}).__getitem__, values))
        if None in values:
            return [NAN if value is None else float(value) for value in values]
        return list(map(float, values))  # type: ignore[arg-type]  # none of them is None

    def has(self, value: Value) -> bool:
        """Tell whether the column may have this value."""
        try:
            return bool(self.to_floats([value]))
        except (ValueError, KeyError):
            return False

    @property
    def absent(self) -> Value:
        """The value that a sparse row does not name."""
        return "0" if self.kind == NUMERIC else next(iter(self.labels), None)


class Arff:
    """An open file, its header read and its rows still to come.

    Args:
        name: of the file, for messages.
        lines: every line with its number.

    Raises:
        SourceError: the header is not one.
    """

    def __init__(self, name: str, lines: Iterator[tuple[int, str]]) -> None:
        self.name = name
        self._lines = lines
        self.attributes = tuple(self._header())

    def blocks(self, columns: Sequence[int]) -> Iterator[np.ndarray]:
        """Yield the rest of the rows: float64 ``[n, len(columns)]``.

        A nominal value is its position in the declaration, a missing value NaN.

        Args:
            columns: numbers of the wanted columns, none of them ``TEXT``.

        Raises:
            SourceError: a row is not one, or has a value that its column cannot have; names it.
        """
        rows = self._rows()
        step = rows_per_block(CELL_BYTES * len(self.attributes))
        while block := list(islice(rows, step)):
            values = list(zip(*(row for _, row in block), strict=True))
            table = np.empty((len(block), len(columns)))
            for position, column in enumerate(columns):
                try:
                    table[:, position] = self.attributes[column].to_floats(values[column])
                except (ValueError, KeyError):
                    raise self._wrong_value(block, column) from None
            yield table

    def _header(self) -> Iterator[Attribute]:
        for number, line in self._lines:
            text = line.strip()
            if not text or text[0] == "%":
                continue
            match = _KEYWORD.match(text)
            keyword = match[1].lower() if match else ""
            if keyword == "data":
                return
            if keyword == "attribute" and match:
                yield self._attribute(number, match[2])
            elif keyword != "relation":
                raise self._error(number, f"expected a line of an ARFF header, found {text[:60]!r}")
        raise SourceError(f"{self.name} is not ARFF, or ends too early: it has no @data line.")

    def _attribute(self, number: int, text: str) -> Attribute:
        match = _NAMED.match(text)
        if match is None:
            raise self._error(number, f"an attribute has no name: {text[:60]!r}")
        name, declared = _text(match), match["type"]
        word = declared.partition(" ")[0].lower()
        if word in KINDS:
            return Attribute(name, KINDS[word])
        inside, brace, _ = declared.removeprefix("{").rpartition("}")
        if not (brace and declared[0] == "{"):
            raise self._error(
                number,
                f"{name!r} has the type {word!r}; expected {{…}} or one of {', '.join(KINDS)}",
            )
        labels = self._dense(number, inside) if inside.strip() else []
        return Attribute(name, NOMINAL, tuple("?" if v is None else v for v in labels))

    def _rows(self) -> Iterator[tuple[int, list[Value]]]:
        absent = [attribute.absent for attribute in self.attributes]
        for number, line in self._lines:
            text = line.strip()
            if not text or text[0] == "%":
                continue
            row = (
                self._sparse(number, text, absent) if text[0] == "{" else self._dense(number, text)
            )
            if len(row) != len(absent):
                raise self._error(number, f"expected {len(absent)} values, found {len(row)}")
            yield number, row

    def _dense(self, number: int, text: str) -> list[Value]:
        if "'" in text or '"' in text:
            return [_value(match) for match in self._matches(number, _DENSE, text)]
        values = text.split(",")
        if " " in text or "\t" in text:
            values = [value.strip() for value in values]
        if "?" in text or "" in values:
            return [None if value in MISSING else value for value in values]
        return list(values)

    def _sparse(self, number: int, text: str, absent: list[Value]) -> list[Value]:
        row = list(absent)
        inside = text[1:-1].strip()
        if not text.endswith("}"):
            raise self._error(number, "a sparse row has no closing brace")
        for match in self._matches(number, _SPARSE, inside) if inside else ():
            column = int(match["column"])
            if column >= len(row):
                raise self._error(number, f"there is no column {column}, only {len(row)}")
            row[column] = _value(match)
        return row

    def _matches(self, number: int, pattern: re.Pattern[str], text: str) -> list[re.Match[str]]:
        matches = list(pattern.finditer(f"{text},"))
        if sum(len(match[0]) for match in matches) != len(text) + 1:
            raise self._error(number, "a quote does not end, or a value is not one")
        return matches

    def _wrong_value(self, block: list[tuple[int, list[Value]]], column: int) -> SourceError:
        attribute = self.attributes[column]
        labels = ", ".join(attribute.labels[:10])
        expected = f"one of {labels}" if attribute.kind == NOMINAL else "a number"
        number, value = next((n, row[column]) for n, row in block if not attribute.has(row[column]))
        return self._error(number, f"{attribute.name!r} is {value!r}; expected {expected}")

    def _error(self, number: int, what: str) -> SourceError:
        return SourceError(f"{self.name}, line {number}: {what}.")


@contextmanager
def open_arff(path: Path) -> Iterator[Arff]:
    """Open an ARFF file and read its header.

    Raises:
        SourceError: the header is not one.
    """
    # Some files are Latin-1: what is not UTF-8 stays distinct, in names and labels alike.
    with path.open(encoding="utf-8-sig", errors="backslashreplace", newline="\n") as file:
        yield Arff(path.name, enumerate(file, 1))


def _value(match: re.Match[str]) -> Value:
    return None if match["bare"] in MISSING else _text(match)


def _text(match: re.Match[str]) -> str:
    """Return what is matched: bare, or without its quotes, doubled quotes and escapes."""
    bare, single, double = match.group("bare", "single", "double")
    if bare is not None:
        return str(bare)
    text = double.replace('""', '"') if single is None else single.replace("''", "'")
    return _ESCAPE.sub(_unescaped, text) if "\\" in text else text


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    return chr(int(code[1:], 16)) if len(code) == 5 else _CONTROLS.get(code, code)
