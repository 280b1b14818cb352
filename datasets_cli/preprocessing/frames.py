"""Frames of a run with a compact result: a segment of each task, joined at the end.

    task 0   o0 o1 o2 o2'                 the last one is the successor of the task's last row
    task 1   o3 o4 o4'  o5 o5'
    joined   o0 o1 o2  o3 o4 o4'  o5 o5'  if a task ends within a trajectory, o2' must equal o3

All frames are compressed with the dictionary of the run, so their bytes do not depend on the
worker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
import zstandard

from datasets_cli.errors import WrongRows
from datasets_cli.schema.columns import Key
from datasets_cli.sources.disk import flush
from datasets_cli.store.layouts.frames import (
    LAYOUT_ADVICE,
    FrameSegments,
    JoinedFrames,
    choose_dictionary,
    compressor,
    first_unchained,
    for_zstd,
    frames_of_records,
    make_dictionary,
    not_chained,
    read_dictionary,
    segment_files,
)
from datasets_cli.store.layouts.records import FrameField

TRIED_FRAMES = 256
"""The number of frames that are compressed to estimate the total size."""

Frames = Mapping[Key, np.ndarray]
"""Columns of frames ``[n, *shape]``."""


class PartOfFrames(NamedTuple):
    """The frames that one task wrote."""

    # stop: one past the last row of the task's input.
    # continues: whether the next part continues the trajectory of the task's last row.

    folder: Path
    stop: int
    continues: bool


def check_chained(
    fields: Sequence[FrameField], rows: Frames, is_end: np.ndarray, numbers: np.ndarray
) -> None:
    """Check that each frame is the successor of the row before."""
    # numbers: the numbers of the rows in messages, int64 `[k]`.
    for field in fields:
        if (wrong := first_unchained(field, rows, is_end)) is not None:
            raise _unfit(field, numbers[wrong])


def begin_frames(folder: Path, fields: Sequence[FrameField], sample: Frames) -> None:
    """Write the dictionaries of a run, made from the frames of its first rows."""
    for field in fields:
        make_dictionary(folder / field.filename, sample[field.column.key])


def write_part(
    part: Path, packed: Path, fields: Sequence[FrameField], rows: Frames, is_end: np.ndarray
) -> None:
    """Write the frames of the rows of one task, with the successor of the last row."""
    for field in fields:
        dictionary = _dictionary(packed, field)
        writer = FrameSegments(part / field.filename, field.column.row_bytes, dictionary)
        with closing(writer):
            writer.write(0, frames_of_records(field, rows, is_end))
        for path in segment_files(Path(f"{part / field.filename}.part"), 0):
            flush(path)


def join_parts(packed: Path, fields: Sequence[FrameField], parts: Sequence[PartOfFrames]) -> None:
    """Join the parts of all tasks; the parts stay until the commit."""
    for field in fields:
        path = packed / field.filename
        path.unlink(missing_ok=True)  # of a run that was killed here
        with JoinedFrames(path) as joined:
            for part, following in zip(parts, [*parts[1:], None], strict=True):
                segment, ends = _segment(part.folder, field)
                if part.continues and following is not None:
                    _check_same(packed, field, part, following)
                    ends = ends[:-1]
                joined.add(segment, ends)


def bytes_of_one(field: FrameField, frames: np.ndarray) -> int:
    """Return the approximate bytes of a compressed frame, by samples uint8 ``[n, *shape]``."""
    if not len(frames):
        return field.column.row_bytes
    some = frames[:: -(-len(frames) // TRIED_FRAMES)]
    packer = compressor(choose_dictionary(frames))
    return sum(len(packer.compress(frame.tobytes())) for frame in some) // len(some)


def _check_same(
    packed: Path, field: FrameField, part: PartOfFrames, following: PartOfFrames
) -> None:
    """Check that the last frame of a part is the first frame of the next part."""
    if field.successor is None:
        return
    dictionary = _dictionary(packed, field)
    last, first = (
        _frame(part, field, dictionary, slice(-2, None)),
        _frame(following, field, dictionary, slice(2)),
    )
    if last != first:
        raise _unfit(field, part.stop - 1)


def _unfit(field: FrameField, row: int) -> WrongRows:
    return WrongRows(
        f"The frames of the function do not fit: {not_chained(field, row)}",
        argument="layout",
        key=field.successor,
        row=int(row),
        advice=LAYOUT_ADVICE,
    )


def _frame(part: PartOfFrames, field: FrameField, dictionary: bytes, bounds: slice) -> bytes:
    """Return one frame of a part, by the slice of its bounds among the bounds of all frames."""
    segment, ends = _segment(part.folder, field)
    start, end = np.append(0, ends)[bounds].tolist()
    with segment.open("rb") as file:
        file.seek(start)
        compressed = file.read(end - start)
    return zstandard.ZstdDecompressor(dict_data=for_zstd(dictionary)).decompress(compressed)


def _segment(part: Path, field: FrameField) -> tuple[Path, np.ndarray]:
    """Return the file of a part's frames, and the ends of the frames in it, int64 ``[n]``."""
    blob, ends = segment_files(Path(f"{part / field.filename}.part"), 0)
    return blob, np.fromfile(ends, np.int64)


def _dictionary(packed: Path, field: FrameField) -> bytes:
    path = packed / field.dictionary
    return read_dictionary(path) if path.exists() else b""
