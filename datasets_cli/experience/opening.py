"""Opening a dataset by its id, which may install it first, or by its folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path

from datasets_cli.audit.report import load_report
from datasets_cli.config import Config
from datasets_cli.core.options import check_choice
from datasets_cli.errors import DamagedDataset, IntegrityError, KnownDefect, UsageError
from datasets_cli.experience.options import DatasetOptions
from datasets_cli.formats.limits import raised_limits
from datasets_cli.install.find import (
    check_asked,
    check_folder,
    folder_meant,
    installed_id,
    is_there,
)
from datasets_cli.install.installation import find_installed, install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.parallel.engine import Workers
from datasets_cli.replay.storages.dataset import DatasetStorage, reopen_storage
from datasets_cli.replay.storages.options import StorageOptions
from datasets_cli.store.cache_root import CacheRoot, has_manifest
from datasets_cli.store.dataset import Accept, warn_caller
from datasets_cli.store.manifest import LAYOUTS, Manifest


def open_or_install(
    id: str,
    config: Config,
    options: DatasetOptions,
    variant: Mapping[str, str] | None = None,
    num_workers: int | None = 0,
) -> DatasetStorage:
    """Open the rows of a dataset, installed first if it is missing or ``download="force"``."""
    # The short way for an installed dataset without further options.
    has_options = (
        variant or options.source is not None or options.download == "force" or num_workers
    )
    is_plain = not has_options and num_workers is not None and options.layout in (None, *LAYOUTS)
    if is_plain and has_manifest(folder := CacheRoot(config.root).dataset(id)):
        rows = _open(folder, partial(check_asked, id=id, layout=options.layout), config, options)
        return _without_defects(rows, config, options.audit)
    install_options = InstallOptions(
        layout=options.layout,
        force=options.download == "force",
        source=options.source,
        options=variant or {},
        workers=Workers(num_workers=num_workers),
    )
    rows = _open(*_find(id, config, options, install_options), config, options)
    return _without_defects(rows, config, options.audit)


def open_folder(
    folder: Path, config: Config, options: DatasetOptions, variant: Mapping[str, str] | None
) -> DatasetStorage:
    """Open the rows of a dataset's folder, inside or outside the cache root."""
    install_options = {
        "options": bool(variant),
        "source": options.source is not None,
        "download": options.download == "force",
    }
    if names := [name for name, is_set in install_options.items() if is_set]:
        raise UsageError(
            f"{', '.join(names)} cannot be combined with a folder, {folder}, which is only opened.",
            argument=names[0],
            path=folder,
            advice="Leave them out, or pass an id.",
        )
    check_folder(folder)

    def accept(manifest: Manifest) -> None:
        check_asked(manifest, manifest.id, options.layout)

    rows = _open(folder.absolute(), accept, config, options)
    return _without_defects(rows, config, options.audit)


def open_rows(
    id: str | os.PathLike[str], config: Config, options: StorageOptions
) -> DatasetStorage:
    """Open the rows of an installed dataset, or of a folder."""
    folder, id = folder_meant(id, config)
    return _open(folder, partial(check_asked, id=id, layout=None), config, options)


def _find(
    id: str, config: Config, options: DatasetOptions, install_options: InstallOptions
) -> tuple[Path, Accept | None]:
    """Return the folder of a dataset, and the check of its manifest."""
    if options.download is False:
        id = installed_id(id, config, install_options.options)
    elif not is_there(id, config, install_options):
        progress = options.progress
        return install_dataset(id, config, install_options, progress=progress).path, None
    if install_options.source is not None:
        return find_installed(id, config, install_options).path, None
    accept = partial(check_asked, id=id, layout=install_options.layout)
    return CacheRoot(config.root).dataset(id), accept


def _open(
    folder: Path, accept: Accept | None, config: Config, options: StorageOptions
) -> DatasetStorage:
    try:
        with raised_limits(dict(config.limits)) if config.limits else nullcontext():
            rows = reopen_storage(folder, options, accept)
    except PermissionError as error:
        raise DamagedDataset(
            f"{folder} cannot be read: {error.strerror}.",
            path=folder,
            advice="Check its permissions.",
        ) from error
    rows.dataset.warn_if_unverified()
    return rows


def _without_defects(rows: DatasetStorage, config: Config, audit: str) -> DatasetStorage:
    """Return the rows; warn of known defects, or raise, if the audit found any."""
    check_choice("audit", audit, ("warn", "raise", "ignore"))
    id = rows.dataset.id
    if audit == "ignore" or (audit == "warn" and id in _WARNED):
        return rows
    report = load_report(CacheRoot(config.root), rows.dataset.content)
    if report is None or not (wrong := report.at_least("wrong")):
        return rows
    text = f"{id} has defects: {' '.join(f'{each.rule}: {each}.' for each in wrong)}"
    if audit == "raise":
        raise IntegrityError(
            text, id=id, advice=f"Open it with audit='ignore', or see rlds audit {id}."
        )
    _WARNED.add(id)
    warn_caller(f"{text} See rlds audit {id}; audit='ignore' disables this warning.", KnownDefect)
    return rows


_WARNED: set[str] = set()
"""Ids of datasets with a warning of defects in this process."""
