"""Showing a trajectory: its frames, or what its environment shows of its recorded states."""

from __future__ import annotations

import os
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from datasets_cli.catalogue.selection import InstalledId
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import check_numbers, takes_fields
from datasets_cli.errors import UsageError, argument
from datasets_cli.install.find import open_installed
from datasets_cli.schema.columns import Key
from datasets_cli.sources.new_files import file_to_make, replacing

FPS = 20
MOST_FPS = {".gif": 50, ".png": 1000, ".mp4": 1000}
"""A GIF counts in hundredths of a second, and viewers slow down what has less than two."""


@dataclass(frozen=True)
class RenderCall(InstalledId):
    """What ``render`` takes.

    Args:
        trajectory: its number, from 0 on.
        out: the file; a .gif, a .png, which is a sheet of at most 64 of the pictures, or an .mp4.
        columns: the column of frames; by default the first one there is.
        fps: pictures a second; by default those of the environment, or 20.
        force: replace a file that is there.
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
            "default": "those of the environment, or 20",
        },
    )
    force: bool = field(default=False, metadata={"help": "Replace an existing file."})


@dataclass(frozen=True)
class Rendering(JsonForm):
    """Pictures of a trajectory in a file.

    Args:
        id: of the dataset.
        trajectory: its number.
        path: the file.
        source: the columns that the pictures are of.
        num_frames: pictures in the file.
        fps: pictures a second that were asked for; a GIF has the nearest hundredths of a second.
        notes: what was left out or is not exact.
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
    """Write the pictures of a trajectory into a file, one for each row.

    Frames are those that are stored; in a GIF grey ones, and others of at most 256 colours, are
    exact. A dataset without frames is shown by its environment, which is made by gymnasium and set
    to each recorded ``qpos`` and ``qvel``: its ``env_spec`` names code to import.

    Raises:
        DatasetNotInstalled: it is known, but not under this root.
        UsageError: there is no such trajectory, there are neither frames nor states, the file is
            there already or has another ending, or av or gymnasium is not installed.
    """
    config = call.chosen_config()
    check_numbers(call)
    path = file_to_make(call.out, (*MOST_FPS,), call.force)
    ending = path.suffix.lower()
    if (call.fps or 0) > (most := MOST_FPS[ending]):
        raise UsageError(f"{argument('fps')} is {call.fps}; expected at most {most} in a {ending}.")
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
