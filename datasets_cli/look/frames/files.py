"""Pictures in a file: a GIF, a sheet as PNG, a video as MP4."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from PIL import GifImagePlugin, Image

from datasets_cli.system_errors import imported

SHEET_PICTURES = 64
GAP = 2
GREY = 128
QUALITY = "12"
"""x264's constant rate factor: pixels of Atari's frames differ by less than 1 in the mean."""

Pictures = Iterator[np.ndarray]
"""Pictures of one size, uint8 ``[height, width]`` or ``[height, width, 3]``."""


def chosen(ending: str, count: int) -> np.ndarray:
    """Return the numbers of the pictures that a file has of so many, int64 ``[n]``."""
    size = min(SHEET_PICTURES, count) if ending == ".png" else count
    return np.linspace(0, count - 1, size).round().astype(np.int64)


def _write_gif(path: Path, pictures: Pictures, fps: int) -> list[str]:
    # Picture by picture: Pillow's own loop leaves out what is equal to the one before.
    milliseconds, num_near = 10 * max(2, round(100 / fps)), 0
    greys = bytes(level for level in range(256) for _ in "rgb")
    with path.open("wb") as file:
        for frame in pictures:
            if not file.tell():
                screen = struct.pack("<HHBBB", frame.shape[1], frame.shape[0], 0xF7, 0, 0)
                file.write(b"GIF89a" + screen + greys)
                file.write(b"!\xff\x0bNETSCAPE2.0\x03\x01\0\0\0")  # it repeats
            image, is_grey = Image.fromarray(frame), frame.ndim == 2
            if not is_grey:
                image = image.quantize(256)
                num_near += not np.array_equal(np.asarray(image.convert("RGB")), frame)
            data = GifImagePlugin.getdata(
                image, duration=milliseconds, include_color_table=not is_grey
            )
            file.writelines(data)
        file.write(b";")
    note = f"{num_near:,} pictures have more than 256 colours: a GIF has near ones"
    return [note] if num_near else []


def _write_sheet(path: Path, pictures: Pictures, fps: int) -> list[str]:
    frames = [*pictures]
    height, width, *channels = frames[0].shape
    num_columns = min(len(frames), math.ceil(math.sqrt(len(frames) * height / width)))
    num_lines = -(-len(frames) // num_columns)
    size = num_lines * (height + GAP) - GAP, num_columns * (width + GAP) - GAP
    sheet = np.full((*size, *channels), GREY, np.uint8)
    for number, frame in enumerate(frames):
        y, x = (number // num_columns) * (height + GAP), (number % num_columns) * (width + GAP)
        sheet[y : y + height, x : x + width] = frame
    Image.fromarray(sheet).save(path, format="PNG")
    return []


def _write_video(path: Path, pictures: Pictures, fps: int) -> list[str]:
    av = imported("av", "A video", "video", " A GIF needs no more.")
    with path.open("wb") as file, av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=fps, options={"crf": QUALITY})
        for frame in pictures:
            if not stream.codec_context.is_open:
                stream.height, stream.width = frame.shape[:2]
                # Most players take colours of 2 x 2 pixels alone, which odd sizes do not have.
                is_odd = frame.shape[0] % 2 or frame.shape[1] % 2
                stream.pix_fmt = "yuv444p" if is_odd else "yuv420p"
            form = "gray" if frame.ndim == 2 else "rgb24"
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format=form)))
        container.mux(stream.encode())
    return []


WRITERS: dict[str, Callable[[Path, Pictures, int], list[str]]] = {
    ".gif": _write_gif,
    ".png": _write_sheet,
    ".mp4": _write_video,
}
"""What writes pictures into a file of an ending, and returns what is to be told of it."""
