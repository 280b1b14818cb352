"""How much of the disk a cache root takes, dataset by dataset."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from datasets_cli.catalogue.selection import InstalledIds, select_installed
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import takes_fields
from datasets_cli.install.find import condition_of, installed_id
from datasets_cli.sources.disk import free_bytes
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.check import folder_size
from datasets_cli.verbs.prune import Leftover, find_leftovers


@dataclass(frozen=True)
class DatasetUsage(JsonForm):
    """The disk space of one installed dataset.

    Args:
        id: the full id.
        data_bytes: of its folder.
        raw_bytes: of raw files that are kept.
        table_bytes: of tables about it, also in the user's cache.
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
        """All of it."""
        return self.data_bytes + self.raw_bytes + self.table_bytes


@dataclass(frozen=True)
class DiskUsage(JsonForm):
    """The disk space of a cache root.

    Args:
        root: the folder.
        datasets: the installed datasets that were asked for, the largest first.
        leftovers: what no installed dataset needs; empty where ids were asked for.
        free_bytes: of its disk.
    """

    JSON = "root bytes=size_bytes free_bytes datasets leftovers"

    root: Path
    datasets: tuple[DatasetUsage, ...]
    leftovers: tuple[Leftover, ...]
    free_bytes: int

    @property
    def size_bytes(self) -> int:
        """All that is listed."""
        datasets = sum(each.size_bytes for each in self.datasets)
        return datasets + sum(each.size_bytes for each in self.leftovers)


@takes_fields(InstalledIds)
def disk_usage(call: InstalledIds) -> DiskUsage:
    """Return what installed datasets take on the disk, and what killed work left there.

    Raises:
        UnknownDataset: a glob matches nothing.
        DatasetNotInstalled: one is not there.
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
        free_bytes(place.path),
    )


def usage_of(id: str, root: CacheRoot) -> DatasetUsage:
    """Return the disk space of an installed dataset, and of what goes with it."""
    condition = condition_of(root.dataset(id), id)
    manifest = condition.manifest
    tables = sum(map(folder_size, root.tables_to_read(manifest.content))) if manifest else 0
    return DatasetUsage(
        id, folder_size(root.dataset(id)), folder_size(root.downloads(id)), tables, condition.state
    )
