"""Exporting: an installed dataset in the files of another tool."""

from __future__ import annotations

import os
import shutil
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from datasets_cli.catalogue.selection import InstalledId
from datasets_cli.errors import UsageError, argument
from datasets_cli.exchange.format import format_of
from datasets_cli.install.installed import installed_id
from datasets_cli.json_form import JsonForm
from datasets_cli.options import DRY_RUN, takes_fields
from datasets_cli.progress import ProgressOptions, expect_rows, of_dataset
from datasets_cli.progress_bars import shown
from datasets_cli.sources.disk import disk_errors, make_folder
from datasets_cli.store.arrays import open_arrays
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.check import folder_size


@dataclass(frozen=True)
class ExportedDataset(JsonForm):
    """A dataset in the files of another tool.

    Args:
        id: the dataset.
        format: of the files.
        path: the file or the folder.
        losses: what the format cannot hold, a sentence each.
        size_bytes: of the files; 0 where nothing was written.
    """

    JSON = "id format path losses bytes=size_bytes"

    id: str
    format: str
    path: Path
    losses: tuple[str, ...]
    size_bytes: int = 0


@dataclass(frozen=True)
class ExportCall(ProgressOptions, InstalledId):
    """What ``export_dataset`` takes.

    Args:
        format: of the files.
        path: the new file or folder.
        allow_loss: write also where the format cannot hold all of the dataset.
        force: replace what is at the path.
        dry_run: only say what would be lost.
    """

    FIRST = ("id",)

    format: str = field(
        metadata={"flag": "--to", "metavar": "FORMAT", "complete": "written_formats"}
    )
    path: str | os.PathLike[str] = field(metadata={"flag": "--out", "metavar": "PATH"})
    _: KW_ONLY
    allow_loss: bool = field(
        default=False, metadata={"help": "Write what the format can hold, and leave out the rest."}
    )
    force: bool = field(default=False, metadata={"help": "Replace what is at PATH."})
    dry_run: bool = field(default=False, metadata=DRY_RUN)


@takes_fields(ExportCall)
def export_dataset(call: ExportCall) -> ExportedDataset:
    """Write an installed dataset in the format of another tool, with every value unchanged.

    What the format cannot hold is known before the first byte is written.

    Raises:
        UsageError: the format cannot hold all of it and ``allow_loss`` is not given, its rows
            cannot be written in it, or the path is taken.
    """
    config, path = call.chosen_config(), Path(call.path)
    id = installed_id(call.id, config)
    chosen = format_of(call.format, is_written=True)
    dataset = open_arrays(CacheRoot(config.root).dataset(id))
    lost = tuple(chosen.losses(dataset.manifest))
    if call.dry_run:
        return ExportedDataset(id, call.format, path, lost)
    if lost and not call.allow_loss:
        raise UsageError(
            f"{call.format} cannot hold all of {id}. It would lose: {'; '.join(lost)}. Write the "
            f"rest with {argument('allow_loss', 'True')}."
        )
    if os.path.lexists(path) and not call.force:
        raise UsageError(f"{path} is there already. {argument('force', 'True')} replaces it.")
    # Beside it, under a name that says so: what is killed is never taken for the whole.
    new = path.parent / f".{path.name}.{os.getpid()}.unfinished"
    with shown(call.progress) as screen, of_dataset(screen, id) as told, disk_errors(path):
        make_folder(path.parent)
        expect_rows(told, id, 0, len(dataset))
        try:
            chosen.write(dataset, new, told)
            _put_in_place(new, path)
        finally:
            _remove(new)
    return ExportedDataset(id, call.format, path, lost, _size(path))


def _put_in_place(new: Path, path: Path) -> None:
    if os.path.lexists(path) and (path.is_dir() or new.is_dir()):
        _remove(path)
    new.replace(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _size(path: Path) -> int:
    return folder_size(path) if path.is_dir() else path.stat().st_size
