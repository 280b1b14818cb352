"""Changes the layout of an installed dataset: writes its rows again and commits them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from datasets_cli.core.progress import Note, Progress, Rows
from datasets_cli.core.system_errors import repair_advice
from datasets_cli.errors import DamagedDataset
from datasets_cli.install.find import check_owner
from datasets_cli.schema.columns import FINAL_FOLDER, META_FILENAME
from datasets_cli.schema.texts import text_files
from datasets_cli.schema.trajectory_file import FILENAME as TRAJECTORIES
from datasets_cli.sources.disk import check_free_space, make_folder
from datasets_cli.sources.regular_file import open_regular
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.check import check_digests, check_sizes
from datasets_cli.store.commit import check_place, commit
from datasets_cli.store.dataset import Dataset, open_dataset
from datasets_cli.store.layouts.records import RECORDS, ROW_MAP
from datasets_cli.store.manifest import Manifest
from datasets_cli.store.writer import LayoutWriter


def change_layout(root: CacheRoot, id: str, layout: str, progress: Progress) -> Manifest:
    """Write an installed dataset, whose lock the caller holds, in a layout; return its manifest."""
    dataset = open_dataset(root.dataset(id))
    check_owner(dataset.manifest, id)  # the new copy gets the id of the manifest
    if dataset.manifest.layout == layout:
        progress(Note(f"{id} is up to date: it has the layout {layout}"))
        return dataset.manifest
    return _write_again(dataset, layout, root, progress)


def _write_again(dataset: Dataset, layout: str, root: CacheRoot, progress: Progress) -> Manifest:
    """Write a dataset in another layout, commit that and return its manifest."""
    # The old copy stays until the new one is committed. The digests are checked first: otherwise
    # damaged files would get a new manifest, with checksums that match the damage.
    manifest = dataset.manifest
    check_digests(dataset.folder, manifest)
    row_bytes = sum(column.row_bytes for column in manifest.columns)
    text_bytes = sum(int(manifest.files[name]["bytes"]) for name in text_files(manifest.texts))
    check_place(root, manifest.id)
    final = [name for name in manifest.files if name.startswith(f"{FINAL_FOLDER}/")]
    copied_bytes = text_bytes + sum(int(manifest.files[name]["bytes"]) for name in final)
    check_free_space(root.path, row_bytes * len(dataset) + copied_bytes, manifest.id)
    staging = root.new_staging(manifest.id)
    make_folder(staging.parent)
    progress(Rows(manifest.id, 0, len(dataset)))
    offsets = dataset.offsets.numpy()
    with LayoutWriter(layout, staging, manifest.id, offsets) as writer:
        writer.copy_text(dataset.folder, manifest.texts)
        writer.copy_final(dataset.folder, final)
        for rows in dataset.blocks():
            writer.write(rows)
            progress(Rows(manifest.id, writer.num_rows, len(dataset)))
        written = writer.finish(extra_files(dataset))
        _check_copies(manifest, written.files, [*text_files(manifest.texts), *final])
    new = replace(manifest, layout=layout, files=written.files, record=written.record)
    check_sizes(staging, new)  # before the old copy is deleted
    commit(root, staging, new)
    return new


def _check_copies(
    manifest: Manifest, files: Mapping[str, Mapping[str, Any]], names: Iterable[str]
) -> None:
    for name in names:
        if files[name]["sha256"] != (expected := manifest.files[name]["sha256"]):
            found = files[name]["sha256"]
            raise DamagedDataset(
                f"{manifest.id}: {name} has sha256 {found}, expected {expected}.",
                id=manifest.id,
                path=name,
                expected=expected,
                found=found,
                advice=repair_advice(manifest.id),
            )


def extra_files(dataset: Dataset) -> Mapping[str, bytes]:
    """Return the small files of the recipe that are stored next to the data."""
    manifest = dataset.manifest
    not_extra = {RECORDS, ROW_MAP, TRAJECTORIES, *(column.filename for column in manifest.columns)}
    not_extra.update(text_files(manifest.texts))
    names = [
        name
        for name in manifest.files
        if name not in not_extra
        and not name.startswith(("frames/", f"{FINAL_FOLDER}/"))
        and name.rpartition("/")[2] != META_FILENAME
    ]
    return {name: _bytes_of(dataset.folder / name) for name in names}


def _bytes_of(path: Path) -> bytes:
    with open_regular(path) as file:
        return file.read()
