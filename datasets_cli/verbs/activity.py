"""What is under way in a cache root: downloads, conversions and runs of preprocess."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from datasets_cli.catalogue.entries import all_entries
from datasets_cli.config import RootOptions
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import takes_fields
from datasets_cli.store.cache_root import CacheRoot, lock_of
from datasets_cli.store.lock import is_held
from datasets_cli.verbs.prune import (
    DOWNLOAD,
    RUN,
    SECONDS_A_DAY,
    Leftover,
    leftover_of,
    raw_files,
)

CONVERSION = "conversion"
OTHER = "work"
"""Of a process that holds a lock, and has written nothing yet."""


@dataclass(frozen=True)
class Activity(JsonForm):
    """Work on a dataset that is not done.

    Args:
        kind: ``"download"``, ``"conversion"``, ``"preprocess run"`` or, where nothing is written
            yet, ``"work"``.
        id: of the dataset.
        path: what is written, or the lock.
        running: whether a process works on it now; else the same command continues it.
        size_bytes: written so far.
        expected_bytes: what it will be; None where that is not known.
        rested_seconds: since anything was written.
    """

    JSON = "kind id path running bytes=size_bytes expected_bytes rested_seconds"

    kind: str
    id: str
    path: Path
    running: bool
    size_bytes: int
    expected_bytes: int | None
    rested_seconds: int


@takes_fields(RootOptions)
def activity(call: RootOptions) -> list[Activity]:
    """Return the work that is under way or was interrupted, from what is on the disk."""
    root = CacheRoot(call.chosen_config().root)
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
