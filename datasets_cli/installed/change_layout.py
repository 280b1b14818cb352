"""Changing the layout of an installed dataset; every value stays the same bit for bit."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from datasets_cli.config import Config
from datasets_cli.errors import DamagedDataset, UsageError
from datasets_cli.installed.condition import check_owner
from datasets_cli.installed.lookup import installed_id
from datasets_cli.progress import Progress, reporting_to
from datasets_cli.reinstall import reinstall_advice
from datasets_cli.sources.disk import check_free_space, make_folder, open_regular
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.check import check_digests, check_sizes
from datasets_cli.store.commit import check_one_disk, commit, restore
from datasets_cli.store.compact.records import RECORDS, ROW_MAP
from datasets_cli.store.dataset import Dataset, open_dataset
from datasets_cli.store.lock import locked
from datasets_cli.store.manifest import LAYOUTS, Manifest
from datasets_cli.store.schema.bits import to_array
from datasets_cli.store.schema.columns import META_FILENAME, Key, rows_per_block
from datasets_cli.store.schema.texts import text_files
from datasets_cli.store.schema.trajectory_file import FILENAME as TRAJECTORIES
from datasets_cli.store.schema.tree import Tree
from datasets_cli.store.writer import DatasetWriter


def change_layout(text: str, layout: str, config: Config, progress: Progress | None = None) -> Path:
    """Rewrite an installed dataset in another layout and return its folder."""
    # The old copy stays until the new one is committed.
    if layout not in LAYOUTS:
        raise UsageError(f"The layout {layout!r} does not exist. Expected: {', '.join(LAYOUTS)}.")
    root = CacheRoot(config.root)
    id = installed_id(text, config)
    with locked(root.lock(id), id, config.lock_timeout, progress):
        progress = reporting_to(progress)
        restore(root, id)
        dataset = open_dataset(root.dataset(id))
        check_owner(dataset.manifest, id)  # under whose id the new copy is written
        if dataset.manifest.layout == layout:
            return dataset.folder
        # What is damaged would get a new manifest, with checksums that fit the damage.
        check_digests(dataset.folder, dataset.manifest)
        names_of_text = text_files(dataset.manifest.texts)
        row_bytes = sum(column.row_bytes for column in dataset.manifest.columns)
        text_bytes = sum(int(dataset.manifest.files[name]["bytes"]) for name in names_of_text)
        check_one_disk(root, id)
        check_free_space(root.path, row_bytes * len(dataset) + text_bytes, id)
        staging = root.new_staging(id)
        make_folder(staging.parent)
        writer = DatasetWriter(layout, staging, id, dataset.offsets.numpy())
        try:
            writer.copy_text(dataset.folder, dataset.manifest.texts)
            for rows in read_rows(dataset):
                writer.write(rows)
                progress.writing(writer.num_rows)
            written = writer.finish(extra_files(dataset))
            _check_text(dataset.manifest, written.files)
        except BaseException:
            with suppress(OSError):  # a full disk: closing writes what is still buffered
                writer.close()
            shutil.rmtree(staging, ignore_errors=True)
            raise
        manifest = replace(
            dataset.manifest, layout=layout, files=written.files, record=written.record
        )
        check_sizes(staging, manifest)  # before the good copy goes
        commit(root, staging, manifest)
    return root.dataset(id)


def _check_text(manifest: Manifest, files: Mapping[str, Mapping[str, Any]]) -> None:
    """Check that the files of text were copied as the manifest knows them."""
    for name in text_files(manifest.texts):
        if files[name]["sha256"] != (expected := manifest.files[name]["sha256"]):
            raise DamagedDataset(
                f"{manifest.id}: {name} has sha256 {files[name]['sha256']}, expected {expected}. "
                f"{reinstall_advice(manifest)}"
            )


def read_rows(dataset: Dataset) -> Iterator[dict[Key, np.ndarray]]:
    """Yield all rows of a dataset in order, in bounded runs, as numpy columns; no text."""
    step = rows_per_block(sum(column.row_bytes for column in dataset.manifest.columns))
    for start in range(0, len(dataset), step):
        index = torch.arange(start, min(start + step, len(dataset)))
        yield {key: to_array(leaf) for key, leaf in leaves(dataset.gather(index))}


def leaves(tree: Tree, path: Key = ()) -> Iterator[tuple[Key, torch.Tensor]]:
    """Yield the leaves of a nested dict with their keys."""
    for name, item in tree.items():
        if isinstance(item, dict):
            yield from leaves(item, (*path, name))
        else:
            yield (*path, name), item


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
