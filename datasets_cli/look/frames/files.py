"""Pictures in a file: a GIF, a sheet as PNG, a video as MP4."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import GifImagePlugin, Image

from datasets_cli.errors import UsageError
from datasets_cli.look.frames.pictures import Pictures

GIF_COLOURS = 256
SHEET_PICTURES = 64
GAP = 2
GREY = 128
QUALITY = "12"
"""x264's constant rate factor: pixels of Atari's frames differ by less than 1 in the mean."""


class Written(NamedTuple):
    """What a file has: pictures, their height and width, their number a second."""

    num_frames: int
    size: tuple[int, int]
    fps: float | None
    notes: tuple[str, ...] = ()


def write_gif(path: Path, pictures: Pictures, fps: int) -> Written:
    """Write all pictures as a GIF."""
    # Picture by picture: Pillow's own loop leaves out what is equal to the one before.
    hundredths = max(2, round(100 / fps))
    size, num_approximate = (0, 0), 0
    with path.open("wb") as file:
        for frame in pictures.read(np.arange(pictures.count)):
            if not file.tell():
                size = frame.shape[:2]
                file.write(_gif_head(*size))
            image, is_exact = _indexed(frame)
            num_approximate += not is_exact
            has_own = image.mode == "P"
            data = GifImagePlugin.getdata(
                image, duration=10 * hundredths, include_color_table=has_own
            )
            file.writelines(data)
        file.write(b";")
    of = f"{num_approximate:,} of {pictures.count:,} pictures"
    told = f"{of} have more than 256 colours, of which a GIF has the nearest"
    return Written(pictures.count, size, 100 / hundredths, (told,) if num_approximate else ())


def _gif_head(height: int, width: int) -> bytes:
    """Return what stands before the pictures: their size, 256 greys, and that it repeats."""
    greys = bytes(level for level in range(GIF_COLOURS) for _ in "rgb")
    screen = struct.pack("<HHBBB", width, height, 0xF7, 0, 0)
    return b"GIF89a" + screen + greys + b"!\xff\x0bNETSCAPE2.0\x03\x01\0\0\0"


def _indexed(frame: np.ndarray) -> tuple[Image.Image, bool]:
    """Return a picture of at most 256 colours, and whether it is the frame exactly."""
    if frame.ndim == 2:
        return Image.fromarray(frame), True
    packed = frame.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)
    colours, numbers = np.unique(packed, return_inverse=True)
    if len(colours) > GIF_COLOURS:
        return Image.fromarray(frame).quantize(GIF_COLOURS), False
    image = Image.fromarray(numbers.reshape(packed.shape).astype(np.uint8))
    image.putpalette(
        np.stack([colours >> 16, colours >> 8 & 255, colours & 255], 1).astype(np.uint8).tobytes()
    )
    return image, True


def write_sheet(path: Path, pictures: Pictures, fps: int) -> Written:
    """Write some of the pictures, evenly spaced, side by side as a PNG."""
    chosen = np.linspace(0, pictures.count - 1, min(SHEET_PICTURES, pictures.count)).round()
    frames = [*pictures.read(chosen.astype(np.int64))]
    height, width = frames[0].shape[:2]
    num_columns = min(len(frames), math.ceil(math.sqrt(len(frames) * height / width)))
    num_lines = -(-len(frames) // num_columns)
    shape = num_lines * (height + GAP) - GAP, num_columns * (width + GAP) - GAP
    sheet = np.full((*shape, *frames[0].shape[2:]), GREY, np.uint8)
    for number, frame in enumerate(frames):
        line, column = divmod(number, num_columns)
        y, x = line * (height + GAP), column * (width + GAP)
        sheet[y : y + height, x : x + width] = frame
    Image.fromarray(sheet).save(path, format="PNG")
    told = f"{len(frames)} of {pictures.count:,} pictures, evenly spaced"
    notes = (told,) if len(frames) < pictures.count else ()
    return Written(len(frames), (height, width), None, notes)


def write_video(path: Path, pictures: Pictures, fps: int) -> Written:
    """Write all pictures as a video of H.264."""
    try:
        import av
    except ModuleNotFoundError as error:
        raise UsageError(
            "A video needs av, which is not installed: pip install 'rlds-cli[video]'. A GIF needs "
            "nothing more."
        ) from error
    with path.open("wb") as file, av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=fps, options={"crf": QUALITY})
        for frame in pictures.read(np.arange(pictures.count)):
            size = frame.shape[:2]
            if not stream.codec_context.is_open:
                stream.height, stream.width = size
                # Most players take colours of 2 x 2 pixels alone, which odd sizes do not have.
                stream.pix_fmt = "yuv444p" if size[0] % 2 or size[1] % 2 else "yuv420p"
            form = "gray" if frame.ndim == 2 else "rgb24"
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format=form)))
        container.mux(stream.encode())
    return Written(pictures.count, size, fps)


FILES: dict[str, Callable[[Path, Pictures, int], Written]] = {
    ".gif": write_gif,
    ".png": write_sheet,
    ".mp4": write_video,
}
