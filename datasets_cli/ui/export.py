"""Static pages of datasets, which a browser shows without a server or network.

DIR/index.html                      the datasets
    demo/pong/index.html            the card of a dataset, and its trajectories with a page
    demo/pong/0.html, 0/50.png      a trajectory with its numbers, and its frames
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets_cli.catalogue.names import KNOWN_IDS, as_list
from datasets_cli.config import RootOptions
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import check_numbers, takes_fields
from datasets_cli.core.quantities import counted
from datasets_cli.core.system_errors import import_optional
from datasets_cli.errors import UsageError, argument
from datasets_cli.install.find import installed_id
from datasets_cli.sources.new_files import beside, put_in_place, recover

if TYPE_CHECKING:
    from datasets_cli.store.arrays import DatasetArrays
    from datasets_cli.ui.local_page import LocalPage

TRAJECTORIES = 20
FRAMES = 200
"""Frames of a dataset with pages, or 10 per trajectory if that is more."""
FRAMES_EACH = 10
STEPS = 200
"""Steps of a trajectory whose values are exported; the curves show all steps."""
FILES = ("style.css", "trajectory.css", "chart.js", "trajectory.js")


@dataclass(frozen=True)
class ExportPagesCall(RootOptions):
    """The arguments of ``export_pages``.

    Args:
        ids: installed datasets.
        dest: a new or empty folder for the pages.
        trajectories: the number of first trajectories per dataset that get a page; 20 by default.
    """

    ids: str | Iterable[str] = field(
        metadata={
            **KNOWN_IDS,
            "needed": False,
            "help": "Ids of datasets; without --export, one id, at which the page opens.",
        }
    )
    dest: str | os.PathLike[str] = field(
        metadata={
            "flag": "--export",
            "needed": False,
            "metavar": "DIR",
            "help": "Write the pages of these datasets into a folder instead of serving them.",
        }
    )
    _: KW_ONLY
    trajectories: int = field(
        default=TRAJECTORIES,
        metadata={
            "least": 1,
            "help": "Number of trajectories per dataset that get a page with --export.",
        },
    )

    def __post_init__(self) -> None:
        check_numbers(self)


@dataclass(frozen=True)
class ExportedPages(JsonForm):
    """The exported pages.

    Args:
        path: the folder; its ``index.html`` is the start page.
        ids: the datasets, by their full ids.
        num_files: the number of files in it.
        size_bytes: the size of all files.
        notes: remarks on omitted data.
    """

    JSON = "path ids num_files bytes=size_bytes notes"

    path: Path
    ids: tuple[str, ...]
    num_files: int
    size_bytes: int
    notes: tuple[str, ...]


@takes_fields(ExportPagesCall)
def export_pages(call: ExportPagesCall) -> ExportedPages:
    """Write pages of installed datasets as files that any browser shows from the disk.

    They need no server, token or connection. The folder appears when all of it is written; what
    was left out stands on the pages.

    Raises:
        DatasetNotInstalled: one is known, but not under this root.
        UsageError: no dataset is named, the folder has files already, or jinja2 or starlette is
            not installed.
    """
    import_optional("starlette", "The page", "ui")
    import_optional("jinja2", "The page", "ui")
    from datasets_cli.ui.local_page import FOLDER, LocalPage

    page, dest = LocalPage.of(call.chosen_config()), Path(call.dest)
    ids = [*dict.fromkeys(installed_id(text, page.config) for text in as_list(call.ids))]
    if not ids:
        raise UsageError(
            f"{argument('dest')} needs at least one dataset.",
            argument="ids",
            advice="Name the datasets whose pages to write.",
        )
    recover(dest)
    with _made_whole(dest) as folder:
        for name in FILES:
            shutil.copyfile(FOLDER / "static" / name, folder / name)
        notes = {id: _write_dataset(folder, page, id, call.trajectories) for id in ids}
        _write(folder, page, "index.html", "export_index.html", notes=notes)
        files = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    remarks = tuple(f"{id}: {note}" for id, each in notes.items() for note in each)
    return ExportedPages(dest, tuple(ids), len(files), sum(files), remarks)


@contextmanager
def _made_whole(dest: Path) -> Iterator[Path]:
    """Yield a folder beside another one, whose name it gets when it is written."""
    if os.path.lexists(dest) and not (dest.is_dir() and not any(dest.iterdir())):
        raise UsageError(
            f"{dest} exists already.",
            argument="dest",
            path=dest,
            advice="Choose a new or empty folder.",
        )
    with beside(dest) as new:
        new.mkdir()
        yield new
        if not put_in_place(new, dest):
            raise UsageError(
                f"Another process wrote into {dest}.",
                argument="dest",
                path=dest,
                advice="Choose another folder.",
            )


def _write(folder: Path, page: LocalPage, name: str, template: str, **values: Any) -> None:
    """Write a page; it finds its files by how deep below the folder it is."""
    static = "../" * name.count("/")
    text = page.text(template, base="export.html", static=static, **values)
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _write_dataset(folder: Path, page: LocalPage, id: str, most: int) -> list[str]:
    """Write the pages of a dataset and its first trajectories; return notes on omitted data."""
    from datasets_cli.ui.application import dataset_values, list_part
    from datasets_cli.ui.curves import frame_columns
    from datasets_cli.verbs.trajectories import TrajectoriesCall

    dataset = page.installed(id)
    rows, _ = list_part(page, dataset, TrajectoriesCall(id, n=most))
    numbers, notes = rows.columns["number"], []
    if len(numbers) < rows.num_trajectories:
        of_all = counted(rows.num_trajectories, "trajectory")
        notes.append(f"the first {len(numbers):,} of {of_all} have a page")
    share = max(FRAMES, FRAMES_EACH * most) // len(numbers)
    left_out = [_write_trajectory(folder, page, dataset, each, share) for each in numbers]
    if frame_columns(dataset.manifest) and any(left_out):
        notes.append(f"of each trajectory at most {share:,} frames are here, evenly spaced")
    shown = {"rows": rows, "links": "", "ending": ".html", "notes": notes}
    _write(
        folder, page, f"{id}/index.html", "export_dataset.html", **dataset_values(page, id), **shown
    )
    return notes


def _write_trajectory(
    folder: Path, page: LocalPage, dataset: DatasetArrays, number: int, most_frames: int
) -> bool:
    """Write the page of a trajectory and its frames; return whether some are left out."""
    from datasets_cli.ui.application import first_columns, page_values
    from datasets_cli.ui.curves import curves_of, frame_png

    curves = curves_of(dataset, number, first_columns(dataset))
    values = page_values(page, dataset, number, curves, 0, STEPS)
    stride = -(-curves.length // most_frames)
    frames = values["data"]["frames"][:1]
    values["data"] |= {"address": "", "frames": frames, "stride": stride, "folder": f"{number}"}
    shown = len(values["data"]["steps"]["trajectories"])
    if shown < curves.length:
        values["notes"].append(f"values are of the first {shown} steps, curves of all")
    if frames and stride > 1:
        values["notes"].append(f"a frame in {stride:,} is here")
    links = {"dataset": "index.html", "all": "", "before": "", "after": "", "columns": ""}
    name = f"{dataset.id}/{number}"
    _write(folder, page, f"{name}.html", "trajectory.html", links=links, **values)
    for column in frames:
        (folder / name).mkdir()
        for step in range(0, curves.length, stride):
            png = frame_png(dataset, number, step, column)
            (folder / name / f"{step}.png").write_bytes(png)
    return stride > 1
