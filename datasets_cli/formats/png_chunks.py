"""The chunks of a PNG file, and what its header says: the PNG specification, sections 5, 9 and 11.

signature | length kind data checksum | length kind data checksum | …
IHDR                         IDAT: packed rows       IEND
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from datasets_cli.formats.gzip import fastest_zlib

SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHUNK = struct.Struct(">I4s")
HEADER = struct.Struct(">II5B")
HEADER_END = len(SIGNATURE) + CHUNK.size + HEADER.size + 4

GREY, PALETTE = 0, 3
NAMES = {GREY: "grey", 2: "RGB", PALETTE: "palette", 4: "grey with alpha", 6: "RGB with alpha"}


class NotPng(ValueError):
    """The bytes are not a whole PNG file."""


class PngHeader(NamedTuple):
    """What the first chunk says.

    Args:
        width: pixels in a row.
        height: rows.
        bits: of a channel, or of an index into the palette.
        colour: one of ``NAMES``.
        compression: always 0.
        filtering: always 0.
        interlaced: 0 or 1.
    """

    width: int
    height: int
    bits: int
    colour: int
    compression: int
    filtering: int
    interlaced: int

    @property
    def mode(self) -> str:
        """Colours, bits and order of the pixels, in words."""
        order = ", interlaced" if self.interlaced else ""
        return f"{self.bits}-bit {NAMES[self.colour]}{order}"


def read_header(file: memoryview) -> PngHeader | None:
    """Return what the first chunk of a file says, whole or not; None if it has no such chunk."""
    head = bytes(file[:HEADER_END])
    beginning = SIGNATURE + CHUNK.pack(HEADER.size, b"IHDR")
    if len(head) < HEADER_END or not head.startswith(beginning):
        return None
    header = PngHeader(*HEADER.unpack_from(head, len(beginning)))
    return header if header.colour in NAMES else None


def chunk(kind: bytes, data: bytes) -> bytes:
    """Return a chunk as it stands in a file."""
    head = CHUNK.pack(len(data), kind)
    return head + data + zlib.crc32(data, zlib.crc32(kind)).to_bytes(4, "big")


def read_chunks(file: memoryview, position: int) -> Iterator[tuple[bytes, memoryview]]:
    """Yield kind and data of each chunk from a byte on, up to the last.

    Raises:
        NotPng: one is cut off, or has a wrong checksum.
    """
    kind = b""
    while kind != b"IEND":
        if position + CHUNK.size > len(file):
            raise NotPng("it is cut off")
        # A chunk: length of its data, kind, data, checksum of kind and data.
        length, kind = CHUNK.unpack_from(file, position)
        end = position + CHUNK.size + length
        if zlib.crc32(file[position + 4 : end]).to_bytes(4, "big") != file[end : end + 4]:
            raise NotPng(f"its chunk {kind!r} is cut off or has a wrong checksum")
        yield kind, file[position + CHUNK.size : end]
        position = end + 4


def check_rows(packed: bytes, expected: int) -> None:
    """Check that packed rows have as many bytes as they must, and an end.

    Raises:
        NotPng: they do not.
        zlib.error: they cannot be unpacked; isal raises its own error.
    """
    unpacking = fastest_zlib().decompressobj()
    # One byte more would show that there are too many, however many there are.
    size = len(unpacking.decompress(packed, expected + 1))
    if size != expected:
        more = " or more" if size > expected else ""
        raise NotPng(f"its rows have {size} bytes{more}; expected {expected}")
    if not unpacking.eof:
        raise NotPng("its rows have no end")
