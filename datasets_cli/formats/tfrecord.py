"""TFRecord files and the ``tf.train.Example`` messages in them.

    length    uint64, little endian
    checksum  uint32, of the length      CRC-32C, rotated and moved: see ``masked``
    data      length bytes
    checksum  uint32, of the data

Facts: TensorFlow's ``core/lib/io/record_writer.h`` and ``core/lib/hash/crc32c.h``.

    Example   features  1 Features
    Features  feature   1 map entry*     name 1, value 2 Feature
    Feature   one of    1 BytesList, 2 FloatList, 3 Int64List, each with value 1*

Facts: TensorFlow's ``core/example/example.proto`` and ``feature.proto``, and protobuf's encoding
guide. Numbers may be packed into one run of bytes, as all writers do today, or not. Unknown fields
are skipped, as in protobuf.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Protocol

import google_crc32c
import numpy as np

from datasets_cli.errors import SourceError
from datasets_cli.formats.format_error import FormatError, details_of
from datasets_cli.formats.gzip import GzipStream
from datasets_cli.formats.limits import check_limit, limit

HEADER = struct.Struct("<QI")
CHECKSUM = struct.Struct("<I")
MASK = 0xA282EAD8


class Stream(Protocol):
    """A stream of bytes, such as an open file or a ``GzipStream``."""

    def read(self, num_bytes: int, /) -> bytes:
        """Return the next bytes; fewer only at the end."""


class TFRecord(NamedTuple):
    """One record.

    Args:
        data: its bytes.
        where: file, number and first byte, for messages.
    """

    data: bytes
    where: str


def read_gzip_records(path: Path) -> Iterator[TFRecord]:
    """Yield the records of a gzip-compressed file, one in memory at a time.

    Raises:
        SourceError: the file is not gzip, is cut off or damaged.
    """
    with GzipStream(path) as stream:
        yield from read_records(stream, path.name)


def read_records(stream: Stream, filename: str) -> Iterator[TFRecord]:
    """Yield the records of a stream after checking both checksums of each.

    Args:
        stream: at the beginning of a record.
        filename: for messages, whose positions count decompressed bytes.

    Raises:
        SourceError: a record is cut off, too long or has a wrong checksum.
    """
    position = number = 0
    while header := stream.read(HEADER.size):
        where = f"{filename}, record {number} at byte {position}"
        if len(header) < HEADER.size:
            raise SourceError(f"{where} is cut off in its header.", path=filename, row=number)
        length, checksum = HEADER.unpack(header)
        if masked(header[:8]) != checksum:
            raise SourceError(
                f"{where} is not a TFRecord: the checksum of its length is wrong. It begins with "
                f"{header!r}. The file is damaged or has another format.",
                path=filename,
                row=number,
                found=header,
            )
        check_limit("record_bytes", length, where)
        data = stream.read(length)
        footer = stream.read(CHECKSUM.size)
        if len(footer) < CHECKSUM.size:
            raise SourceError(
                f"{where} is cut off: expected {length} bytes and their checksum, "
                f"found {len(data) + len(footer)} bytes.",
                path=filename,
                row=number,
                expected=length + CHECKSUM.size,
                found=len(data) + len(footer),
            )
        if masked(data) != CHECKSUM.unpack(footer)[0]:
            raise SourceError(
                f"{where} is damaged: the checksum of its {length} bytes is wrong.",
                path=filename,
                row=number,
            )
        yield TFRecord(data, where)
        position += HEADER.size + length + CHECKSUM.size
        number += 1


def masked(data: bytes) -> int:
    """Return the checksum that the file stores: the CRC-32C of the data, rotated and moved."""
    checksum = int(google_crc32c.value(data))
    return ((checksum >> 15 | checksum << 17) + MASK) & 0xFFFFFFFF


FeatureValue = list[memoryview] | np.ndarray
"""Byte strings, float32 ``[n]`` or int64 ``[n]``."""

VARINT, EIGHT_BYTES, LENGTH, FOUR_BYTES = 0, 1, 2, 5
FIXED_BYTES = {EIGHT_BYTES: 8, FOUR_BYTES: 4}
MAX_VARINT_BYTES = 10
VALUE_BYTES = 256
"""The memory of a value while its list is parsed, at most."""


def parse_example(data: bytes, where: str) -> dict[str, FeatureValue]:
    """Return a message's features by name: byte strings, float32 ``[n]`` or int64 ``[n]``.

    Args:
        data: one message. The byte strings are views of it; features without a list are skipped.
        where: the place of the message, for errors.

    Raises:
        SourceError: it is not a valid message.
    """
    features: dict[str, FeatureValue] = {}
    try:
        for message in _messages(memoryview(data), 1):
            for entry in _messages(message, 1):
                name, value = _entry(entry)
                if name in features:
                    raise FormatError(f"the feature {name!r} comes twice", found=name)
                if value is not None:
                    features[name] = value
    except SourceError as error:  # a limit
        error.prepend(f"{where}: ")
        raise
    except FormatError as error:
        raise SourceError(
            f"{where} is not a tf.train.Example: {error}.", **details_of(error)
        ) from error
    return features


def _entry(entry: memoryview) -> tuple[str, FeatureValue | None]:
    name, value = b"", None
    for number, wire, item in _fields(entry):
        if wire == LENGTH and number == 1:
            name = bytes(item)
        elif wire == LENGTH and number == 2:
            value = _feature(item)
    try:
        return name.decode(), value
    except UnicodeDecodeError as error:
        raise FormatError(f"a name is not UTF-8, {name!r}", found=name) from error


def _feature(feature: memoryview) -> FeatureValue | None:
    lists = [(n, item) for n, wire, item in _fields(feature) if n in (1, 2, 3) and wire == LENGTH]
    if len(lists) > 1:
        raise FormatError("a feature has two lists", expected=1, found=len(lists))
    for number, message in lists:
        if number == 1:
            return _few(_messages(message, 1))
        return _float_list(message) if number == 2 else _int64_list(message)
    return None


def _float_list(message: memoryview) -> np.ndarray:
    runs = _few(
        item for n, wire, item in _fields(message) if n == 1 and wire in (LENGTH, FOUR_BYTES)
    )
    if any(len(run) % 4 for run in runs):
        raise FormatError("a list of floats has a part of one")
    # Packed floats are one run, which is not copied.
    data = runs[0] if len(runs) == 1 else b"".join(runs)
    return np.frombuffer(data, "<f4").astype(np.float32, copy=False)


def _int64_list(message: memoryview) -> np.ndarray:
    # A single varint and one in a packed run have the same bytes.
    runs = _few(item for n, wire, item in _fields(message) if n == 1 and wire in (LENGTH, VARINT))
    _check_values(sum(map(len, runs)) // MAX_VARINT_BYTES, "a list of integers")
    stored = np.frombuffer(b"".join(runs), np.uint8)
    # The last byte of a number has its highest bit clear.
    _check_values(int(np.count_nonzero(stored < 128)), "a list of integers")
    return _varints(stored)


def _few(runs: Iterator[memoryview]) -> list[memoryview]:
    """Return runs of bytes after checking their number."""
    few = list(islice(runs, limit("record_bytes") // VALUE_BYTES + 1))
    _check_values(len(few), "a list")
    return few


def _check_values(count: int, what: str) -> None:
    check_limit("record_bytes", count * VALUE_BYTES, f"{what} of {count:,} values")


def _varints(stored: np.ndarray) -> np.ndarray:
    """Return the numbers, int64 ``[n]``, of bytes with seven bits each, the lowest first."""
    ends = np.flatnonzero(stored < 128) + 1
    if len(stored) and (not len(ends) or ends[-1] != len(stored)):
        raise FormatError("a list of integers is cut off")
    starts = np.concatenate(([0], ends[:-1]))[: len(ends)]
    widths = ends - starts
    if len(widths) and widths.max() > MAX_VARINT_BYTES:
        problem, longest = "an integer is too long", int(widths.max())
        raise FormatError(problem, expected=MAX_VARINT_BYTES, found=longest)
    # The place of each byte in its number: it is shifted by seven bits for each byte before it.
    places = np.arange(len(stored)) - np.repeat(starts, widths)
    bits = (stored & 127).astype(np.uint64) << (7 * places).astype(np.uint64)
    return np.bitwise_or.reduceat(bits, starts).view(np.int64) if len(bits) else bits.view(np.int64)


def _messages(view: memoryview, wanted: int) -> Iterator[memoryview]:
    """Yield the contents of the fields with this number that are runs of bytes."""
    return (item for number, wire, item in _fields(view) if number == wanted and wire == LENGTH)


def _fields(view: memoryview) -> Iterator[tuple[int, int, memoryview]]:
    """Yield number, wire type and bytes of each field of a message."""
    position, end = 0, len(view)
    while position < end:
        tag, position = _varint(view, position)
        number, wire = tag >> 3, tag & 7
        if wire == LENGTH:
            size, position = _varint(view, position)
        elif wire == VARINT:
            size = _varint(view, position)[1] - position
        elif wire in FIXED_BYTES:
            size = FIXED_BYTES[wire]
        else:
            raise FormatError(f"a field has the type {wire}", expected=[0, 1, 2, 5], found=wire)
        if not number or position + size > end:
            problem = f"the field {number} of {size} bytes does not fit into its message"
            raise FormatError(problem, expected=end - position, found=size)
        yield number, wire, view[position : position + size]
        position += size


def _varint(view: memoryview, position: int) -> tuple[int, int]:
    """Return the integer at a position, and the position after it."""
    value = shift = 0
    for byte in view[position : position + MAX_VARINT_BYTES]:
        position += 1
        if byte < 128:
            return value | byte << shift, position
        value |= (byte & 127) << shift
        shift += 7
    raise FormatError("an integer is cut off or too long")
