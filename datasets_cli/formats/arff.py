r"""ARFF files: the header, and blocks of rows.

    1.5, setosa                 separated by commas
    1.5 <tab> setosa            or by tabs, of which two with nothing between mean a missing value
    ?, 'it\'s, ''young'''       a bare ? is missing; a quoted one is the label
    2, setosa  % doubtful       a comment after the values

Unquoted text may contain tabs and percent signs. So a line has several readings, and the number and
kinds of the columns decide which one is right.

    @relation flowers
    @attribute 'petal width' numeric
    @attribute class {setosa, 'virginica, young', '?'}
    @data
    1.5, setosa
    ?, 'virginica, young'       a bare ? is missing; a quoted one is the label
    {1 '?'}                     a sparse row: an omitted value is 0, or the first label

Neither scikit-learn nor pandas has a public reader of ARFF: ``fetch_openml`` opens its own
connections and holds the whole table; ``pandas.read_csv`` supports one quote character, ends a line
at any %, reads a quoted "?" as missing and fills short rows with NaN.
"""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np

from datasets_cli.errors import SourceError
from datasets_cli.formats.limits import LABEL_BYTES, check_limit, limit
from datasets_cli.schema.columns import rows_per_block

NUMERIC, NOMINAL, TEXT = "numeric", "nominal", "text"

NAN = float("nan")

AttributeValue = str | None
"""The text of a value without its quotes; None if it is missing."""


@dataclass(frozen=True)
class Attribute:
    """One column of a table file.

    Args:
        name: without its quotes.
        kind: ``NUMERIC``, ``NOMINAL``, or ``TEXT`` (strings and dates).
        labels: the declared values of a nominal column, in order.
    """

    name: str
    kind: str
    labels: tuple[str, ...] = ()

    def to_floats(self, values: Sequence[AttributeValue]) -> list[float]:
        """Return the values as numbers.

        Raises:
            ValueError, KeyError: a value is not a number, or not a label.
        """
        if self.kind == NOMINAL:
            return list(map(self._positions.__getitem__, values))
        if None in values:
            return [NAN if value is None else float(value) for value in values]
        return list(map(float, values))  # type: ignore[arg-type]  # none of them is None

    def has(self, value: AttributeValue) -> bool:
        """Return whether the column can have this value."""
        try:
            return self.kind == TEXT or bool(self.to_floats([value]))
        except (ValueError, KeyError):
            return False

    @property
    def absent(self) -> AttributeValue:
        """The value of this column in a sparse row that omits it."""
        return "0" if self.kind == NUMERIC else next(iter(self.labels), None)

    @cached_property
    def _positions(self) -> dict[AttributeValue, float]:
        positions: dict[AttributeValue, float] = {
            label: float(i) for i, label in enumerate(self.labels)
        }
        return positions | {None: NAN}


MISSING = ("?", "")
COMMENT = "%"
MOST_DIGITS = 18

Converted = TypeVar("Converted")

_QUOTED = r"""'(?P<single>(?:[^'\\]|\\.|'')*+)'|"(?P<double>(?:[^"\\]|\\.|"")*+)\""""


def _dense(blank: str, separator: str, *, comment: bool) -> re.Pattern[str]:
    """Return the pattern of a value and its separator; possessive, so it matches in linear time."""
    # A % directly after a character other than a blank is part of the value, as in 10%.
    character = rf"(?:[^{separator}%]|(?<!\s)%)" if comment else rf"[^{separator}]"
    bare = rf"(?!['\"{'%' if comment else ''}])(?P<bare>{character}*+)"
    end = rf"(?:\s*%.*|[{separator}])" if comment else rf"[{separator}]"
    return re.compile(rf"{blank}*+(?:(?:{_QUOTED}){blank}*+|{bare}){end}", re.DOTALL)


_COMMAS = _dense(r"\s", ",", comment=False)
_COMMAS_AND_COMMENT = _dense(r"\s", ",", comment=True)
_TABS = _dense("[ ]", r",\t", comment=False)
_TABS_AND_COMMENT = _dense("[ ]", r",\t", comment=True)
_LABEL = re.compile(
    rf"\s*+(?:(?:{_QUOTED})\s*+|(?!['\"])(?P<bare>[^,}}]*+))(?P<end>[,}}])", re.DOTALL
)
_SPARSE = re.compile(
    rf"\s*+(?P<column>\d++)\s++(?:(?:{_QUOTED})\s*+|(?!['\"])(?P<bare>[^,]*+)),", re.DOTALL
)
_NAMED = re.compile(rf"(?:{_QUOTED}|(?P<bare>[^\s{{]+))\s*(?P<type>.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|[0-7]{1,3}|.)", re.DOTALL)
_CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}


def plain_row(text: str) -> list[AttributeValue] | None:
    """Return the values between the commas of a row; None if it contains quotes."""
    if "'" in text or '"' in text:
        return None
    values = text.split(",")
    if " " in text or "\t" in text:
        values = [value.strip() for value in values]
    if "?" in text or "" in values:
        return [None if value in MISSING else value for value in values]
    return list(values)


def readings(line: str) -> Iterator[list[AttributeValue]]:
    """Yield the readings of a dense row, the likeliest first.

    Args:
        line: without its line end. Tabs at its ends may be separators.
    """
    yield from _readings(line.strip(), _COMMAS, _COMMAS_AND_COMMENT)
    if "\t" in line:
        yield from _readings(line, _TABS, _TABS_AND_COMMENT)
        if (text := line.strip()) != line:
            yield from _readings(text, _TABS, _TABS_AND_COMMENT)


def sparse_row(text: str) -> list[tuple[int, AttributeValue]] | None:
    """Return column numbers and values; None if the line is not a sparse row.

    Args:
        text: a line that begins with a brace.
    """
    inside, _, rest = text[1:].rpartition("}")
    if rest.strip() and not rest.lstrip().startswith(COMMENT):
        return None
    return _matched(_SPARSE, inside, _cell) if inside.strip() else []


def split_labels(text: str) -> tuple[tuple[str, ...], str] | None:
    """Return the labels of an attribute and the text after them.

    Args:
        text: the text after the opening brace.

    Returns:
        None if a quote or the list does not end.
    """
    labels, position, end = [], 0, ","
    while end == ",":
        match = _LABEL.match(text, position)
        if match is None:
            return None
        # An empty label cannot be a value: an empty value is missing.
        labels.append(_text(match) or ("" if match["bare"] is None else "?"))
        position, end = match.end(), match["end"]
    return tuple(labels) if text[: position - 1].strip() else (), text[position:]


def split_name(text: str) -> tuple[str, str] | None:
    """Return the name of an attribute and its type; None if it has no name."""
    match = _NAMED.match(text)
    return (_text(match), match["type"]) if match else None


def _readings(
    text: str, plain: re.Pattern[str], commented: re.Pattern[str]
) -> Iterator[list[AttributeValue]]:
    if (values := _matched(plain, text, _value)) is not None:
        yield values
    if COMMENT in text and (values := _matched(commented, text, _value)) is not None:
        yield values


def _matched(
    pattern: re.Pattern[str], text: str, convert: Callable[[re.Match[str]], Converted]
) -> list[Converted] | None:
    """Return each match, converted; None if the matches do not cover the whole text."""
    # A match takes a hundred times the memory of a short value.
    num_matched = 0
    converted = []
    for match in pattern.finditer(f"{text},"):
        num_matched += match.end() - match.start()
        converted.append(convert(match))
    return converted if num_matched == len(text) + 1 else None


def _cell(match: re.Match[str]) -> tuple[int, AttributeValue]:
    digits = match["column"].lstrip("0") or "0"
    # Python rejects thousands of digits; no table has that many columns.
    return int(digits[:MOST_DIGITS]), _value(match)


def _value(match: re.Match[str]) -> AttributeValue:
    bare = match["bare"]
    return None if bare is not None and bare.strip() in MISSING else _text(match)


def _text(match: re.Match[str]) -> str:
    """Return the text of a match without its quotes, doubled quotes and escapes."""
    bare, single, double = match.group("bare", "single", "double")
    if bare is not None:
        return str(bare).strip()
    text = double.replace('""', '"') if single is None else single.replace("''", "'")
    return _ESCAPE.sub(_unescaped, text) if "\\" in text else text


def _unescaped(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] == "u" and len(code) == 5:
        return chr(int(code[1:], 16))
    # liac-arff writes control characters as octal numbers.
    return chr(int(code, 8)) if code[0] in "01234567" else _CONTROLS.get(code, code)


UTF_8, LATIN_1 = "utf-8", "latin-1"
KINDS = {"numeric": NUMERIC, "real": NUMERIC, "integer": NUMERIC, "string": TEXT, "date": TEXT}

CELL_BYTES = 1024
"""About four times the memory of a parsed value: a block then fits into the cache."""
BLOCK_CHARACTERS = 8 << 20
"""About the length of a block's lines, which are in memory together with their values."""
LINE_WEIGHT = 8
"""The memory of a line's values for each byte of the line."""
SHOWN = 60
"""The number of a line's characters in messages."""

_KEYWORD = re.compile(r"@(\w+)\s*(.*)", re.DOTALL)
_WORD = re.compile(r"\w+")

NumberedLine = tuple[int, str]
"""The number of a line, counted from 1, and its text."""
Row = tuple[NumberedLine, list[AttributeValue]]


class Arff:
    """An open ARFF file after its header.

    Args:
        name: the name of the file, for messages.
        lines: every line with its number.
        encoding: ``UTF_8`` or ``LATIN_1``, which is noted.

    Raises:
        SourceError: the header is not valid.
    """

    def __init__(self, name: str, lines: Iterator[NumberedLine], encoding: str = UTF_8) -> None:
        self.name = name
        self._lines = lines
        self._label_bytes = 0
        self.attributes = tuple(self._header())
        latin_1 = f"{name} is not UTF-8 throughout: each of its bytes is read as Latin-1"
        self.notes: tuple[str, ...] = () if encoding == UTF_8 else (latin_1,)

    def blocks(self, columns: Sequence[int]) -> Iterator[np.ndarray]:
        """Yield the remaining rows: float64 ``[n, len(columns)]``.

        A nominal value is its position in the declaration, a missing value NaN.

        Args:
            columns: the numbers of columns that are not ``TEXT``.

        Raises:
            SourceError: a row is not valid, or has a value that its column cannot have.
        """
        rows = self._rows()
        step = rows_per_block(CELL_BYTES * len(self.attributes))
        while block := _block(rows, step):
            values = list(zip(*(row for _, row in block), strict=True))
            table = np.empty((len(block), len(columns)))
            for position, column in enumerate(columns):
                try:
                    table[:, position] = self.attributes[column].to_floats(values[column])
                except (ValueError, KeyError):
                    raise self._wrong_value(block, column) from None
            yield table

    def _header(self) -> Iterator[Attribute]:
        num_columns = 0
        for line in self._lines:
            text = line[1].strip()
            if not text or text[0] == COMMENT:
                continue
            match = _KEYWORD.match(text)
            keyword = match[1].lower() if match else ""
            if keyword == "data" and match:
                if match[2] and match[2][0] != COMMENT:
                    raise self._error(line, "expected nothing after @data, whose rows follow it")
                return
            if keyword == "attribute" and match:
                num_columns += 1
                check_limit("columns", num_columns, self.name)
                yield self._attribute(line, match[2])
            elif keyword != "relation":
                raise self._error(line, "expected a line of an ARFF header")
        raise SourceError(
            f"{self.name} is not ARFF, or ends too early: it has no @data line.",
            path=self.name,
            expected="@data",
        )

    def _attribute(self, line: NumberedLine, text: str) -> Attribute:
        named = split_name(text)
        if named is None:
            raise self._error(line, "expected the name of an attribute")
        name, declared = named
        if declared[:1] == "{" and "}" in declared:
            return Attribute(name, NOMINAL, self._labels(line, declared[1:]))
        # After the word stands a range (``real [0,10]``), the form of a date, or a comment.
        match = _WORD.match(declared)
        word = match[0].lower() if match else ""
        if word not in KINDS:
            raise self._error(
                line,
                f"{name!r} has the type {word or declared[:SHOWN]!r}; expected {{…}} or one of "
                f"{', '.join(KINDS)}",
            )
        return Attribute(name, KINDS[word])

    def _labels(self, line: NumberedLine, text: str) -> tuple[str, ...]:
        labels_and_rest = split_labels(text)
        if labels_and_rest is None:
            raise self._error(line, "a quote does not end, or a label is not valid")
        labels, rest = labels_and_rest
        self._label_bytes += LABEL_BYTES * len(labels) + sum(map(len, labels))
        check_limit("text_bytes", self._label_bytes, f"{self.name}, in its labels,")
        if rest.strip() and rest.strip()[0] not in f"{COMMENT}[":
            raise self._error(line, f"expected nothing after the labels, found {rest[:SHOWN]!r}")
        return labels

    def _rows(self) -> Iterator[Row]:
        absent = [attribute.absent for attribute in self.attributes]
        for line in self._lines:
            text = line[1].strip()
            if not text or text[0] == COMMENT:
                continue
            yield line, self._sparse(line, absent) if text[0] == "{" else self._dense(line, text)

    def _dense(self, line: NumberedLine, text: str) -> list[AttributeValue]:
        """Return the first reading of a row that fits the columns."""
        expected = len(self.attributes)
        if COMMENT not in text and (row := plain_row(text)) and len(row) == expected:
            return row  # nearly every row, by far the fastest way
        # With a comment, or a comma between quotes, the number of values is not enough.
        unclear = COMMENT in text or "\t" in text
        num_values: int | None = None  # in the likeliest reading
        fitting: list[AttributeValue] | None = None
        for row in readings(line[1].strip(" \r\n")):
            if len(row) == expected and (not unclear or self._has(row)):
                return row
            num_values = len(row) if num_values is None else num_values
            if len(row) == expected and fitting is None:
                fitting = row
        if fitting is not None:
            return fitting  # ``blocks`` names the wrong value
        if num_values is None:
            raise self._error(line, "a quote does not end, or a value is not valid")
        raise self._error(
            line,
            f"expected {expected} values, found {num_values}",
            expected=expected,
            found=num_values,
        )

    def _has(self, row: list[AttributeValue]) -> bool:
        return all(column.has(value) for column, value in zip(self.attributes, row, strict=True))

    def _sparse(self, line: NumberedLine, absent: list[AttributeValue]) -> list[AttributeValue]:
        text = line[1].strip()
        if "}" not in text:
            raise self._error(line, "a sparse row has no closing brace")
        cells = sparse_row(text)
        if cells is None:
            raise self._error(line, "a quote does not end, or a value is not valid")
        row = list(absent)
        for column, value in cells:
            if column >= len(row):
                raise self._error(
                    line,
                    f"column {column} does not exist; the table has {len(row)} columns",
                    expected=len(row),
                    found=column,
                )
            row[column] = value
        if len({column for column, _ in cells}) != len(cells):
            raise self._error(line, "a sparse row has two values of one column")
        return row

    def _wrong_value(self, block: list[Row], column: int) -> SourceError:
        attribute = self.attributes[column]
        labels = ", ".join(attribute.labels[:10])
        expected = f"one of {labels}" if attribute.kind == NOMINAL else "a number"
        line, value = next((n, row[column]) for n, row in block if not attribute.has(row[column]))
        return self._error(
            line,
            f"{attribute.name!r} is {value!r}; expected {expected}",
            key=attribute.name,
            expected=expected,
            found=value,
        )

    def _error(self, line: NumberedLine, problem: str, **details: Any) -> SourceError:
        number, text = line
        begins = repr(text.strip()[:SHOWN])
        return SourceError(
            f"{self.name}, line {number}: {problem}. The line begins: {begins}",
            path=self.name,
            row=number,
            **details,
        )


def _block(rows: Iterator[Row], num_rows: int) -> list[Row]:
    """Return the next rows, fewer if their lines are long."""
    block, num_characters = [], 0
    for row in islice(rows, num_rows):
        block.append(row)
        num_characters += len(row[0][1])
        if num_characters > BLOCK_CHARACTERS:
            break
    return block


@contextmanager
def open_arff(path: Path) -> Iterator[Arff]:
    """Open an ARFF file and read its header.

    If a byte of the file is not UTF-8, the whole file is read as Latin-1, in which each byte is a
    character.

    Raises:
        SourceError: the header is not valid.
    """
    with path.open("rb") as file:
        encoding = UTF_8 if _is_utf8(path.name, file) else LATIN_1
        has_mark = file.read(3) == codecs.BOM_UTF8
        file.seek(3 if has_mark else 0)
        text = io.TextIOWrapper(file, encoding, newline="\n")
        yield Arff(path.name, enumerate(text, 1), encoding)


def _is_utf8(name: str, file: BinaryIO) -> bool:
    """Return whether all bytes of a file are UTF-8; rewind the file."""
    decoder = codecs.getincrementaldecoder(UTF_8)()
    is_utf8 = True
    for block in _blocks(name, file):
        if is_utf8:
            try:
                decoder.decode(block, final=not block)
            except UnicodeDecodeError:
                is_utf8 = False
    file.seek(0)
    return is_utf8


def _blocks(name: str, file: BinaryIO) -> Iterator[bytes]:
    """Yield the bytes of a file, and an empty block at the end; check the length of each line."""
    most = limit("row_bytes") // LINE_WEIGHT
    num_open = 0  # bytes of the line that the block before did not end
    while block := file.read(min(1 << 20, max(1, most))):
        # A line within one block is not longer than the block.
        end = block.find(b"\n")
        first = len(block) if end < 0 else end
        check_limit("row_bytes", LINE_WEIGHT * (num_open + first), f"a line of {name}")
        num_open = num_open + first if end < 0 else len(block) - 1 - block.rfind(b"\n")
        yield block
    yield b""
