"""Verifying an installed dataset: its files, its identity, that it opens, and every value."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch

from datasets_cli.config import Config
from datasets_cli.errors import DamagedDataset, RldsError
from datasets_cli.install.installed import installed_id
from datasets_cli.progress import Progress, reporting_to
from datasets_cli.store.audit.deep_check import deep_check
from datasets_cli.store.audit.report import TABLE, DeepReport
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.check import check_digests
from datasets_cli.store.dataset import Dataset, open_dataset
from datasets_cli.store.manifest import Manifest, read_manifest
from datasets_cli.store.tables import save_table

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Verification:
    """A dataset in which no damage was found.

    Args:
        manifest: everything known about it.
        report: what a deep check found out; None where there was none.
    """

    manifest: Manifest
    report: DeepReport | None = None


def verify(
    text: str, config: Config, *, deep: bool = False, progress: Progress | None = None
) -> Verification:
    """Compare an installed dataset with its manifest, and open it.

    Args:
        text: an id, or a name that resolves to one.
        config: the root.
        deep: also read every value, and keep what that finds out in the dataset's tables.
        progress: told of the rows read.

    Raises:
        DatasetNotInstalled: it is not there.
        DamagedDataset: names every file that differs, or every rule of the format that is broken.
    """
    root = CacheRoot(config.root)
    folder = root.dataset(installed_id(text, config))
    manifest = read_manifest(folder)
    check_digests(folder, manifest)
    _check_content(manifest)
    try:
        dataset = _opened(open_dataset(folder))
        report = deep_check(dataset, reporting_to(progress)) if deep else None
    except RldsError:
        raise
    except (OSError, ValueError, LookupError, TypeError, RuntimeError) as error:
        raise DamagedDataset(
            f"{manifest.id}: its files are as the manifest says, but it cannot be read "
            f"({type(error).__name__}: {error}). Install it again: rlds download --force "
            f"{manifest.id}"
        ) from error
    if report:
        try:
            save_table(root, manifest.content, TABLE, report.to_json())
        except OSError as error:  # the report is shown, and can be made again
            logger.warning("%s: the report is not kept (%s)", manifest.id, error)
    return Verification(manifest, report)


def _check_content(manifest: Manifest) -> None:
    """Check that the identity is that of what the manifest describes."""
    computed = manifest.computed_content()
    if manifest.content != computed:
        raise DamagedDataset(
            f"{manifest.id}: its manifest says that its content is {manifest.content}, but "
            f"describes the content {computed}. Install it again: rlds download --force "
            f"{manifest.id}"
        )


def _opened(dataset: Dataset) -> Dataset:
    """Return a dataset of which the trajectory table, the first and the last row were read."""
    assert len(dataset.offsets), "an opened table begins with 0"
    dataset.gather(torch.tensor([0, len(dataset) - 1][: len(dataset)]))
    return dataset
