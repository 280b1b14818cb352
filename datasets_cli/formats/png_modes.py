"""PNG files of another mode than 8-bit grey, where their pixels can only mean a grey each.

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
from collections.abc import Iterable

import numpy as np
from PIL import Image

from datasets_cli.formats.png_chunks import (
    CHUNK,
    GREY,
    HEADER,
    PALETTE,
    SIGNATURE,
    Header,
    NotPng,
    check_rows,
    chunk,
    read_chunks,
    read_header,
)

OPAQUE = 255
_MODE = slice(len(SIGNATURE) + CHUNK.size + 8, len(SIGNATURE) + CHUNK.size + HEADER.size)
_GREY = bytes((8, GREY, 0, 0, 0))


class NotGrey(Exception):
    """A PNG file is whole, and not what it must be: says what it is."""


def other_modes(files: Iterable[memoryview]) -> Counter[str]:
    """Return how many files have which mode, but for 8-bit grey, not interlaced.

    Files that are none are not counted.
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
    if header is None and chunks:
        raise NotPng("the specification knows no such header")
    if header is None:
        raise NotPng(f"it is no PNG file, it begins with {bytes(file[:16])!r}")
    size = (header.height, header.width)
    if size != shape:
        expected, found = (f"{height} x {width} pixels" for height, width in (shape, size))
        raise NotGrey(f"a PNG file of {found}; expected {expected}")
    parts = {kind: bytes(data) for kind, data in chunks if kind in (b"PLTE", b"tRNS")}
    if header.colour == PALETTE and not parts.get(b"PLTE"):
        raise NotPng("it has no palette")
    packed = b"".join(data for kind, data in chunks if kind == b"IDAT")
    check_rows(packed, header.num_bytes)
    try:
        return _greys(header, _pixels(header, parts, packed), parts)
    except NotGrey as error:
        raise NotGrey(
            f"a PNG file of another mode ({header.mode}) in which {error}; expected 8-bit grey, "
            "or what can only mean the same"
        ) from error


def _pixels(header: Header, parts: dict[bytes, bytes], packed: bytes) -> np.ndarray:
    """Return the pixels as Pillow decodes them: ``[height, width]`` or with channels."""
    if header.bits == 16 and header.colour != GREY:
        raise NotGrey("channels have 16 bits")  # of which Pillow would drop eight
    # What else is in the file has no say in its pixels; transparency is seen to by _greys.
    palette = chunk(b"PLTE", parts[b"PLTE"]) if header.colour == PALETTE else b""
    plain = (
        SIGNATURE + chunk(b"IHDR", HEADER.pack(*header)) + palette + chunk(b"IDAT", packed)
    ) + chunk(b"IEND", b"")
    try:
        with Image.open(io.BytesIO(plain), formats=("PNG",)) as image:
            return np.asarray(image.convert("L") if image.mode == "1" else image)
    except (OSError, SyntaxError) as error:
        raise NotPng(str(error)) from error


def _greys(header: Header, pixels: np.ndarray, parts: dict[bytes, bytes]) -> np.ndarray:
    alpha = parts.get(b"tRNS", b"")
    if header.colour == PALETTE:
        return _of_palette(pixels, parts[b"PLTE"], alpha)
    if alpha:
        raise NotGrey("a colour is transparent")
    if header.bits == 16:
        if (pixels % 257).any():
            raise NotGrey("a grey is between two of 8 bits")
        return (pixels // 257).astype(np.uint8)
    if pixels.ndim == 2:
        return pixels
    has_alpha = pixels.shape[2] in (2, 4)
    if has_alpha and (pixels[..., -1] != OPAQUE).any():
        raise NotGrey("a pixel is transparent")
    colours = pixels[..., :-1] if has_alpha else pixels
    return _of_colours(colours)


def _of_palette(pixels: np.ndarray, palette: bytes, alpha: bytes) -> np.ndarray:
    """Return the greys of indices, uint8 ``[height, width]``, into a palette of RGB."""
    colours = np.frombuffer(palette, np.uint8)
    if len(colours) % 3 or int(pixels.max()) >= len(colours) // 3:
        raise NotPng(f"its palette has {len(colours)} bytes, and a pixel the index {pixels.max()}")
    # The palette says how transparent its first colours are; all others are opaque.
    if (np.frombuffer(alpha, np.uint8)[pixels[pixels < len(alpha)]] != OPAQUE).any():
        raise NotGrey("a pixel is transparent")
    return _of_colours(colours.reshape(-1, 3)[pixels])


def _of_colours(colours: np.ndarray) -> np.ndarray:
    """Return the one value of all channels, ``[height, width]`` of ``[height, width, C]``."""
    if (colours != colours[..., :1]).any():
        row, column = np.argwhere((colours != colours[..., :1]).any(axis=-1))[0].tolist()
        colour = tuple(colours[row, column].tolist())
        raise NotGrey(f"the pixel in row {row}, column {column} is {colour}")
    return colours[..., 0]
