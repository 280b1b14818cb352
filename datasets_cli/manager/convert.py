"""Changing the layout of an installed dataset; every value stays the same bit for bit."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from datasets_cli.damage import repair_advice
from datasets_cli.errors import DamagedDataset, UsageError
from datasets_cli.install.installed import check_owner, installed_id
from datasets_cli.json_form import JsonForm
from datasets_cli.manager.path import IdCall
from datasets_cli.options import takes_fields
from datasets_cli.progress import Progress, ProgressOptions, reporting_to
from datasets_cli.progress_bars import shown
from datasets_cli.schema.columns import META_FILENAME
from datasets_cli.schema.texts import text_files
from datasets_cli.schema.trajectory_file import FILENAME as TRAJECTORIES
from datasets_cli.sources.disk import check_free_space, make_folder, open_regular
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.check import check_digests, check_sizes
from datasets_cli.store.commit import check_one_disk, commit, restore
from datasets_cli.store.dataset import Dataset, open_dataset
from datasets_cli.store.layouts.records import RECORDS, ROW_MAP
from datasets_cli.store.lock import locked
from datasets_cli.store.manifest import LAYOUTS, Manifest, read_manifest
from datasets_cli.store.writer import DatasetWriter


@dataclass(frozen=True)
class ConvertedDataset(JsonForm):
    """An installed dataset in the layout that was asked for.

    Args:
        id: the full id.
        path: its folder.
        layout: ``"ted"`` or ``"compact"``.
        size_bytes: of all its files.
        state: ``"installed"``, ``"unchecked"`` or ``"unverified"``.
        unverified: why its raw files are not known to be the publisher's; empty where they are.
    """

    JSON = "id path layout bytes=size_bytes state"

    id: str
    path: Path
    layout: str
    size_bytes: int
    state: str = "installed"
    unverified: tuple[str, ...] = ()


@dataclass(frozen=True)
class ConvertCall(ProgressOptions, IdCall):
    """What ``convert`` takes.

    Args:
        layout: ``"ted"`` or ``"compact"``.
    """

    layout: str


@takes_fields(ConvertCall)
def convert(call: ConvertCall) -> ConvertedDataset:
    """Change the layout of an installed dataset; every value stays the same bit for bit.

    Raises:
        UsageError: there is no such layout.
        SourceError: ``compact``, and a frame's successor is not the following row's frame.
        DiskFull: no room for a second copy; the old one stays until the new one is committed.
    """
    config, layout = call.chosen_config(), call.layout
    if layout not in LAYOUTS:
        raise UsageError(f"The layout {layout!r} does not exist. Expected: {', '.join(LAYOUTS)}.")
    place = CacheRoot(config.root)
    id = installed_id(call.id, config)
    with (
        shown(call.progress) as told,
        locked(place.lock(id), id, config.lock_timeout, told),
    ):
        restore(place, id)
        dataset = open_dataset(place.dataset(id))
        check_owner(dataset.manifest, id)  # under whose id the new copy is written
        if dataset.manifest.layout != layout:
            _change_layout(dataset, layout, place, reporting_to(told))
    manifest = read_manifest(place.dataset(id))
    return ConvertedDataset(
        manifest.id,
        place.dataset(id),
        manifest.layout,
        manifest.size_bytes,
        manifest.state,
        tuple(manifest.unverified),
    )


def _change_layout(dataset: Dataset, layout: str, root: CacheRoot, progress: Progress) -> None:
    """Write a dataset, whose lock is held, in another layout, and commit that."""
    # The old copy stays until the new one is committed. What is damaged would get a new manifest,
    # with checksums that fit the damage.
    manifest = dataset.manifest
    check_digests(dataset.folder, manifest)
    row_bytes = sum(column.row_bytes for column in manifest.columns)
    text_bytes = sum(int(manifest.files[name]["bytes"]) for name in text_files(manifest.texts))
    check_one_disk(root, manifest.id)
    check_free_space(root.path, row_bytes * len(dataset) + text_bytes, manifest.id)
    staging = root.new_staging(manifest.id)
    make_folder(staging.parent)
    writer = DatasetWriter(layout, staging, manifest.id, dataset.offsets.numpy())
    try:
        writer.copy_text(dataset.folder, manifest.texts)
        for rows in dataset.blocks():
            writer.write(rows)
            progress.writing(writer.num_rows)
        written = writer.finish(extra_files(dataset))
        _check_text(manifest, written.files)
    except BaseException:
        with suppress(OSError):  # a full disk: closing writes what is still buffered
            writer.close()
        shutil.rmtree(staging, ignore_errors=True)
        raise
    new = replace(manifest, layout=layout, files=written.files, record=written.record)
    check_sizes(staging, new)  # before the good copy goes
    commit(root, staging, new)


def _check_text(manifest: Manifest, files: Mapping[str, Mapping[str, Any]]) -> None:
    for name in text_files(manifest.texts):
        if files[name]["sha256"] != (expected := manifest.files[name]["sha256"]):
            raise DamagedDataset(
                f"{manifest.id}: {name} has sha256 {files[name]['sha256']}, expected {expected}. "
                f"{repair_advice(manifest.id)}"
            )


def extra_files(dataset: Dataset) -> Mapping[str, bytes]:
    """Return the small files that the recipe has beside the data."""
    manifest = dataset.manifest
    not_extra = {RECORDS, ROW_MAP, TRAJECTORIES, *(column.filename for column in manifest.columns)}
    not_extra.update(text_files(manifest.texts))
    names = [
        name
        for name in manifest.files
        if name not in not_extra
        and not name.startswith("frames/")
        and name.rpartition("/")[2] != META_FILENAME
    ]
    return {name: _bytes_of(dataset.folder / name) for name in names}


def _bytes_of(path: Path) -> bytes:
    with open_regular(path) as file:
        return file.read()
