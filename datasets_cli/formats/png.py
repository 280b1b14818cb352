"""Grey PNG files, decoded by Pillow after they have been found whole.

Pillow alone passes over the checksums of a file's pixels, bytes after the last row, and a missing
end. Here every chunk is checked first, and that the rows have the length they must have. Why Pillow
decodes: ``benchmarks/png.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from PIL import Image

from datasets_cli.errors import SourceError
from datasets_cli.formats.gzip import fastest_zlib
from datasets_cli.formats.png_chunks import (
    GREY,
    HEADER,
    SIGNATURE,
    Header,
    check_rows,
    chunk,
    read_chunks,
)
from datasets_cli.formats.png_modes import NotGrey, to_grey


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
    header = Header(shape[1], shape[0], 8, GREY, 0, 0, 0)
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
