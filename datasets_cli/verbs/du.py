"""The disk usage of a cache root, by dataset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from datasets_cli.catalogue.entries import all_entries
from datasets_cli.catalogue.names import InstalledIds, select_installed
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import takes_fields
from datasets_cli.install.find import condition_of, installed_id
from datasets_cli.sources.disk import free_bytes
from datasets_cli.store.cache_root import CacheRoot, lock_of
from datasets_cli.store.check import folder_size
from datasets_cli.store.lock import is_held
from datasets_cli.verbs.prune import (
    DOWNLOAD,
    RUN,
    SECONDS_A_DAY,
    Leftover,
    find_leftovers,
    leftover_of,
    raw_files,
)

CONVERSION = "conversion"
OTHER = "work"
"""The kind of a process that holds a lock, but has not written any files."""


@dataclass(frozen=True)
class Activity(JsonForm):
    """Unfinished work on a dataset.

    Args:
        kind: ``"download"``, ``"conversion"``, ``"preprocess run"`` or, before
            anything is written, ``"work"``.
        id: the id of the dataset.
        path: the unfinished file or folder, or the lock.
        running: whether a process works on it now; otherwise repeating the command continues it.
        size_bytes: the bytes that are written so far.
        expected_bytes: the final size, or None if unknown.
        rested_seconds: the seconds since the last write.
    """

    JSON = "kind id path running bytes=size_bytes expected_bytes rested_seconds"

    kind: str
    id: str
    path: Path
    running: bool
    size_bytes: int
    expected_bytes: int | None
    rested_seconds: int


@dataclass(frozen=True)
class DatasetUsage(JsonForm):
    """The disk space of one installed dataset.

    Args:
        id: the full id.
        data_bytes: the size of its folder.
        raw_bytes: the size of its raw files.
        table_bytes: the size of its cached tables, also in the user's cache.
        state: as in ``rlds list``.
    """

    JSON = "id bytes=size_bytes data_bytes raw_bytes table_bytes state"

    id: str
    data_bytes: int
    raw_bytes: int
    table_bytes: int
    state: str

    @property
    def size_bytes(self) -> int:
        """The total size."""
        return self.data_bytes + self.raw_bytes + self.table_bytes


@dataclass(frozen=True)
class DiskUsage(JsonForm):
    """The disk usage of a cache root.

    Args:
        root: the folder.
        datasets: the selected installed datasets, the largest first.
        leftovers: files that no installed dataset needs; empty if ids were selected.
        activity: running and interrupted downloads, conversions and runs of preprocess; empty if
            ids were selected.
        free_bytes: the free space of the disk.
    """

    JSON = "root bytes=size_bytes free_bytes datasets leftovers activity"

    root: Path
    datasets: tuple[DatasetUsage, ...]
    leftovers: tuple[Leftover, ...]
    activity: tuple[Activity, ...]
    free_bytes: int

    @property
    def size_bytes(self) -> int:
        """The total size of the listed datasets and leftovers."""
        datasets = sum(each.size_bytes for each in self.datasets)
        return datasets + sum(each.size_bytes for each in self.leftovers)


@takes_fields(InstalledIds)
def disk_usage(call: InstalledIds) -> DiskUsage:
    """Return the disk usage of installed datasets and leftovers, and the running work.

    Raises:
        UnknownDataset: a glob matches nothing.
        DatasetNotInstalled: a dataset is not installed.
    """
    config = call.chosen_config()
    place = CacheRoot(config.root)
    ids = [installed_id(id, config) for id in select_installed(call.ids, config)]
    usages = [usage_of(id, place) for id in dict.fromkeys(ids)]
    # Raw files and recordings of installed datasets are counted with these.
    counted = {place.downloads(each.id) for each in usages}
    leftovers = find_leftovers(place) if call.ids == "*" else []
    return DiskUsage(
        place.path,
        tuple(sorted(usages, key=lambda each: (-each.size_bytes, each.id))),
        tuple(each for each in leftovers if each.path not in counted),
        tuple(activity_in(place) if call.ids == "*" else ()),
        free_bytes(place.path),
    )


def usage_of(id: str, root: CacheRoot) -> DatasetUsage:
    """Return the disk usage of an installed dataset with its raw files and tables."""
    condition = condition_of(root.dataset(id), id)
    manifest = condition.manifest
    tables = sum(map(folder_size, root.tables_to_read(manifest.content))) if manifest else 0
    return DatasetUsage(
        id, folder_size(root.dataset(id)), folder_size(root.downloads(id)), tables, condition.state
    )


def activity_in(root: CacheRoot) -> list[Activity]:
    """Return the running and interrupted work, detected by its files."""
    entries = all_entries(root)
    sizes = {id: entry.size for id, (_, entry) in entries.items()}
    downloads = [*raw_files(root)]
    ids = root.ids_of_work([*entries, *root.installed(), *(each.id for each in downloads)])
    locks = (root.path / "locks").glob("*.lock")
    locked = {ids.get(path.stem, path.stem) for path in locks if is_held(path)}
    work = [
        _activity(each, DOWNLOAD, each.id in locked, sizes.get(each.id))
        for each in downloads
        if each.kind == DOWNLOAD or each.id in locked
    ]
    work += [*_conversions(root, ids), *_runs(root)]
    new = sorted(locked - {each.id for each in work})
    work += [Activity(OTHER, id, root.path / "locks", True, 0, None, 0) for id in new]
    return sorted(work, key=lambda each: (not each.running, each.id, each.kind))


def _conversions(root: CacheRoot, ids: Mapping[str, str]) -> Iterator[Activity]:
    for path, is_used in root.staging():
        named = (id for slug, id in ids.items() if path.name.startswith(f"{slug}-"))
        yield _activity(
            leftover_of(CONVERSION, path, next(named, path.name)), CONVERSION, is_used, None
        )


def _runs(root: CacheRoot) -> Iterator[Activity]:
    for id, path in root.partial_runs():
        is_running = is_held(lock_of(root.dataset(id)))
        yield _activity(leftover_of(RUN, path, id), RUN, is_running, None)


def _activity(left: Leftover, kind: str, running: bool, expected_bytes: int | None) -> Activity:
    rested = int(left.age_days * SECONDS_A_DAY)
    return Activity(kind, left.id, left.path, running, left.size_bytes, expected_bytes, rested)
