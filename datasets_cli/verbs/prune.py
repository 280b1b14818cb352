"""Deletes the leftovers of killed and abandoned work, in a cache root or in memory."""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import chain
from pathlib import Path

from datasets_cli.config import RootOptions
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import DRY_RUN, takes_fields
from datasets_cli.errors import DamagedDataset, LockedError, UsageError, wrong_value
from datasets_cli.install.find import condition_of, is_installed
from datasets_cli.sources.disk import broken_link, no_folder, paths_below
from datasets_cli.sources.new_files import is_abandoned, recover, restored_path, stem_of
from datasets_cli.sources.partial_download import is_state_file
from datasets_cli.sources.temporary_folders import abandoned_folders
from datasets_cli.store.cache_root import CacheRoot, is_id
from datasets_cli.store.check import folder_size
from datasets_cli.store.commit import remove_empty_parents, restore, sweep
from datasets_cli.store.lock import dest_locked, locked
from datasets_cli.store.manifest import read_manifest

SECONDS_A_DAY = 86_400.0

STAGING = "staging"
TRASH = "trash"
DOWNLOAD = "download"
RAW = "raw files"
RUN = "preprocess run"
RECORDED = "recording"
TABLES = "tables"
ROWS = "rows of a buffer"
UNFINISHED = "unfinished file"
CONTINUED = frozenset({DOWNLOAD, RUN, RECORDED})
"""The kinds of leftovers that repeating the interrupted command continues."""


@dataclass(frozen=True)
class Leftover(JsonForm):
    """A leftover folder or file that no installed dataset needs.

    Args:
        kind: ``"staging"``, ``"trash"``, ``"download"``, ``"raw files"``, ``"preprocess run"``,
            ``"recording"``, ``"tables"``, ``"rows of a buffer"`` or ``"unfinished file"``.
        path: the folder, or the file.
        size_bytes: the size of its files.
        age_days: the days since the last write.
        id: the id of its dataset, if known.
        deleted: whether it was deleted.
        reason: why it is not deleted, or empty.
    """

    JSON = "kind path bytes=size_bytes age_days=_days id|null deleted reason|null"

    kind: str
    path: Path
    size_bytes: int
    age_days: float
    id: str = ""
    deleted: bool = False
    reason: str = ""

    @property
    def _days(self) -> float:
        return round(self.age_days, 2)


@dataclass(frozen=True)
class PruneCall(RootOptions):
    """The arguments of ``prune``.

    Args:
        folders: folders to search for unfinished exports, pictures and pages, in addition to the
            cache root; by default the working folder.
        older_than_days: delete interrupted downloads, recordings and preprocess runs, which can
            be continued, only after so many days without a write.
        raw: also delete the raw files of installed datasets.
        dry_run: return the leftovers without deleting them.
    """

    folders: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = field(
        default=".",
        metadata={
            **{"argument": True, "metavar": "FOLDER"},
            "help": "Folders to search for unfinished exports and pictures.",
            "default": "the working folder",
        },
    )
    _: KW_ONLY
    older_than_days: float = field(
        default=7.0,
        metadata={
            **{"flag": "--older-than", "metavar": "DAYS"},
            "help": (
                "Also delete interrupted downloads, recordings and preprocess runs older than DAYS."
            ),
        },
    )
    raw: bool = field(
        default=False, metadata={"help": "Also delete the raw files of installed datasets."}
    )
    dry_run: bool = field(default=False, metadata=DRY_RUN)


@takes_fields(PruneCall)
def prune(call: PruneCall) -> list[Leftover]:
    """Delete leftovers of interrupted runs without asking, and return all that were found.

    Raises:
        UsageError: a negative age, or a folder does not exist.
    """
    # A copy in the trash whose dataset is missing was being replaced: it is restored.
    days = call.older_than_days
    if not days >= 0:
        raise wrong_value("older_than_days", "a number of days, 0 or more", days)
    place = CacheRoot(call.chosen_config().root)
    if link := broken_link(place.path / "datasets"):
        raise UsageError(
            f"The installed datasets cannot be listed: {link}.",
            path=place.path / "datasets",
            advice="Is its disk mounted?",
        )
    paths = [call.folders] if isinstance(call.folders, str | os.PathLike) else call.folders
    folders = [*map(Path, paths)]
    for folder in folders:
        if not folder.expanduser().is_dir():
            raise UsageError(
                f"'{folder}' {no_folder(folder)}.",
                argument="folders",
                path=folder,
                advice="Pass existing folders.",
            )
    outside = (*_unfinished(folder.expanduser().glob(".*") for folder in folders), *_temporary())
    leftovers = [
        _judged(each, place, days, call.raw) for each in (*find_leftovers(place), *outside)
    ]
    return (
        leftovers if call.dry_run else [_delete(each, place, days, call.raw) for each in leftovers]
    )


def find_leftovers(root: CacheRoot) -> list[Leftover]:
    """Return all leftovers, except those that a running process writes."""
    # Only names of this program: the cache root may contain other files.
    return [
        *(leftover_of(STAGING, path) for path in root.staged()),
        *(leftover_of(TRASH, path, _id_in(path)) for path in root.trashed()),
        *raw_files(root),
        *(leftover_of(RUN, path, id) for id, path in root.partial_runs()),
        *(leftover_of(RECORDED, path, id) for id, path in root.recordings()),
        *_orphaned_tables(root),
        *_unfinished(root.path.glob(pattern) for pattern in ("catalogue/.*", "tables/*/.*")),
    ]


def _unfinished(paths: Iterable[Iterable[Path]]) -> Iterator[Leftover]:
    for path in sorted(filter(is_abandoned, chain.from_iterable(paths))):
        yield leftover_of(UNFINISHED, path)


def _temporary() -> Iterator[Leftover]:
    for path in abandoned_folders():
        yield leftover_of(ROWS if stem_of(path).endswith("rows") else UNFINISHED, path)


def _judged(leftover: Leftover, root: CacheRoot, older_than_days: float, raw: bool) -> Leftover:
    """Return a leftover with the reason why it stays, if there is one."""
    if leftover.kind in CONTINUED and leftover.age_days < older_than_days:
        return replace(
            leftover, reason=f"it can be resumed and is {leftover.age_days:.1f} days old"
        )
    if leftover.kind == ROWS and leftover.age_days * SECONDS_A_DAY < 3600:
        return replace(leftover, reason="it is less than an hour old")
    if leftover.kind == RAW and not raw:
        return replace(leftover, reason="a download that keeps raw files may have kept them")
    if leftover.kind == TRASH and leftover.id and not is_installed(root, leftover.id):
        return replace(leftover, reason=f"it is the only copy of {leftover.id}, and is restored")
    if leftover.kind == UNFINISHED and (path := restored_path(leftover.path)):
        return replace(leftover, reason=f"it is the only copy of {path}, and is restored")
    return leftover


def _delete(leftover: Leftover, root: CacheRoot, older_than_days: float, raw: bool) -> Leftover:
    """Delete a leftover that may be deleted, under the lock of the processes that might use it."""
    is_only_copy = leftover.kind in (TRASH, UNFINISHED)
    if leftover.reason and not is_only_copy:
        return leftover
    try:
        with _lock(leftover, root):
            # Other processes may have worked on it until now.
            leftover = _judged(_refreshed(leftover, root), root, older_than_days, raw)
            if path := restored_path(leftover.path):
                recover(path)
            elif leftover.reason and is_only_copy:
                restore(root, leftover.id)
            elif not leftover.reason:
                sweep(leftover.path)
            if leftover.reason:
                return leftover
    except LockedError:
        return replace(leftover, reason="another process works on it")
    if leftover.path.exists():
        return replace(leftover, reason="it cannot be deleted; check the permissions of its folder")
    if leftover.kind in (DOWNLOAD, RAW, RECORDED):
        remove_empty_parents(leftover.path, root.path / "downloads")
    return replace(leftover, deleted=True)


def _refreshed(leftover: Leftover, root: CacheRoot) -> Leftover:
    is_raw = leftover.kind == DOWNLOAD and is_installed(root, leftover.id)
    return leftover_of(RAW if is_raw else leftover.kind, leftover.path, leftover.id)


@contextmanager
def _lock(leftover: Leftover, root: CacheRoot) -> Iterator[None]:
    with ExitStack() as locks:
        # Running processes give their files an id. A preprocess run may replace a derived dataset.
        if leftover.id and leftover.kind != RUN:
            locks.enter_context(locked(root.lock(leftover.id), leftover.id, 0.0))
        if leftover.kind in (RUN, TRASH) and leftover.id:
            locks.enter_context(dest_locked(root.dataset(leftover.id).resolve(), 0.0))
        yield


def raw_files(root: CacheRoot) -> Iterator[Leftover]:
    """Yield the folders that have raw files: each belongs to one id."""
    top = root.path / "downloads"
    noted: dict[str, bool] = defaultdict(bool)
    recorded = [path for _, path in root.recordings()]
    for path in paths_below(top):
        if any(path.is_relative_to(each) for each in recorded):
            continue
        if path.is_file() and (id := _id_of_raw(root, path.parent.relative_to(top))):
            noted[id] |= is_state_file(path)
    for id in sorted(noted):
        if is_installed(root, id):
            yield leftover_of(RAW, root.downloads(id), id)
        elif noted[id]:
            yield leftover_of(DOWNLOAD, root.downloads(id), id)


def _id_of_raw(root: CacheRoot, below: Path) -> str:
    """Return the id of a folder of raw files: its own name, or the name of a folder above it."""
    # Raw files may be in folders of their dataset; an installed id decides, else the whole path.
    parts = below.parts
    for count in range(2, len(parts) + 1):
        id = "/".join(parts[:count])
        if is_id(id) and is_installed(root, id):
            return id
    while parts and not is_id("/".join(parts)):
        parts = parts[:-1]
    return "/".join(parts)


def _orphaned_tables(root: CacheRoot) -> Iterator[Leftover]:
    known = set()
    for id in root.installed():
        manifest = condition_of(root.dataset(id), id).manifest
        if manifest is None:
            return  # a damaged manifest does not identify its tables
        known.add(manifest.content)
    # A copy in the trash whose dataset is missing is restored, with its tables.
    for path in root.trashed():
        with suppress(OSError, DamagedDataset):
            manifest = read_manifest(path)
            known |= set() if is_installed(root, manifest.id) else {manifest.content}
    for folder in sorted((root.path / "tables").glob("*")):
        if re.fullmatch("[0-9a-f]{64}", folder.name) and folder.name not in known:
            yield leftover_of(TABLES, folder)


def leftover_of(kind: str, path: Path, id: str = "") -> Leftover:
    """Return a folder with its size and age, even while other processes write to it."""
    return Leftover(kind, path, folder_size(path), _age_days(path), id)


def _age_days(folder: Path) -> float:
    newest = 0.0
    for path in (folder, *paths_below(folder)):
        with suppress(FileNotFoundError):
            newest = max(newest, path.lstat().st_mtime)
    return max(0.0, time.time() - newest) / SECONDS_A_DAY


def _id_in(folder: Path) -> str:
    """Return the id in the manifest of a folder; empty if it cannot be read."""
    try:
        return read_manifest(folder).id
    except (OSError, DamagedDataset):
        return ""
