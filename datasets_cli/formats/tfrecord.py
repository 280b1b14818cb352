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

from datasets_cli.errors import SourceError
from datasets_cli.formats.gzip import GzipStream
from datasets_cli.formats.limits import check_limit
from datasets_cli.formats.structure.crc32c import crc32c

HEADER = struct.Struct("<QI")
CHECKSUM = struct.Struct("<I")
MASK = 0xA282EAD8


class Stream(Protocol):
    """Bytes in order, such as an open file or a ``GzipStream``."""

    def read(self, num_bytes: int, /) -> bytes:
        """Return the next bytes; fewer only at the end."""


class Record(NamedTuple):
    """One record.

    Args:
        data: its bytes.
        where: file, number and first byte, for messages.
    """

    data: bytes
    where: str


def read_gzip_records(path: Path) -> Iterator[Record]:
    """Yield the records of a file that is gzip-compressed as a whole, one in memory at a time.

    Raises:
        SourceError: it is not such a file, or is cut off or damaged.
    """
    with GzipStream(path) as stream:
        yield from read_records(stream, path.name)


def read_records(stream: Stream, filename: str) -> Iterator[Record]:
    """Yield the records of a stream, whose both checksums are right.

    Args:
        stream: at the beginning of a record.
        filename: for messages; positions in them are of the unpacked stream.

    Raises:
        SourceError: a record is cut off, too long or has a wrong checksum.
    """
    position = number = 0
    while header := stream.read(HEADER.size):
        where = f"{filename}, record {number} at byte {position}"
        if len(header) < HEADER.size:
            raise SourceError(f"{where} is cut off in its header.")
        length, checksum = HEADER.unpack(header)
        if masked(crc32c(header[:8])) != checksum:
            raise SourceError(
                f"{where} is no TFRecord: the checksum of its length is wrong. It begins with "
                f"{header!r}. The file is damaged or something else."
            )
        check_limit("record_bytes", length, where)
        data = stream.read(length)
        footer = stream.read(CHECKSUM.size)
        if len(footer) < CHECKSUM.size:
            raise SourceError(
                f"{where} is cut off: expected {length} bytes and their checksum, "
                f"found {len(data) + len(footer)} bytes."
            )
        if masked(crc32c(data)) != CHECKSUM.unpack(footer)[0]:
            raise SourceError(f"{where} is damaged: the checksum of its {length} bytes is wrong.")
        yield Record(data, where)
        position += HEADER.size + length + CHECKSUM.size
        number += 1


def masked(checksum: int) -> int:
    """Return a checksum as the file has it, so that one of data with checksums is no trap."""
    return ((checksum >> 15 | checksum << 17) + MASK) & 0xFFFFFFFF
