"""JPEG files, decoded by Pillow."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from datasets_cli.errors import SourceError
from datasets_cli.formats.limits import check_limit

JPEG_MAGIC = b"\xff\xd8\xff"


def starts_jpeg(data: np.ndarray) -> bool:
    """Return whether bytes, uint8 ``[n]``, begin as a JPEG file does."""
    return data[: len(JPEG_MAGIC)].tobytes() == JPEG_MAGIC


def decode_jpeg(data: np.ndarray, where: str, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """Return the frame, uint8 ``[height, width]`` or ``[height, width, channels]``.

    Args:
        data: a JPEG file, uint8 ``[n]``.
        where: named in messages.
        shape: what the frame must have, if known.

    Raises:
        SourceError: it is not a whole JPEG file, or has another shape.
    """
    try:
        # Pillow reads no other format here: the bytes are a stranger's.
        with Image.open(io.BytesIO(data.tobytes()), formats=("JPEG",)) as image:
            width, height = image.size  # of its header; nothing is unpacked so far
            check_limit("row_bytes", width * height * len(image.getbands()), where)
            frame = np.asarray(image)
    except SourceError:
        raise
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise SourceError(f"{where} is not a whole JPEG file ({error}).") from error
    if shape is not None and frame.shape != shape:
        raise SourceError(
            f"{where} is a frame of shape {list(frame.shape)}; expected {list(shape)}, as that of "
            "the first one. Frames of several sizes cannot be one leaf."
        )
    return frame
