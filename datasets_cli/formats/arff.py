r"""ARFF: Weka's tables as text, read in bounded blocks.

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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from datasets_cli.errors import SourceError
from datasets_cli.formats.arff_line import (
    COMMENT,
    plain_row,
    readings,
    sparse_row,
    split_labels,
    split_name,
)
from datasets_cli.formats.attribute import NOMINAL, NUMERIC, TEXT, Attribute, AttributeValue
from datasets_cli.formats.limits import LABEL_BYTES, check_limit, limit
from datasets_cli.schema.columns import rows_per_block

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
        name: of the file, for messages.
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
