"""TFRecord files, without TensorFlow.

    length    uint64, little endian
    checksum  uint32, of the length      CRC-32C, rotated and moved: see ``masked``
    data      length bytes
    checksum  uint32, of the data

The checksum is google-crc32c's where that is installed, else by a table. A register that begins
empty is linear: that of a text is that of its first half, moved over as many zeros as the second
half has bytes, added to that of the second half. So the stripes of a text are worked on side by
side, and folded in pairs.

Facts: TensorFlow's ``core/lib/io/record_writer.h`` and ``core/lib/hash/crc32c.h``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from datasets_cli.errors import SourceError
from datasets_cli.formats.gzip import GzipStream
from datasets_cli.formats.limits import check_limit

HEADER = struct.Struct("<QI")
CHECKSUM = struct.Struct("<I")
MASK = 0xA282EAD8
POLYNOMIAL = 0x82F63B78  # Castagnoli, reflected: RFC 3720, appendix B.4
ONES = 0xFFFFFFFF
STRIPE_BYTES = 64
FEW_BYTES = 2048  # below this the plain loop is faster
SLICE_BYTES = 16 << 20  # of which there are copies


class Stream(Protocol):
    """Bytes in order, such as an open file or a ``GzipStream``."""

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
    """Yield the records of a file that is gzip-compressed as a whole, one in memory at a time.

    Raises:
        SourceError: it is not such a file, or is cut off or damaged.
    """
    with GzipStream(path) as stream:
        yield from read_records(stream, path.name)


def read_records(stream: Stream, filename: str) -> Iterator[TFRecord]:
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
                f"{where} is not a TFRecord: the checksum of its length is wrong. It begins with "
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
        yield TFRecord(data, where)
        position += HEADER.size + length + CHECKSUM.size
        number += 1


def masked(checksum: int) -> int:
    """Return the masked checksum that the file stores: TFRecord masks the CRCs it writes."""
    return ((checksum >> 15 | checksum << 17) + MASK) & 0xFFFFFFFF


def crc32c(data: bytes) -> int:
    """Return the CRC-32C of some bytes."""
    try:
        import google_crc32c
    except ImportError:  # the extra `fast`: a hundred times as fast
        return crc32c_by_table(data)
    return int(google_crc32c.value(data))


def crc32c_by_table(data: bytes) -> int:
    """Return the same without that package."""
    register = ONES
    for start in range(0, len(data), SLICE_BYTES):
        part = data[start : start + SLICE_BYTES]
        register = _of_few(part, register) if len(part) < FEW_BYTES else _of_many(part, register)
    return register ^ ONES


def _of_few(data: bytes, register: int) -> int:
    table = _table().tolist()
    for byte in data:
        register = table[(register ^ byte) & 255] ^ (register >> 8)
    return register


def _of_many(data: bytes, register: int) -> int:
    # Zeros in front leave an empty register as it is, and one with something in it is the same as
    # an empty one whose first bytes are added to it.
    padding = -len(data) % STRIPE_BYTES
    padded = np.frombuffer(bytes(padding) + data, np.uint8).copy()
    padded[padding : padding + 4] ^= np.frombuffer(register.to_bytes(4, "little"), np.uint8)
    registers = np.zeros(len(padded) // STRIPE_BYTES, np.uint32)
    images = np.uint32(1) << np.arange(32, dtype=np.uint32)  # of each bit, over a stripe of zeros
    table = _table()
    for column in np.ascontiguousarray(padded.reshape(-1, STRIPE_BYTES).T):
        registers = table[(registers ^ column) & 255] ^ (registers >> 8)
        images = table[images & 255] ^ (images >> 8)
    while len(registers) > 1:
        registers = np.concatenate((np.zeros(len(registers) % 2, np.uint32), registers))
        registers = _moved(registers[0::2], images) ^ registers[1::2]
        images = _moved(images, images)  # over twice as many zeros
    return int(registers[0])


def _moved(registers: np.ndarray, images: np.ndarray) -> np.ndarray:
    """Return registers ``[n]`` moved over zeros, of which each bit has an image."""
    bits = registers[:, None] >> np.arange(32, dtype=np.uint32) & 1
    return np.asarray(np.bitwise_xor.reduce(np.where(bits, images, np.uint32(0)), axis=1))


@cache
def _table() -> np.ndarray:
    """Return what each byte becomes over eight zero bits."""
    table: np.ndarray = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> 1) ^ (table & 1) * np.uint32(POLYNOMIAL)
    return table
