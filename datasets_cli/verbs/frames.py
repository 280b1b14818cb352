"""Pictures of a trajectory: stored frames, or an environment rendered in recorded states."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import GifImagePlugin, Image

from datasets_cli.core.system_errors import import_optional
from datasets_cli.errors import UnknownKey, Unsupported, UsageError, argument
from datasets_cli.schema.columns import Column, Key, rows_per_block, show_key
from datasets_cli.store.arrays import DatasetArrays, plain_numbers
from datasets_cli.store.layouts.records import is_frame
from datasets_cli.verbs.peek import trajectory_rows

STATES = ("qpos", "qvel")
"""The recorded state that MuJoCo environments of gymnasium are set to."""


class Pictures(NamedTuple):
    """Pictures, uint8 ``[height, width]`` or ``[height, width, 3]``, read by their numbers."""

    read: Callable[[np.ndarray], Iterator[np.ndarray]]
    num_rows: int
    source: tuple[Key, ...]
    fps: int | None = None
    notes: tuple[str, ...] = ()


def pictures_of(dataset: DatasetArrays, trajectory: int, name: str | None) -> Pictures:
    """Return the pictures of a trajectory, one for each row."""
    rows = trajectory_rows(dataset, trajectory)
    columns = [each for each in dataset.manifest.columns if len(each.shape) > 1]
    frames = [each for each in columns if is_frame(each.dtype, each.shape)]
    # A named column may have small pictures.
    small = [each for each in columns if each.dtype == "uint8"]
    named = [each for each in small if show_key(each.key) == name]
    if name is not None and not named:
        known = ", ".join(show_key(each.key) for each in frames) or "none"
        raise UnknownKey(
            f"{name!r} is not a frame column of {dataset.id}. Expected a uint8 column of two or "
            f"more dimensions: {known}.",
            argument="columns",
            id=dataset.id,
            key=name,
            expected=known,
        )
    if named or frames:
        return _stored(dataset, min(named or frames, key=lambda each: each.key[0] == "next"), rows)
    return _of_states(dataset, rows, [show_key(each.key) for each in small])


def _stored(dataset: DatasetArrays, column: Column, rows: range) -> Pictures:
    """Return the frames of a column."""

    def read(numbers: np.ndarray) -> Iterator[np.ndarray]:
        reader, step = dataset.arrays_of(frozenset({column.key})), rows_per_block(column.row_bytes)
        for start in range(0, len(numbers), step):
            part = rows.start + numbers[start : start + step]
            yield from map(_picture, reader.gather(part)[column.key])

    name, shape = show_key(column.key), column.shape
    is_stack = len(shape) > 3 or (len(shape) == 3 and min(shape[0], shape[2]) not in (1, 3))
    notes = (f"{name} {list(shape)} is a stack of frames: the last one is shown",) * is_stack
    return Pictures(read, len(rows), (column.key,), None, notes)


def _picture(frame: np.ndarray) -> np.ndarray:
    """Return a frame as a picture; of a stack the last one."""
    while frame.ndim > 3:
        frame = frame[-1]
    if frame.ndim == 3:
        # A dimension of channels or stacked frames is smaller than the height.
        frame = frame if frame.shape[2] < frame.shape[0] else np.moveaxis(frame, 0, 2)
        frame = frame if frame.shape[2] == 3 else frame[..., -1]
    return np.ascontiguousarray(frame)


def _of_states(dataset: DatasetArrays, rows: range, small: list[str]) -> Pictures:
    """Return pictures of the recorded states of ``rows``, rendered by the environment."""
    manifest = dataset.manifest
    known = {column.key for column in manifest.columns if column.key[0] != "next"}
    above = [key[:-1] for key in sorted(known) if key[-1] == "qpos"]
    keys: list[Key] = [(*key, name) for key in above[:1] for name in STATES]
    spec = manifest.metadata.get("env_spec")
    if not (spec and keys and known.issuperset(keys)):
        lacks = "qpos and qvel" if spec else "env_spec"
        hints = [f" Small pictures: {argument('columns', name)}." for name in small]
        raise UsageError(
            f"{manifest.id} cannot be rendered: it has no frames, and no {lacks} to set its "
            f"environment to recorded states.{''.join(hints)}",
            id=manifest.id,
            expected=lacks,
        )
    from datasets_cli.environments.record.run import recover_environment  # gymnasium

    environment = recover_environment(manifest, {"render_mode": "rgb_array"})

    def read(numbers: np.ndarray) -> Iterator[np.ndarray]:
        read = dataset.arrays_of(frozenset(keys)).gather(rows.start + numbers)
        states = [plain_numbers(read[key]) for key in keys]
        with closing(environment):
            yield from _shown(environment, zip(*states, strict=True), manifest.id)

    names = " and ".join(map(show_key, keys))
    note = f"the environment is set to each {names}; everything else keeps its value after reset"
    return Pictures(read, len(rows), (*keys,), environment.metadata.get("render_fps"), (note,))


def _shown(environment: Any, states: Iterable[Any], id: str) -> Iterator[np.ndarray]:
    """Yield a picture of the environment in each state."""
    environment.reset(seed=0)  # before it, none can be shown
    bare = environment.unwrapped
    # Mazes hold the environment of what moves in them.
    inner = [each for each in (bare, *vars(bare).values()) if hasattr(each, "set_state")]
    if not inner:
        raise Unsupported(
            f"{environment}, of {id}, cannot be set to a recorded state: it has no "
            "set_state(qpos, qvel), unlike the MuJoCo environments of gymnasium.",
            id=id,
            expected="set_state(qpos, qvel)",
        )
    for qpos, qvel in states:
        try:
            inner[0].set_state(qpos, qvel)
            picture = np.asarray(environment.render(), np.uint8)
        except Exception as error:  # an environment may raise anything
            raise UsageError(
                f"{environment}, of {id}, cannot render a recorded state "
                f"({type(error).__name__}: {error}).",
                id=id,
                advice="Its version may differ from the recorded one.",
            ) from error
        yield _picture(picture)


SHEET_PICTURES = 64
GAP = 2
GREY = 128
QUALITY = "12"
"""x264's constant rate factor: pixels of Atari's frames differ by less than 1 in the mean."""

PictureStream = Iterator[np.ndarray]
"""Pictures of one size, uint8 ``[height, width]`` or ``[height, width, 3]``."""


def chosen(ending: str, count: int) -> np.ndarray:
    """Return the numbers of the pictures to write, evenly spaced, int64 ``[n]``."""
    size = min(SHEET_PICTURES, count) if ending == ".png" else count
    return np.linspace(0, count - 1, size).round().astype(np.int64)


def _write_gif(path: Path, pictures: PictureStream, fps: int) -> list[str]:
    # Picture by picture: Pillow's own loop drops a picture equal to the previous one.
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
    note = f"{num_near:,} pictures have more than 256 colours; the GIF approximates them"
    return [note] if num_near else []


def _write_sheet(path: Path, pictures: PictureStream, fps: int) -> list[str]:
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


def _write_video(path: Path, pictures: PictureStream, fps: int) -> list[str]:
    av = import_optional("av", "A video", "video", " A GIF needs no more.")
    with path.open("wb") as file, av.open(file, "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=fps, options={"crf": QUALITY})
        for frame in pictures:
            if not stream.codec_context.is_open:
                stream.height, stream.width = frame.shape[:2]
                # Most players require even sizes, for colours of 2 x 2 pixels.
                is_odd = frame.shape[0] % 2 or frame.shape[1] % 2
                stream.pix_fmt = "yuv444p" if is_odd else "yuv420p"
            form = "gray" if frame.ndim == 2 else "rgb24"
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format=form)))
        container.mux(stream.encode())
    return []


WRITERS: dict[str, Callable[[Path, PictureStream, int], list[str]]] = {
    ".gif": _write_gif,
    ".png": _write_sheet,
    ".mp4": _write_video,
}
"""Functions that write pictures into a file, by its ending, and return notes."""
