"""JPEG files, decoded by Pillow."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from datasets_cli.errors import SourceError
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
        raise SourceError(f"{where} is not a complete JPEG file ({error}).") from error
    if shape is not None and frame.shape != shape:
        raise SourceError(
            f"{where} is a frame of shape {list(frame.shape)}; expected {list(shape)}, as in the "
            "first frame. Frames of several sizes cannot be one column.",
            expected=list(shape),
            found=list(frame.shape),
        )
    return frame
