"""PNG and JPEG images, decoded to arrays.

signature | length kind data checksum | length kind data checksum | …
IHDR                         IDAT: compressed rows   IEND

Pillow ignores wrong checksums of pixels, bytes after the last row, and a missing end. A file of
another mode is converted by Pillow if its pixels can only mean one grey each:

    palette, RGB, alpha     all channels of a pixel are equal, and no pixel is transparent
    1-, 2- and 4-bit grey   scaled to 0 … 255, as the specification defines
    16-bit grey             each value is 257 times a number of 8 bits

Facts: the PNG specification, sections 5, 9 and 11.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from PIL import Image

from datasets_cli.errors import SourceError
from datasets_cli.formats.format_error import FormatError, details_of
from datasets_cli.formats.gzip import fastest_zlib
from datasets_cli.formats.limits import check_limit

JPEG_MAGIC = b"\xff\xd8\xff"


def starts_jpeg(data: np.ndarray) -> bool:
    """Return whether bytes, uint8 ``[n]``, begin like a JPEG file."""
    return data[: len(JPEG_MAGIC)].tobytes() == JPEG_MAGIC


def decode_jpeg(data: np.ndarray, where: str, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """Return the frame, uint8 ``[height, width]`` or ``[height, width, channels]``.

    Args:
        data: a JPEG file, uint8 ``[n]``.
        where: the frame's place, for messages.
        shape: the expected shape, if known.

    Raises:
        SourceError: it is not a whole JPEG file, or has another shape.
    """
    try:
        # formats: untrusted bytes must not reach Pillow's other decoders.
        with Image.open(io.BytesIO(data.tobytes()), formats=("JPEG",)) as image:
            width, height = image.size  # in the header, before decompression
            check_limit("row_bytes", width * height * len(image.getbands()), where)
            frame = np.asarray(image)
    except SourceError:
        raise
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise SourceError(
            f"{where} is not a complete JPEG file ({error}).",
            expected="a JPEG file",
            found=bytes(data[:16]),
        ) from error
    if shape is not None and frame.shape != shape:
        raise SourceError(
            f"{where} is a frame of shape {list(frame.shape)}; expected {list(shape)}, as in the "
            "first frame. Frames of several sizes cannot be one column.",
            expected=list(shape),
            found=list(frame.shape),
        )
    return frame


def decode_image(file: memoryview, where: str) -> np.ndarray:
    """Return the pixels of a JPEG or PNG file, uint8 or uint16 ``[height, width, channels]``.

    Args:
        file: its bytes.
        where: the image's place, for messages.

    Raises:
        SourceError: it is neither a whole JPEG file nor a whole PNG file.
    """
    if file[: len(JPEG_MAGIC)] == JPEG_MAGIC:
        frame = decode_jpeg(np.frombuffer(file, np.uint8), where)
    else:
        try:
            frame = _decode_png(file, where)
        except (ValueError, OSError, SyntaxError, Image.DecompressionBombError) as error:
            raise SourceError(
                f"{where} is not a whole JPEG or PNG file: {error}.", **details_of(error)
            ) from error
    return frame if frame.ndim == 3 else frame[:, :, None]


SIGNATURE = b"\x89PNG\r\n\x1a\n"
CHUNK = struct.Struct(">I4s")
HEADER = struct.Struct(">II5B")
"""Width, height, bits, colour, compression, filter and interlacing."""
HEADER_START = len(SIGNATURE) + CHUNK.size
MODE = slice(HEADER_START + 8, HEADER_START + HEADER.size)

GREY = 0
NAMES = {GREY: "grey", 2: "RGB", 3: "palette", 4: "grey with alpha", 6: "RGB with alpha"}
GREY_MODE = bytes((8, GREY, 0, 0, 0))
OPAQUE = 255


class NotGrey(FormatError):
    """A complete PNG file has another size, or pixels other than greys."""


def decode_pngs(
    files: Sequence[memoryview], shape: tuple[int, int], where: str, first: int = 0
) -> np.ndarray:
    """Return the frames in PNG files whose pixels are greys.

    Args:
        files: the bytes of one file each.
        shape: height and width of every frame.
        where: the record of the files, for messages.
        first: the number of the first frame, for messages.

    Returns:
        uint8 ``[n, height, width]``.

    Raises:
        SourceError: a file is not a complete PNG file, has another size, or pixels other than
            greys.
    """
    frames = np.empty((len(files), *shape), np.uint8)
    # The beginning of every 8-bit grey file of this size: the signature and the first chunk.
    head = SIGNATURE + _chunk(b"IHDR", HEADER.pack(shape[1], shape[0], *GREY_MODE))
    unpacking_error = fastest_zlib().error
    for number, file in enumerate(files, first):
        try:
            if file[: len(head)] == head:
                frames[number - first] = _decode(file, len(head), shape)
            else:
                frames[number - first] = _convert(file, shape)
        except NotGrey as error:
            raise SourceError(
                f"{where}, frame {number} is {error}.", row=number, **details_of(error)
            ) from error
        except (ValueError, OSError, SyntaxError, unpacking_error) as error:
            raise SourceError(
                f"{where}, frame {number} is damaged: {error}.", row=number, **details_of(error)
            ) from error
    return frames


def other_modes(files: Iterable[memoryview]) -> Counter[str]:
    """Return the number of files of each mode other than 8-bit grey, not interlaced.

    Files that are not PNG files are not counted.
    """
    # Comparing the bytes first takes a tenth of the time: nearly all files are 8-bit grey.
    others = (file for file in files if file[MODE] != GREY_MODE)
    return Counter(_mode_of(file) for file in others if file[:8] == SIGNATURE and len(file) > 32)


def _mode_of(file: memoryview) -> str:
    bits, colour, _, _, interlaced = file[MODE]
    order = ", interlaced" if interlaced else ""
    return f"{bits}-bit {NAMES.get(colour, f'colour type {colour}')}{order}"


def _chunk(kind: bytes, data: bytes) -> bytes:
    head = CHUNK.pack(len(data), kind)
    return head + data + zlib.crc32(data, zlib.crc32(kind)).to_bytes(4, "big")


def _decode(file: memoryview, position: int, shape: tuple[int, int]) -> np.ndarray:
    """Return the frame of an 8-bit grey file whose second chunk is at a position."""
    packed = b"".join([data for kind, data in _chunks(file, position) if kind == b"IDAT"])
    # A row has a byte for its filter, and a byte for each pixel.
    _check_rows(packed, shape[0] * (1 + shape[1]))
    return np.asarray(Image.frombytes("L", shape[::-1], packed, "zip", "L"))


def _chunks(file: memoryview, position: int) -> Iterator[tuple[bytes, memoryview]]:
    """Yield kind and data of each chunk from a position to the last one."""
    kind = b""
    while kind != b"IEND":
        if position + CHUNK.size > len(file):
            raise FormatError("it is cut off", expected=position + CHUNK.size, found=len(file))
        length, kind = CHUNK.unpack_from(file, position)
        end = position + CHUNK.size + length
        if zlib.crc32(file[position + 4 : end]).to_bytes(4, "big") != file[end : end + 4]:
            raise FormatError(f"its chunk {kind!r} is cut off or has a wrong checksum", found=kind)
        yield kind, file[position + CHUNK.size : end]
        position = end + 4


def _check_rows(packed: bytes, expected: int) -> None:
    """Check the decompressed size of the rows."""
    unpacking = fastest_zlib().decompressobj()
    # One byte more shows that there are too many, however many they are.
    size = len(unpacking.decompress(packed, expected + 1))
    if size != expected:
        more = " or more" if size > expected else ""
        problem = f"its rows have {size} bytes{more}; expected {expected}"
        raise FormatError(problem, expected=expected, found=size)
    if not unpacking.eof:
        raise FormatError("its rows do not end")


def _decode_png(file: memoryview, where: str) -> np.ndarray:
    """Return the pixels of a PNG file in its own mode; those of a palette as RGB or RGBA."""
    width, height, bits, colour = _header(file)
    check_limit("row_bytes", width * height * 4, where)
    if bits == 16 and colour != GREY:
        raise NotGrey("channels have 16 bits")  # of which Pillow would drop eight
    with Image.open(io.BytesIO(file), formats=("PNG",)) as image:
        image.load()
        if image.mode == "P":
            return np.asarray(image.convert("RGBA" if "transparency" in image.info else "RGB"))
        pixels = np.asarray(image.convert("L") if image.mode == "1" else image)
    return pixels.astype(np.uint16) if bits == 16 else pixels


def _header(file: memoryview) -> tuple[int, int, int, int]:
    """Return width, height, bits and colour type of a PNG file, after checking its chunks."""
    if file[:8] != SIGNATURE:
        begins = bytes(file[:16])
        problem = f"it is not a PNG file, it begins with {begins!r}"
        raise FormatError(problem, expected=SIGNATURE, found=begins)
    for kind, data in _chunks(file, len(SIGNATURE)):  # Pillow ignores some checksums
        if kind == b"IHDR" and len(data) != HEADER.size:
            raise FormatError("its header has a wrong size", expected=HEADER.size, found=len(data))
    width, height, bits, colour, *_ = HEADER.unpack_from(file, HEADER_START)
    return width, height, bits, colour


def _convert(file: memoryview, shape: tuple[int, int]) -> np.ndarray:
    """Return the greys of a PNG file of any mode, uint8 ``[height, width]``."""
    width, height, bits, colour = _header(file)
    if (height, width) != shape:  # before Pillow allocates the frame
        expected, found = (
            f"{rows} x {columns} pixels" for rows, columns in (shape, (height, width))
        )
        problem = f"a PNG file of {found}; expected {expected}"
        raise NotGrey(problem, expected=list(shape), found=[height, width])
    with Image.open(io.BytesIO(file), formats=("PNG",)) as image:
        image.load()
        try:
            if bits == 16 and colour != GREY:
                raise NotGrey("channels have 16 bits")  # of which Pillow would drop eight
            return _greys(image)
        except NotGrey as error:
            raise NotGrey(
                f"a PNG file of another mode ({_mode_of(file)}) in which {error}; expected 8-bit "
                "grey, or pixels that can only mean the same",
                expected="8-bit grey",
                found=error.found or _mode_of(file),
            ) from error


def _greys(image: Image.Image) -> np.ndarray:
    if image.mode.startswith("I"):
        greys = np.asarray(image)
        if (greys % 257).any():
            raise NotGrey("a grey is between two of 8 bits")
        return (greys // 257).astype(np.uint8)
    if image.mode == "P" and image.palette is None:
        raise FormatError("its palette is missing")
    if image.mode != "P" and "transparency" in image.info:
        raise NotGrey("a colour is transparent")
    pixels = np.asarray(image.convert("RGBA"))
    if (pixels[..., 3] != OPAQUE).any():
        raise NotGrey("a pixel is transparent")
    coloured = (pixels[..., :3] != pixels[..., :1]).any(axis=-1)
    if coloured.any():
        row, column = np.argwhere(coloured)[0].tolist()
        colour = tuple(pixels[row, column, :3].tolist())
        raise NotGrey(f"the pixel in row {row}, column {column} is {colour}", found=colour)
    return pixels[..., 0]
