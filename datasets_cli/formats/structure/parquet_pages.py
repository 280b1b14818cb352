"""What the pages of a Parquet file say they have unpacked, found without unpacking one.

    column chunk    header page | header page | …      a dictionary first, where there is one
    header          Thrift's compact protocol: kind, unpacked and packed bytes, number of values

A page is unpacked whole, and its header alone says how much that is; what the footer says of it
may be wrong. Facts: ``parquet.thrift``, and Thrift's specification of the compact protocol.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from datasets_cli.formats.limits import check_limit

MAGIC = b"PAR1"
END = struct.Struct("<I4s")
"""Of a file: the size of its footer before it, and the magic."""

DATA_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = 0, 2, 3
BYTE_ARRAY = 6
"""The type of texts and bytes of any length."""
VALUE_BYTES = 8

HEADER_BYTES = (1 << 10, 16 << 20)
"""Of a header, which has less than the first but where long texts are in its statistics."""
MAX_DEPTH = 16
MAX_STRUCTS = 1_000_000

ThriftValue = Any
"""A whole number, a truth, a ``Struct``, a list of them, or None for what is passed over."""
Struct = dict[int, ThriftValue]


class BadPage(ValueError):
    """The bytes are not a page's header."""


class _CutOff(BadPage):
    """There are not enough bytes."""


@dataclass(frozen=True)
class Page:
    """One page.

    Args:
        kind: ``DATA_PAGE``, ``DATA_PAGE_V2``, ``DICTIONARY_PAGE`` or another.
        num_bytes: unpacked.
        num_values: values, with those that are missing.
    """

    kind: int
    num_bytes: int
    num_values: int


@dataclass(frozen=True)
class Cost:
    """What reading takes.

    Args:
        total_bytes: all pages, and all values.
        row_bytes: the most that a row takes, on the average of a page.
        dictionary_bytes: of the largest dictionaries of texts: a row may be a whole one.
    """

    total_bytes: int
    row_bytes: int
    dictionary_bytes: int

    def num_rows(self, room: int, *, keeps_dictionaries: bool = False) -> int:
        """Return how many rows may be decoded at a time, at least one.

        Args:
            room: bytes for them.
            keeps_dictionaries: whether texts stay numbers of values.
        """
        row_bytes = self.row_bytes + (0 if keeps_dictionaries else self.dictionary_bytes)
        return max(1, room // max(1, row_bytes))


def cost_of(file: BinaryIO, name: str) -> Cost:
    """Return what reading a file takes, after checking each of its pages.

    The footer is read here too: pyarrow ends the process over some that are damaged.

    Args:
        file: the file.
        name: of the file, for messages.

    Raises:
        BadPage: the footer, or a page, is not one.
        SourceError: a page is larger than what is unpacked at once.
    """
    total = 0
    rows: dict[int, int] = {}
    dictionaries: dict[int, int] = {}
    for group in _structs(_footer(file), 4):
        num_rows = max(1, _number(group, 3))
        for number, chunk in enumerate(_structs(group, 1)):
            facts = _struct(chunk, 3)
            # Values of lists: several make a row.
            values_of_row = max(1, -(-_number(facts, 5) // num_rows))
            for page in _pages(file, facts):
                check_limit("chunk_bytes", page.num_bytes, f"{name}: a page of its columns")
                total += page.num_bytes
                if page.kind == DICTIONARY_PAGE:
                    if _number(facts, 1) == BYTE_ARRAY:
                        dictionaries[number] = max(dictionaries.get(number, 0), page.num_bytes)
                    continue
                total += page.num_values * VALUE_BYTES
                size = page.num_bytes // max(1, page.num_values) + VALUE_BYTES
                rows[number] = max(rows.get(number, 0), size * values_of_row)
    return Cost(total, sum(rows.values()), sum(dictionaries.values()))


def _footer(file: BinaryIO) -> Struct:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - END.size))
    end = file.read(END.size)
    if len(end) < END.size:
        raise BadPage(f"it has {size} bytes")
    length, magic = END.unpack(end)
    if magic != MAGIC or length > size - END.size:
        raise BadPage(f"it ends with {end!r}")
    file.seek(size - END.size - length)
    return _Compact(file.read(length)).struct()


def _pages(file: BinaryIO, facts: Struct) -> Iterator[Page]:
    """Yield the pages of a column chunk where pyarrow looks for them."""
    position, dictionary = _number(facts, 9), _number(facts, 11)
    if 0 < dictionary < position:
        position = dictionary
    end = position + _number(facts, 7)
    num_left = _number(facts, 5)
    while position < end and num_left > 0:
        fields, header_bytes = _header(file, position, end)
        kind, unpacked, packed = (_number(fields, number) for number in (1, 2, 3))
        inner = {DATA_PAGE: 5, DICTIONARY_PAGE: 7, DATA_PAGE_V2: 8}.get(kind)
        num_values = _number(_struct(fields, inner), 1) if inner else 0
        yield Page(kind, unpacked, num_values)
        if kind != DICTIONARY_PAGE:
            num_left -= num_values
        position += header_bytes + packed


def _number(fields: Struct, number: int) -> int:
    """Return a field that is a whole number; 0 where it is not there."""
    value = fields.get(number, 0)
    if not isinstance(value, int) or value < 0:
        raise BadPage(f"a field {number} is {value!r}, where a number was expected")
    return value


def _struct(fields: Struct, number: int) -> Struct:
    """Return a field that is a struct; an empty one where it is not there."""
    value = fields.get(number)
    return value if isinstance(value, dict) else {}


def _structs(fields: Struct, number: int) -> list[Struct]:
    """Return a field that is a list of structs; an empty one where it is not there."""
    value = fields.get(number)
    return value if isinstance(value, list) else []


def _header(file: BinaryIO, position: int, end: int) -> tuple[Struct, int]:
    """Return the fields of a page's header, and its size."""
    file.seek(position)
    data = b""
    for size in HEADER_BYTES:
        data += file.read(min(size, end - position) - len(data))
        reader = _Compact(data)
        try:
            return reader.struct(), reader.position
        except _CutOff:
            continue
    raise BadPage(f"the header of a page at byte {position} is cut off")


class _Compact:
    """Reads structs of Thrift's compact protocol; texts are passed over."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._num_structs = 0
        self.position = 0

    def struct(self, depth: int = 0) -> Struct:
        """Return the fields of a struct by their numbers."""
        self._num_structs += 1
        if depth > MAX_DEPTH or self._num_structs > MAX_STRUCTS:
            raise BadPage("a footer, or the header of a page, has too many parts")
        fields: Struct = {}
        number = 0
        while head := self._byte():
            # A field is some numbers after the last one, or says its own.
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            fields[number] = self._value(head & 15, depth)
        return fields

    def _value(self, kind: int, depth: int) -> ThriftValue:
        if kind in (1, 2):  # true and false have no bytes of their own
            return kind == 1
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._zigzag()
        if kind == 12:
            return self.struct(depth + 1)
        if kind in (9, 10):
            return self._list(depth + 1)
        if kind not in (7, 8):
            raise BadPage(f"a field has the type {kind}")
        size = 8 if kind == 7 else self._varint()  # which moves the position itself
        self.position += size
        return None

    def _list(self, depth: int) -> list[Struct]:
        """Return the items of a list that are structs."""
        if depth > MAX_DEPTH:
            raise BadPage("a list is nested too deep")
        head = self._byte()
        count = head >> 4 if head >> 4 < 15 else self._varint()
        if head & 15 in (1, 2):  # in a list they have a byte each
            self.position += count
            return []
        structs = []
        for _ in range(count):
            if self.position >= len(self._data):
                raise _CutOff("a list is cut off")
            value = self._value(head & 15, depth)
            if isinstance(value, dict):
                structs.append(value)
        return structs

    def _byte(self) -> int:
        if self.position >= len(self._data):
            raise _CutOff("the header of a page is cut off")
        self.position += 1
        return self._data[self.position - 1]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128 or shift > 63:
                return value
            shift += 7

    def _zigzag(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)
