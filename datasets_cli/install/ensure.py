"""Ensures that a dataset is installed; an installed one needs no heavy import."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from datasets_cli.config import Config
from datasets_cli.core.progress import Note, Progress, silent
from datasets_cli.core.system_errors import system_error
from datasets_cli.errors import RldsError
from datasets_cli.install.find import installed_dataset, is_installed_already
from datasets_cli.install.options import InstalledDataset, InstallOptions, Plan
from datasets_cli.store.cache_root import CacheRoot

if TYPE_CHECKING:
    from datasets_cli.install.fetch import Room
    from datasets_cli.install.installation import Installation
    from datasets_cli.sources.http import Http


def plan_install(text: str, config: Config, install_options: InstallOptions, http: Http) -> Plan:
    """Return the plan of ``install_dataset``; unknown sizes are requested from the publisher."""
    return _installation(config, install_options, http).plan(text)


def install_dataset(
    text: str,
    config: Config,
    install_options: InstallOptions | None = None,
    *,
    http: Http | None = None,
    progress: Progress = silent,
    unless: Callable[[], bool] | None = None,
    room: Room | None = None,
) -> InstalledDataset:
    """Install a dataset unless it is installed, and return it."""
    install_options = install_options or InstallOptions()
    if is_installed_already(text, config, install_options):
        progress(Note(f"{text} is installed already"))
        return find_installed(text, config, install_options, http)
    try:
        installation = _installation(config, install_options, http, progress, room)
        return installation.run(text, unless=unless)
    except RldsError:  # some are OSErrors
        raise
    except OSError as error:
        raise system_error(error) from error


def find_installed(
    id: str, config: Config, install_options: InstallOptions, http: Http | None = None
) -> InstalledDataset:
    """Return an installed dataset, once it matches the options."""
    if install_options.source is None:
        return installed_dataset(CacheRoot(config.root), id, install_options.layout)
    return _installation(config, install_options, http).installed(id)


def _installation(
    config: Config,
    install_options: InstallOptions,
    http: Http | None,
    progress: Progress = silent,
    room: Room | None = None,
) -> Installation:
    # The only import of the network, numpy and the writers.
    from datasets_cli.install.installation import Installation

    return Installation(config, install_options, http, progress, room)
