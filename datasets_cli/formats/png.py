"""Grey PNG files, decoded by Pillow after they have been found whole.

Pillow alone passes over the checksums of a file's pixels, bytes after the last row, and a missing
end. Here every chunk is checked first, and that the rows have the length they must have. Why Pillow
decodes: ``benchmarks/png.py``. A file of another mode is taken where its pixels can only mean one
grey each:

    palette                 its colours that are used are greys, none of them transparent
    RGB, with or without    the three channels are equal, and nothing is transparent
    alpha, grey with alpha
    1-, 2- and 4-bit grey   scaled to 0 … 255, as the specification says
    16-bit grey             each of them is 257 times a number of 8 bits

The order of the pixels, interlaced or not, makes no difference.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from PIL import Image, UnidentifiedImageError

from datasets_cli.errors import SourceError
from datasets_cli.formats.gzip import fastest_zlib
from datasets_cli.formats.png_chunks import (
    CHUNK,
    GREY,
    HEADER,
    PALETTE,
    SIGNATURE,
    NotPng,
    PngHeader,
    check_rows,
    chunk,
    read_chunks,
    read_header,
)


def decode_pngs(
    files: Sequence[memoryview], shape: tuple[int, int], where: str, first: int = 0
) -> np.ndarray:
    """Return the frames in 8-bit grey PNG files, or in what can only mean the same.

    Args:
        files: the bytes of one file each.
        shape: height and width of every frame.
        where: what the files are part of, for messages.
        first: what the first one counts as, for messages.

    Returns:
        uint8 ``[n, height, width]``.

    Raises:
        SourceError: one is not a whole PNG file, not of this size, or is more than grey.
    """
    frames = np.empty((len(files), *shape), np.uint8)
    # How a grey file of this size begins: the signature and the first chunk.
    header = PngHeader(shape[1], shape[0], 8, GREY, 0, 0, 0)
    head = SIGNATURE + chunk(b"IHDR", HEADER.pack(*header))
    unpacking_error = fastest_zlib().error
    for number, file in enumerate(files):
        try:
            if file[: len(head)] == head:
                frames[number] = _decode(file, head, shape)
            else:
                frames[number] = to_grey(file, shape)
        except NotGrey as error:
            raise SourceError(f"{where}, frame {first + number} is {error}.") from error
        except (ValueError, unpacking_error) as error:
            raise SourceError(f"{where}, frame {first + number} is damaged: {error}.") from error
    return frames


def _decode(file: memoryview, head: bytes, shape: tuple[int, int]) -> np.ndarray:
    """Return the frame in a file that begins with such a head."""
    packed = b"".join([data for kind, data in read_chunks(file, len(head)) if kind == b"IDAT"])
    check_rows(packed, shape[0] * (1 + shape[1]))  # a byte each for a filter, and the pixels
    return np.asarray(Image.frombytes("L", shape[::-1], packed, "zip", "L"))


OPAQUE = 255
KINDS = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND")
_MODE = slice(len(SIGNATURE) + CHUNK.size + 8, len(SIGNATURE) + CHUNK.size + HEADER.size)
_GREY = bytes((8, GREY, 0, 0, 0))


class NotGrey(Exception):
    """A PNG file is whole, and not what it must be: says what it is."""


def other_modes(files: Iterable[memoryview]) -> Counter[str]:
    """Return how many files have which mode, but for 8-bit grey, not interlaced.

    Files that are not PNG files are not counted.
    """
    # Comparing the bytes first takes a tenth of the time: nearly all files are such.
    headers = (read_header(file) for file in files if file[_MODE] != _GREY)
    return Counter(header.mode for header in headers if header)


def to_grey(file: memoryview, shape: tuple[int, int]) -> np.ndarray:
    """Return the greys that a PNG file of any mode shows, uint8 ``[height, width]``.

    Args:
        file: its bytes.
        shape: height and width that it must have.

    Raises:
        NotGrey: it has another size, or more than greys.
        NotPng, zlib.error: it is damaged.
    """
    chunks = list(read_chunks(file, len(SIGNATURE))) if file[:8] == SIGNATURE else []
    header = read_header(file)
    if chunks and (header is None or header.compression or header.interlaced > 1):
        raise NotPng("the specification knows no such header")
    if header is None:
        raise NotPng(f"it is not a PNG file, it begins with {bytes(file[:16])!r}")
    size = (header.height, header.width)
    if size != shape:
        expected, found = (f"{height} x {width} pixels" for height, width in (shape, size))
        raise NotGrey(f"a PNG file of {found}; expected {expected}")
    try:
        return _greys(header, chunks)
    except NotGrey as error:
        raise NotGrey(
            f"a PNG file of another mode ({header.mode}) in which {error}; expected 8-bit grey, "
            "or what can only mean the same"
        ) from error


def _greys(header: PngHeader, chunks: list[tuple[bytes, memoryview]]) -> np.ndarray:
    if header.bits == 16 and header.colour != GREY:
        raise NotGrey("channels have 16 bits")  # of which Pillow would drop eight
    # What else is in the file has no say in its pixels.
    parts = [(kind, bytes(data)) for kind, data in chunks if kind in KINDS]
    if header.colour == PALETTE and not dict(parts).get(b"PLTE"):
        raise NotPng("it has no palette")
    plain = SIGNATURE + b"".join(chunk(kind, data) for kind, data in parts)
    try:
        with Image.open(io.BytesIO(plain), formats=("PNG",)) as image:
            image.load()
            return _of_image(image, dict(parts).get(b"PLTE", b""))
    except UnidentifiedImageError as error:
        raise NotPng("the specification knows no such header") from error
    except (OSError, SyntaxError) as error:
        raise NotPng(str(error)) from error


def _of_image(image: Image.Image, palette: bytes) -> np.ndarray:
    if image.mode.startswith("I"):
        greys = np.asarray(image)
        if (greys % 257).any():
            raise NotGrey("a grey is between two of 8 bits")
        return (greys // 257).astype(np.uint8)
    if image.mode == "P" and (last := np.asarray(image).max()) >= len(palette) // 3:
        raise NotPng(f"its palette has {len(palette)} bytes, and a pixel the index {last}")
    if image.mode != "P" and "transparency" in image.info:
        raise NotGrey("a colour is transparent")
    pixels = np.asarray(image.convert("RGBA"))
    if (pixels[..., 3] != OPAQUE).any():
        raise NotGrey("a pixel is transparent")
    coloured = (pixels[..., :3] != pixels[..., :1]).any(axis=-1)
    if coloured.any():
        row, column = np.argwhere(coloured)[0].tolist()
        colour = tuple(pixels[row, column, :3].tolist())
        raise NotGrey(f"the pixel in row {row}, column {column} is {colour}")
    return pixels[..., 0]
