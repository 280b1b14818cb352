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

GREY, RGB, PALETTE, GREY_ALPHA, RGB_ALPHA = 0, 2, 3, 4, 6
CHANNELS = {GREY: 1, RGB: 3, PALETTE: 1, GREY_ALPHA: 2, RGB_ALPHA: 4}
NAMES = {GREY: "grey", RGB: "RGB", PALETTE: "palette", GREY_ALPHA: "grey with alpha",
         RGB_ALPHA: "RGB with alpha"}  # fmt: skip
BITS = {GREY: (1, 2, 4, 8, 16), PALETTE: (1, 2, 4, 8)}
COLOUR_BITS = (8, 16)

# First column and row of each pass over an interlaced image, and the steps between its pixels.
PASSES = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
          (0, 1, 1, 2))  # fmt: skip


class NotPng(ValueError):
    """The bytes are not a whole PNG file."""


class Header(NamedTuple):
    """What the first chunk says.

    Args:
        width: pixels in a row.
        height: rows.
        bits: of a channel, or of an index into the palette.
        colour: ``GREY``, ``RGB``, ``PALETTE``, ``GREY_ALPHA`` or ``RGB_ALPHA``.
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
    def is_known(self) -> bool:
        """Tell whether the specification knows such files."""
        bits = BITS.get(self.colour, COLOUR_BITS)
        known = self.colour in CHANNELS and self.bits in bits and self.interlaced in (0, 1)
        return known and not (self.compression or self.filtering)

    @property
    def mode(self) -> str:
        """Colours, bits and order of the pixels, in words."""
        order = ", interlaced" if self.interlaced else ""
        return f"{self.bits}-bit {NAMES[self.colour]}{order}"

    @property
    def num_bytes(self) -> int:
        """Bytes of all rows, of which each begins with one for its filter."""
        bits = self.bits * CHANNELS[self.colour]
        passes = PASSES if self.interlaced else ((0, 0, 1, 1),)
        sizes = [
            # Pixels from the first on, a step apart: rounded up.
            (-(-(self.width - x) // dx), -(-(self.height - y) // dy))
            for x, y, dx, dy in passes
        ]
        return sum(rows * (1 + -(-width * bits // 8)) for width, rows in sizes if width > 0)


def read_header(file: memoryview) -> Header | None:
    """Return what the first chunk of a file says, whole or not; None where it has none."""
    head = bytes(file[:HEADER_END])
    start = len(SIGNATURE)
    if len(head) < HEADER_END or head[: start + CHUNK.size] != _head_of_header():
        return None
    header = Header(*HEADER.unpack_from(head, start + CHUNK.size))
    return header if header.is_known else None


def _head_of_header() -> bytes:
    return SIGNATURE + CHUNK.pack(HEADER.size, b"IHDR")


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
        zlib.error: they cannot be unpacked; isal has an error of its own.
    """
    unpacking = fastest_zlib().decompressobj()
    # One byte more would show that there are too many, however many there are.
    found = len(unpacking.decompress(packed, expected + 1))
    if found != expected:
        more = " or more" if found > expected else ""
        raise NotPng(f"its rows have {found} bytes{more}; expected {expected}")
    if not unpacking.eof:
        raise NotPng("its rows have no end")
