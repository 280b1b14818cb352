"""Grey PNG files, decoded by Pillow after they have been found whole.

Pillow alone passes over the checksums of a file's pixels, bytes after the last row, and a missing
end. Here every chunk is checked first, and that the rows have the length they must have. Facts: the
PNG specification, sections 5, 9 and 11. Why Pillow decodes: ``benchmarks/png.py``.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import numpy as np
from PIL import Image

from datasets_cli.errors import SourceError
from datasets_cli.formats.gzip import fastest_zlib

SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHUNK = struct.Struct(">I4s")
GREY = (8, 0, 0, 0, 0)  # bits, colour type, compression, filters, interlacing


class _Bad(ValueError):
    """The bytes are not such a file."""


def decode_pngs(
    files: Sequence[memoryview], shape: tuple[int, int], where: str, first: int = 0
) -> np.ndarray:
    """Return the frames in grey PNG files of 8 bits a pixel, not interlaced.

    Args:
        files: the bytes of one file each.
        shape: height and width of every frame.
        where: what the files are part of, for messages.
        first: what the first one counts as, for messages.

    Returns:
        uint8 ``[n, height, width]``.

    Raises:
        SourceError: one is not a whole grey PNG file of this size.
    """
    frames = np.empty((len(files), *shape), np.uint8)
    head = _head(*shape)
    packing = fastest_zlib()
    for number, file in enumerate(files):
        try:
            packed = _packed_rows(file, head)
            _check_size(packing.decompressobj(), packed, shape)
            frames[number] = np.asarray(Image.frombytes("L", shape[::-1], packed, "zip", "L"))
        except (ValueError, packing.error) as error:
            raise SourceError(f"{where}, frame {first + number} is damaged: {error}.") from error
    return frames


def _packed_rows(file: memoryview, head: bytes) -> bytes:
    """Return the compressed rows of a file, whose chunks all have the right checksum."""
    if file[: len(head)] != head:
        raise _Bad(_difference(bytes(file[: len(head)]), head))
    parts = []
    position = len(head)
    kind = b""
    while kind != b"IEND":
        if position + CHUNK.size > len(file):
            raise _Bad("it is cut off")
        # A chunk: length of its data, kind, data, checksum of kind and data.
        length, kind = CHUNK.unpack_from(file, position)
        end = position + CHUNK.size + length
        if zlib.crc32(file[position + 4 : end]).to_bytes(4, "big") != file[end : end + 4]:
            raise _Bad(f"its chunk {kind!r} is cut off or has a wrong checksum")
        if kind == b"IDAT":
            parts.append(file[position + CHUNK.size : end])
        position = end + 4
    return b"".join(parts)


def _check_size(unpacking: zlib._Decompress, packed: bytes, shape: tuple[int, int]) -> None:
    """Check that the rows unpack to what they must: their pixels, and a byte each for a filter."""
    expected = shape[0] * (1 + shape[1])
    # One byte more would show that there are too many, however many there are.
    found = len(unpacking.decompress(packed, expected + 1))
    if found != expected:
        more = " or more" if found > expected else ""
        raise _Bad(f"its rows have {found} bytes{more}; expected {expected}")
    if not unpacking.eof:
        raise _Bad("its rows have no end")


def _head(height: int, width: int) -> bytes:
    """Return how a grey file of this size begins: the signature and the first chunk."""
    data = struct.pack(">II5B", width, height, *GREY)
    chunk = CHUNK.pack(len(data), b"IHDR") + data
    return SIGNATURE + chunk + zlib.crc32(chunk[4:]).to_bytes(4, "big")


def _difference(found: bytes, expected: bytes) -> str:
    if not found.startswith(SIGNATURE) or len(found) < len(expected):
        return f"it is no PNG file, it begins with {found[:16]!r}"
    has, must = (
        struct.unpack_from(">II5B", head, len(SIGNATURE) + CHUNK.size) for head in (found, expected)
    )
    return f"width, height, bits a pixel, colour type, … are {has}; expected {must}"
