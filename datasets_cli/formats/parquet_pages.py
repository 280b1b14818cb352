"""What the pages of a Parquet file say they have unpacked, found without unpacking one.

    column chunk    header page | header page | …      a dictionary first, where there is one
    header          Thrift's compact protocol: kind, unpacked and packed bytes, number of values

A page is unpacked whole, and its header alone says how much that is; what the footer says of it
may be wrong. Facts: ``parquet.thrift``, and Thrift's specification of the compact protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow.parquet as pq

from datasets_cli.formats.limits import check_limit

DATA_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 = 0, 2, 3
HEADER_BYTES = (1 << 10, 16 << 20)
"""Of a header, which has less than the first but where long texts are in its statistics."""

MAX_DEPTH = 8
_VALUE_BYTES = 8


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


def cost_of(file: BinaryIO, metadata: pq.FileMetaData, name: str) -> Cost:
    """Return what reading a file takes, after checking each of its pages.

    Args:
        file: the file.
        metadata: its footer.
        name: of the file, for messages.

    Raises:
        BadPage: a page is not one.
        SourceError: it is larger than what is unpacked at once.
    """
    total = 0
    rows = [0] * metadata.num_columns
    dictionaries = [0] * metadata.num_columns
    for group in range(metadata.num_row_groups):
        num_rows = max(1, metadata.row_group(group).num_rows)
        for number in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(number)
            is_text = chunk.physical_type == "BYTE_ARRAY"
            for page in _pages(file, chunk):
                check_limit("chunk_bytes", page.num_bytes, f"{name}: a page of its columns")
                total += page.num_bytes
                if page.kind == DICTIONARY_PAGE:
                    if is_text:
                        dictionaries[number] = max(dictionaries[number], page.num_bytes)
                    continue
                total += page.num_values * _VALUE_BYTES
                # Values of lists: several make a row, of which there are at most so many.
                values_of_row = -(-chunk.num_values // num_rows)
                size = page.num_bytes // max(1, page.num_values) + _VALUE_BYTES
                rows[number] = max(rows[number], size * max(1, values_of_row))
    return Cost(total, sum(rows), sum(dictionaries))


def _pages(file: BinaryIO, chunk: Any) -> Iterator[Page]:
    """Yield the pages of a column chunk where pyarrow looks for them."""
    position, dictionary = chunk.data_page_offset, chunk.dictionary_page_offset
    if dictionary is not None and 0 < dictionary < position:
        position = dictionary
    end = position + chunk.total_compressed_size
    num_left = chunk.num_values
    while position < end and num_left > 0:
        fields, header_bytes = _header(file, position, end)
        kind, unpacked, packed = (fields.get(number) for number in (1, 2, 3))
        if not (isinstance(kind, int) and isinstance(unpacked, int) and isinstance(packed, int)):
            raise BadPage(f"no header of a page at byte {position}")
        if unpacked < 0 or packed < 0:
            raise BadPage(f"a page at byte {position} has {min(packed, unpacked)} bytes")
        inner = {DATA_PAGE: 5, DICTIONARY_PAGE: 7, DATA_PAGE_V2: 8}.get(kind)
        says = fields.get(inner) if inner else None
        num_values = says.get(1, 0) if isinstance(says, dict) else 0
        if not isinstance(num_values, int) or num_values < 0:
            raise BadPage(f"a page at byte {position} has {num_values} values")
        yield Page(kind, unpacked, num_values)
        if kind != DICTIONARY_PAGE:
            num_left -= num_values
        position += header_bytes + packed


def _header(file: BinaryIO, position: int, end: int) -> tuple[dict[int, Any], int]:
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
    """Reads structs of Thrift's compact protocol: whole numbers and structs are kept."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Return the fields of a struct by their numbers."""
        if depth > MAX_DEPTH:
            raise BadPage("the header of a page is nested too deep")
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            # A field is some numbers after the last one, or says its own.
            number = number + (head >> 4) if head >> 4 else self._zigzag()
            fields[number] = self._value(head & 15, depth)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if kind in (1, 2):  # true and false have no bytes of their own
            return kind == 1
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._zigzag()
        if kind == 12:
            return self.struct(depth + 1)
        if kind == 7:
            self.position += 8
        elif kind == 8:
            size = self._varint()  # which moves the position itself
            self.position += size
        elif kind in (9, 10):
            self._list(depth)
        else:
            raise BadPage(f"a field has the type {kind}")
        return None

    def _list(self, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise BadPage("the header of a page is nested too deep")
        head = self._byte()
        count = head >> 4 if head >> 4 < 15 else self._varint()
        for _ in range(count):
            if self.position >= len(self._data):
                raise _CutOff("a list is cut off")
            self._value(head & 15, depth + 1)

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
