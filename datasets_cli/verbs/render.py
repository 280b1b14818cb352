"""Showing a trajectory: its frames, or what its environment shows of its recorded states."""

from __future__ import annotations

import os
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from datasets_cli.catalogue.names import InstalledId
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import check_numbers, takes_fields
from datasets_cli.errors import UsageError, argument
from datasets_cli.install.find import open_installed
from datasets_cli.schema.columns import Key
from datasets_cli.sources.new_files import file_to_make, replacing

FPS = 20
MOST_FPS = {".gif": 50, ".png": 1000, ".mp4": 1000}
"""A GIF counts hundredths of a second, and viewers slow down frames shorter than two."""


@dataclass(frozen=True)
class RenderCall(InstalledId):
    """The arguments of ``render``.

    Args:
        trajectory: number of the trajectory, counted from 0.
        out: file to write: a .gif, a .png with a contact sheet of at most 64 frames, or an .mp4.
        columns: key of the frame column; by default the first one.
        fps: frames per second; by default the rate of the environment, or 20.
        force: replace an existing file.
    """

    _: KW_ONLY
    trajectory: int = field(
        metadata={"least": 0, "metavar": "K", "help": "Number of the trajectory, counted from 0."}
    )
    out: str | os.PathLike[str] = field(
        metadata={
            "metavar": "FILE",
            "help": "File to write: a .gif, a .png (contact sheet) or an .mp4.",
        }
    )
    columns: str | None = field(
        default=None,
        metadata={"metavar": "KEY", "help": "Key of the frame column.", "default": "the first one"},
    )
    fps: int | None = field(
        default=None,
        metadata={
            "least": 1,
            "help": "Frames per second.",
            "default": "the rate of the environment, or 20",
        },
    )
    force: bool = field(default=False, metadata={"help": "Replace an existing file."})


@dataclass(frozen=True)
class Rendering(JsonForm):
    """A rendered trajectory.

    Args:
        id: the id of the dataset.
        trajectory: the number of the trajectory.
        path: the file.
        source: the keys of the rendered columns.
        num_frames: the number of frames in the file.
        fps: the requested frames per second; a GIF rounds to hundredths of a second.
        notes: remarks on omitted frames and inexact values.
    """

    id: str
    trajectory: int
    path: Path
    source: tuple[Key, ...]
    num_frames: int
    fps: int
    notes: tuple[str, ...] = ()


@takes_fields(RenderCall)
def render(call: RenderCall) -> Rendering:
    """Render a trajectory into a file, one frame per row.

    Stored frames are used if they exist; a GIF is exact for grey frames and up to 256 colours. A
    dataset without frames is rendered by its gymnasium environment, which is set to each recorded
    ``qpos`` and ``qvel``; its ``env_spec`` names code to import.

    Raises:
        DatasetNotInstalled: the dataset is not installed.
        UsageError: the trajectory does not exist, the dataset has neither frames nor states, the
            file exists or has another ending, or av or gymnasium is not installed.
    """
    config = call.chosen_config()
    check_numbers(call)
    path = file_to_make(call.out, (*MOST_FPS,), call.force)
    ending = path.suffix.lower()
    if (call.fps or 0) > (most := MOST_FPS[ending]):
        raise UsageError(
            f"{argument('fps')} is {call.fps}; expected at most {most} for {ending}.",
            argument="fps",
            expected=most,
            found=call.fps,
        )
    from datasets_cli.verbs.frames import WRITERS, chosen, pictures_of  # numpy and Pillow

    dataset = open_installed(call.id, config)
    pictures = pictures_of(dataset, call.trajectory, call.columns)
    fps, numbers = call.fps or pictures.fps or FPS, chosen(ending, pictures.num_rows)
    with replacing(path) as new:
        notes = [*pictures.notes, *WRITERS[ending](new, pictures.read(numbers), fps)]
    if len(numbers) < pictures.num_rows:
        notes.append(f"they are of {pictures.num_rows:,} rows, evenly spaced")
    source = pictures.source
    return Rendering(dataset.id, call.trajectory, path, source, len(numbers), fps, tuple(notes))
