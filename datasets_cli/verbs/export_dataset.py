"""Exports installed datasets to files of other tools."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from datasets_cli.catalogue.names import InstalledId
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import DRY_RUN, takes_fields
from datasets_cli.core.progress import ProgressOptions, Rows
from datasets_cli.core.progress_display import displayed
from datasets_cli.core.quantities import counted
from datasets_cli.errors import RldsError, UsageError, argument
from datasets_cli.exchange.format import NEED_REWARDS, Format, format_of
from datasets_cli.install.find import installed_id
from datasets_cli.schema.columns import TERMINATED
from datasets_cli.sources.disk import path_errors
from datasets_cli.sources.new_files import recover, replacing
from datasets_cli.store.arrays import DatasetArrays, open_arrays
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.check import folder_size

WITH_FINAL_STEPS = frozenset({"d4rl"})
"""Formats of all recorded steps; the others have the transitions."""
ENDINGS = frozenset({".hdf5", ".json", ".memmap"})
"""The suffixes of all files in an exported folder."""


@dataclass(frozen=True)
class ExportedDataset(JsonForm):
    """An exported dataset.

    Args:
        id: the dataset.
        format: the format of the files.
        path: the file or the folder.
        losses: the data that the format cannot hold, a sentence each.
        size_bytes: the size of the files; 0 after a dry run.
        opened_by: the Python expression that opens them; empty after a dry run.
    """

    JSON = "id format path losses bytes=size_bytes opened_by|null"

    id: str
    format: str
    path: Path
    losses: tuple[str, ...]
    size_bytes: int = 0
    opened_by: str = ""


@dataclass(frozen=True)
class ExportCall(ProgressOptions, InstalledId):
    """The arguments of ``export_dataset``.

    Args:
        format: the format of the files.
        path: the new file or folder.
        allow_loss: leave out data that the format cannot hold.
        force: replace an existing file or export at the path.
        dry_run: return the losses without writing.
    """

    FIRST = ("id",)

    format: str = field(
        metadata={
            "flag": "--to",
            "metavar": "FORMAT",
            "complete": "written_formats",
            "help": "File format to write.",
        }
    )
    path: str | os.PathLike[str] = field(
        metadata={"flag": "--out", "metavar": "PATH", "help": "Path of the new file or folder."}
    )
    _: KW_ONLY
    allow_loss: bool = field(
        default=False, metadata={"help": "Omit data that the format cannot store."}
    )
    force: bool = field(
        default=False, metadata={"help": "Replace an existing file or export at PATH."}
    )
    dry_run: bool = field(default=False, metadata=DRY_RUN)


def _num_cut(dataset: DatasetArrays) -> int:
    """Return the number of trajectories that neither terminate nor have a final step."""
    ends = dataset.starts[1:] - 1
    terminated = dataset.arrays_of(frozenset({TERMINATED})).gather(ends)[TERMINATED]
    return len(ends) - int(terminated.sum()) - len(dataset.final_places()[0])


@takes_fields(ExportCall)
def export_dataset(call: ExportCall) -> ExportedDataset:
    """Export an installed dataset to the format of another tool; every value stays the same.

    Losses are known before the first byte is written.

    Raises:
        UsageError: the format cannot hold all of the dataset without ``allow_loss``, it cannot
            hold its rows at all, or the path exists.
    """
    config, path = call.chosen_config(), Path(call.path)
    id = installed_id(call.id, config)
    chosen = format_of(call.format, is_written=True)
    dataset = open_arrays(CacheRoot(config.root).dataset(id))
    if call.format in NEED_REWARDS:
        dataset.manifest.check_rewards(f"the format {call.format}")
    lost = tuple(chosen.losses(dataset.manifest))
    if dataset.manifest.final_steps and call.format not in WITH_FINAL_STEPS:
        count = counted(dataset.manifest.final_steps, "recorded step")
        lost = (f"final steps: {count} without a successor; the format d4rl has them", *lost)
    elif dataset.manifest.final_steps and (num_cut := _num_cut(dataset)):
        count = counted(num_cut, "trajectory")
        lost = (f"next.observation: {count}, cut by preprocess: that of the last row", *lost)
    if call.dry_run:
        return ExportedDataset(id, call.format, path, lost)
    if lost and not call.allow_loss:
        raise UsageError(
            f"{call.format} cannot hold all of {id}. It would lose: {'; '.join(lost)}.",
            argument="allow_loss",
            id=id,
            found=lost,
            advice=f"Write the rest with {argument('allow_loss', 'True')}.",
        )
    with displayed(call.progress) as progress, path_errors(path):
        out = path.resolve()
        recover(out)
        _check_free(out, chosen, config.root.resolve(), call.force)
        out.parent.mkdir(parents=True, exist_ok=True)
        progress(Rows(id, 0, len(dataset)))
        with replacing(out) as new:
            opened_by = chosen.write(dataset, new, progress, path)
            _check_free(out, chosen, config.root.resolve(), call.force)
        size = folder_size(out) if out.is_dir() else out.stat().st_size
    return ExportedDataset(id, call.format, path, lost, size, opened_by)


def _check_free(out: Path, chosen: Format, root: Path, force: bool) -> None:
    """Check that a path is outside the cache root, and free or replaceable."""
    if root.is_relative_to(out) or out.is_relative_to(root):
        raise UsageError(
            f"{out} overlaps the cache root {root}.",
            argument="path",
            path=out,
            advice=f"Choose another {argument('path')}.",
        )
    if out.exists() and not (force and (out.is_file() or _is_export(out, chosen))):
        raise UsageError(
            f"{out} exists already. {argument('force', 'True')} replaces a file, or a folder of an "
            "export to the same format.",
            argument="path",
            path=out,
            advice=f"Choose another {argument('path')}.",
        )


def _is_export(path: Path, chosen: Format) -> bool:
    """Return whether a path is an empty folder or contains only an export to this format."""
    files = (each for each in path.rglob("*") if each.is_symlink() or not each.is_dir())
    if not path.is_dir() or any(each.is_symlink() or each.suffix not in ENDINGS for each in files):
        return False
    with suppress(RldsError):
        return not any(path.iterdir()) or chosen.recognise(path) is not None
    return False
