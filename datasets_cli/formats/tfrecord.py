"""TFRecord files, without TensorFlow.

    length    uint64, little endian
    checksum  uint32, of the length      CRC-32C, rotated and moved: see ``masked``
    data      length bytes
    checksum  uint32, of the data

Facts: TensorFlow's ``core/lib/io/record_writer.h`` and ``core/lib/hash/crc32c.h``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import google_crc32c

from datasets_cli.errors import SourceError
from datasets_cli.formats.gzip import GzipStream
from datasets_cli.formats.limits import check_limit

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
