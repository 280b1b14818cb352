"""From an id to the rows of its dataset: found, or installed first, and opened."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from datasets_cli.config import Config
from datasets_cli.errors import DamagedDataset
from datasets_cli.formats.limits import raised_limits
from datasets_cli.install.install import find_installed, install_dataset
from datasets_cli.install.installed import check_asked, installed_id, is_there
from datasets_cli.install.options import InstallOptions
from datasets_cli.progress import Progress
from datasets_cli.replay.storages.dataset import DatasetStorage, reopen_storage
from datasets_cli.replay.storages.options import StorageOptions
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.dataset import Accept, warn_if_unverified


def open_rows(
    id: str,
    config: Config,
    options: StorageOptions,
    install_options: InstallOptions | None = None,
    download: bool | str = False,
    progress: Progress | None = None,
) -> DatasetStorage:
    """Open the rows of a dataset, which is installed first where that is asked for."""
    folder, accept = _find(id, config, install_options or InstallOptions(), download, progress)
    try:
        with raised_limits(dict(config.limits)):
            rows = reopen_storage(folder, options, accept)
    except PermissionError as error:
        raise DamagedDataset(
            f"{folder} cannot be read: {error.strerror}. See its permissions."
        ) from error
    warn_if_unverified(rows.dataset.manifest)
    return rows


def _find(
    id: str,
    config: Config,
    install_options: InstallOptions,
    download: bool | str,
    progress: Progress | None,
) -> tuple[Path, Accept | None]:
    """Return the folder of a dataset, and what opening it must check."""
    # A dataset that is there is checked while it is opened, so that its manifest is read once.
    if download is False:
        id = installed_id(id, config, install_options.options)
    elif not is_there(id, config, install_options):
        return install_dataset(id, config, install_options, progress=progress).path, None
    if install_options.source is not None:
        return find_installed(id, config, install_options).path, None
    asked = partial(check_asked, id=id, layout=install_options.layout)
    return CacheRoot(config.root).dataset(id), asked
