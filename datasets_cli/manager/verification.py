"""Verifying an installed dataset: its files, its identity, that it opens, and every value."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from datasets_cli.config import Config
from datasets_cli.damage import repair_advice
from datasets_cli.errors import DamagedDataset, DatasetNotInstalled, RldsError
from datasets_cli.formats.limits import raised_limits
from datasets_cli.install.installed import installed_id, read_manifest_of
from datasets_cli.progress import Progress, reporting_to
from datasets_cli.store.cache_root import CacheRoot, has_manifest
from datasets_cli.store.check import check_digests
from datasets_cli.store.commit import read_one_copy
from datasets_cli.store.dataset import Dataset, open_dataset
from datasets_cli.store.deep_check.deep_check import deep_check
from datasets_cli.store.deep_check.report import TABLE, DeepReport
from datasets_cli.store.manifest import Manifest
from datasets_cli.store.tables import save_table

logger = logging.getLogger(__name__)


def verify(text: str, config: Config) -> Manifest:
    """Compare an installed dataset with its manifest, open it, and return the manifest."""
    return _opened(text, config).manifest


def verify_deep(
    text: str, config: Config, progress: Progress | None = None
) -> tuple[Manifest, DeepReport]:
    """Verify a dataset and read every value; keep what that finds out in its tables."""
    dataset = _opened(text, config)
    manifest = dataset.manifest
    with _reading_errors(manifest):
        report = deep_check(dataset, reporting_to(progress))
    try:
        save_table(CacheRoot(config.root), manifest.content, TABLE, report.to_json())
    except OSError as error:  # the report is shown, and can be made again
        logger.warning("%s: the report is not kept (%s)", manifest.id, error)
    return manifest, report


def _opened(text: str, config: Config) -> Dataset:
    """Return a dataset whose files are its manifest's, and of which some rows were read."""
    id = installed_id(text, config)
    folder = CacheRoot(config.root).dataset(id)
    try:
        with raised_limits(dict(config.limits)):
            return read_one_copy(folder, lambda: _open_checked(folder, id))
    except FileNotFoundError:
        if has_manifest(folder):
            raise
        raise DatasetNotInstalled(
            f"{id} is not installed any more: it was deleted while it was verified."
        ) from None


def _open_checked(folder: Path, id: str) -> Dataset:
    manifest = read_manifest_of(folder, id)
    try:
        check_digests(folder, manifest)
    except FileNotFoundError:
        raise
    except OSError as error:  # such as a folder that only another user may enter
        raise DamagedDataset(
            f"{folder} cannot be read: {error.strerror or error}. See its permissions."
        ) from error
    _check_content(manifest)
    with _reading_errors(manifest):
        dataset = open_dataset(folder, text=True)
        assert len(dataset.offsets), "an opened table begins with 0"
        first_and_last = torch.tensor([0, len(dataset) - 1][: len(dataset)], dtype=torch.int64)
        dataset.gather(first_and_last)
        if dataset.texts:
            dataset.texts.gather(first_and_last)
    return dataset


@contextmanager
def _reading_errors(manifest: Manifest) -> Iterator[None]:
    """Turn what reading rows raises over a dataset that was written wrong into ours."""
    try:
        yield
    except RldsError:
        raise
    except (OSError, ValueError, LookupError, TypeError, RuntimeError) as error:
        raise DamagedDataset(
            f"{manifest.id}: its files are as the manifest says, but cannot be read "
            f"({type(error).__name__}: {error}). {repair_advice(manifest.id)}"
        ) from error


def _check_content(manifest: Manifest) -> None:
    computed = manifest.computed_content()
    if manifest.content != computed:
        raise DamagedDataset(
            f"{manifest.id}: its manifest says that its content is {manifest.content}, but "
            f"describes the content {computed}. {repair_advice(manifest.id)}"
        )
