"""Datasets in other places: moved to another cache root, or adopted from a folder beside all roots.

The copy is written beside its place, compared with the manifest's checksums and renamed, and only
then is the source deleted. Killed at any time, one of the two is whole, and the same call goes on.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from itertools import accumulate
from pathlib import Path

from datasets_cli.catalogue.selection import INSTALLED_IDS, as_list, select_each
from datasets_cli.config import Config, RootOptions, load_config
from datasets_cli.damage import MANIFEST_FILENAME
from datasets_cli.errors import (
    DamagedDataset,
    DatasetNotInstalled,
    IntegrityError,
    PartialFailure,
    RldsError,
    UsageError,
    argument,
)
from datasets_cli.install.installed import is_installed, read_sound_manifest_of, remove_all
from datasets_cli.json_form import JsonForm
from datasets_cli.manager.delete import own_ids
from datasets_cli.manager.usage import usage_of
from datasets_cli.manager.verify import check_whole
from datasets_cli.options import DRY_RUN, takes_fields
from datasets_cli.progress import Progress, ProgressOptions, expect_files
from datasets_cli.progress_bars import shown
from datasets_cli.quantities import counted
from datasets_cli.sources.disk import (
    check_free_space,
    copied,
    disk_errors,
    is_unfinished,
    no_folder,
    replacing,
)
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.commit import check_place, commit, restore, sweep
from datasets_cli.store.lock import locked
from datasets_cli.store.manifest import Manifest, read_manifest


@dataclass(frozen=True)
class PlacedDataset(JsonForm):
    """A dataset that was put into a place, or would be.

    Args:
        id: the full id.
        source: the folder that it was in.
        path: the folder that it is in now.
        size_bytes: of the dataset, and of the raw files and tables that go along.
        placed: False where it was not put there.
        already: whether the place has the same data already, and nothing is to be done.
        removed: whether the source is gone.
        notes: what did not go along, and where the place had the same dataset already.
        error: why it was not placed; None where it was, or would be.
    """

    JSON = "id source path bytes=size_bytes placed already removed notes error?"

    id: str
    source: Path
    path: Path
    size_bytes: int = 0
    placed: bool = False
    already: bool = False
    removed: bool = False
    notes: tuple[str, ...] = ()
    error: RldsError | None = None


@dataclass(frozen=True)
class MoveCall(ProgressOptions, RootOptions):
    """What ``move`` takes.

    Args:
        ids: an id, a name that resolves to one, a glob, or several of them.
        dest: another cache root, which is made where it is not there.
        dry_run: move nothing, and return what would be moved.
    """

    ids: str | Iterable[str] = field(metadata={**INSTALLED_IDS, "help": "Ids or globs."})
    dest: str | os.PathLike[str] = field(metadata={"argument": True, "metavar": "ROOT"})
    _: KW_ONLY
    dry_run: bool = field(default=False, metadata=DRY_RUN)


@takes_fields(MoveCall)
def move(call: MoveCall) -> list[PlacedDataset]:
    """Move installed datasets to another cache root, with their raw files and tables.

    Raises:
        UsageError: the two roots are one, or one is in the other; or an id is there with other
            data.
        UnknownDataset, DatasetNotInstalled: some are not here; nothing is moved.
        PartialFailure: some of several were not moved; ``results`` has all of them.
        DamagedDataset, DiskFull: a single one is damaged, or there is no room.
    """
    config = call.chosen_config()
    root, other = CacheRoot(config.root), _other_root(config, call.dest)
    ids = select_each(as_list(call.ids), partial(own_ids, config))
    results = []
    with shown(call.progress) as told:
        for id in ids:
            plan = PlacedDataset(id, root.dataset(id), other.dataset(id))
            try:
                manifest, plan = _planned(plan, other, is_removed=True)
                plan = replace(plan, size_bytes=usage_of(id, root).size_bytes)
                if not call.dry_run:
                    _move(manifest, root, other, config, told)
                    plan = replace(plan, placed=True, removed=True)
            except RldsError as error:
                if not ids[1:]:
                    raise
                plan = replace(plan, error=error)
            results.append(plan)
    if failed := [each.id for each in results if each.error]:
        words = {"one": "was not moved", "several": "were not moved"}
        raise PartialFailure.of(failed, len(ids), results, **words)
    return results


@dataclass(frozen=True)
class AdoptCall(ProgressOptions, RootOptions):
    """What ``adopt`` takes.

    Args:
        folder: a dataset's folder, copied from elsewhere.
        move: delete the folder once its copy is in place; it stays by default.
        dry_run: adopt nothing, and return what would be adopted.
    """

    folder: str | os.PathLike[str] = field(metadata={"argument": True, "metavar": "FOLDER"})
    _: KW_ONLY
    move: bool = False
    dry_run: bool = field(default=False, metadata=DRY_RUN)


@takes_fields(AdoptCall)
def adopt(call: AdoptCall) -> PlacedDataset:
    """Copy a dataset's folder to where its manifest says, once every file is as that says.

    Raises:
        UsageError: it is no folder, or a link; or the id is installed with other data.
        DatasetNotInstalled: the folder has no manifest.
        DamagedDataset: a file is not what the manifest says.
    """
    config = call.chosen_config()
    given, root = Path(call.folder).expanduser(), CacheRoot(config.root)
    if given.is_symlink() or not given.is_dir() or not os.fspath(call.folder):
        problem = (
            f"is a link to {given.readlink()}" if given.is_symlink() else no_folder(call.folder)
        )
        raise UsageError(f"{given} {problem}. Give the folder that has the {MANIFEST_FILENAME}.")
    folder = given.resolve()
    try:
        id = read_manifest(folder).id
    except DatasetNotInstalled as error:
        if any(folder.glob(f"*/**/{MANIFEST_FILENAME}")):
            error.append(f" There are some below it: rlds scan {shlex.quote(str(given))}")
        raise
    plan = PlacedDataset(id, folder, root.dataset(id))
    manifest, plan = _planned(plan, root, is_removed=call.move)
    if call.dry_run:
        return plan
    with shown(call.progress) as told, _held((root,), id, config, told):
        _place(folder, manifest, root, told)
    if call.move:
        sweep(folder)
    return replace(plan, placed=not plan.already, removed=call.move and not folder.exists())


def _other_root(config: Config, dest: str | os.PathLike[str]) -> CacheRoot:
    """Return another cache root, of which neither is in the other."""
    if not os.fspath(dest):
        raise UsageError(f"{argument('dest')} is empty text. Give another cache root.")
    other = load_config(root=dest).root
    here, there = config.root.resolve(), other.resolve()
    if here.is_relative_to(there) or there.is_relative_to(here):
        what = "are one folder" if here == there else "are one in the other"
        which = f"from {config.root} to {other}, which {what}"
        raise UsageError(f"Datasets are moved {which}. Give another root.")
    return CacheRoot(other)


def _planned(
    plan: PlacedDataset, root: CacheRoot, *, is_removed: bool
) -> tuple[Manifest, PlacedDataset]:
    """Return a dataset's manifest and what placing would do; refuse what cannot be placed."""
    manifest = read_sound_manifest_of(plan.source, plan.id)
    if is_installed(root, plan.id):
        if plan.path.samefile(plan.source):
            raise UsageError(f"{plan.source} is where {plan.id} is installed. Nothing is to do.")
        there = read_sound_manifest_of(plan.path, plan.id)
        ours, theirs = (f"{each.content[:16]}, {each.layout}" for each in (manifest, there))
        if (there.content, there.layout) != (manifest.content, manifest.layout):
            raise UsageError(
                f"{plan.id} is installed under {root.path} with other data or in another layout: "
                f"content {theirs}; in {plan.source} it is {ours}. Delete one of the two, or "
                "choose another root."
            )
        plan = replace(plan, already=not is_removed)
        if is_removed:
            plan = replace(plan, notes=(f"{plan.path} has the same data already",))
    else:
        check_free_space(root.path, manifest.size_bytes, plan.id)
    if strays := _strays(plan.source, manifest):
        told = f"{', '.join(strays[:3])}{', ...' * bool(strays[3:])}"
        if is_removed:
            files = f"{counted(len(strays), 'file')} that the manifest does not name"
            raise UsageError(
                f"{plan.source} has {files}, which would be lost: {told}. Move them away."
            )
        plan = replace(plan, notes=(*plan.notes, f"not of the dataset, left out: {told}"))
    return manifest, replace(plan, size_bytes=manifest.size_bytes)


def _strays(folder: Path, manifest: Manifest) -> list[str]:
    """Return what is in a dataset's folder and is not the dataset's."""
    paths = [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
    names = {path.relative_to(folder).as_posix() for path in paths}
    return sorted(names - {MANIFEST_FILENAME, *manifest.files})


@contextmanager
def _held(roots: Iterable[CacheRoot], id: str, config: Config, told: Progress) -> Iterator[None]:
    """Hold the locks of an id in roots, in one order, and repair what killed runs left there."""
    with ExitStack() as stack:
        for root in sorted(roots, key=lambda root: root.path):
            stack.enter_context(locked(root.lock(id), id, config.lock_timeout, told))
            restore(root, id)
        yield


def _move(
    manifest: Manifest, root: CacheRoot, other: CacheRoot, config: Config, told: Progress
) -> None:
    """Move a dataset with its raw files and tables."""
    id = manifest.id
    with _held((root, other), id, config, told):
        raw, raw_there = root.downloads(id), other.downloads(id)
        _copy_beside(raw, raw_there)
        for tables in root.tables_to_read(manifest.content):
            _copy_beside(tables, other.tables(manifest.content))
        _place(root.dataset(id), manifest, other, told)
        # Both roots may link their downloads to one folder.
        is_shared = raw.exists() and raw_there.exists() and raw.samefile(raw_there)
        remove_all(root, id, manifest, with_raw=not is_shared)


def _copy_beside(folder: Path, dest: Path) -> None:
    """Copy the files of a folder that the other does not have, each under its name when whole."""
    for path in folder.rglob("*"):
        copy = dest / path.relative_to(folder)
        if path.is_file() and not is_unfinished(path) and not copy.exists():
            with replacing(copy) as new:
                sum(copied(path, new))


def _place(folder: Path, manifest: Manifest, root: CacheRoot, told: Progress) -> None:
    """Put a dataset, whose lock is held, into its place in a root; check what is there if any."""
    id = manifest.id
    if is_installed(root, id):
        check_whole(root.dataset(id), id)
        return
    check_place(root, id)
    staging = root.new_staging(id)
    try:
        with disk_errors(staging):
            _copy_dataset(folder, staging, manifest, told)
        _check_copy(folder, staging, id)
    except BaseException:
        sweep(staging)
        raise
    if not commit(root, staging, manifest, replace=False):  # another process put one there
        check_whole(root.dataset(id), id)


def _copy_dataset(folder: Path, staging: Path, manifest: Manifest, told: Progress) -> None:
    id, total, names = manifest.id, manifest.size_bytes, (*manifest.files, MANIFEST_FILENAME)
    expect_files(told, {id: total})
    told.fetching(id, 0, total)
    sizes = (size for name in names for size in copied(folder / name, staging / name))
    for done in accumulate(sizes):
        told.fetching(id, min(done, total), total)


def _check_copy(folder: Path, staging: Path, id: str) -> None:
    """Check a copy against its manifest; where it differs, its source first, which is named."""
    try:
        check_whole(staging, id)
    except DamagedDataset as error:
        check_whole(folder, id)
        raise IntegrityError(
            f"{id}: the copy on the disk of {staging} is not what was written, and {folder} is "
            f"whole: {error}. Check that disk, or choose another one."
        ) from error
