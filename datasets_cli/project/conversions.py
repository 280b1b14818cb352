"""Killed conversions: datasets that are not installed though all their raw files are there."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from datasets_cli.catalogue.names import Resolved, resolve
from datasets_cli.config import Config
from datasets_cli.errors import NetworkError, RldsError
from datasets_cli.install.install import install_dataset
from datasets_cli.install.installed import is_installed
from datasets_cli.install.options import InstallOptions
from datasets_cli.install.raw_files import resources_of
from datasets_cli.install.results import InstalledDataset
from datasets_cli.parallel.engine import Workers
from datasets_cli.progress import Progress
from datasets_cli.progress_bars import shown
from datasets_cli.project.results import PlannedDataset
from datasets_cli.quantities import human_bytes
from datasets_cli.sources.http import Http
from datasets_cli.sources.partial_download import read_state
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.lock import is_held


def killed_conversions(config: Config) -> list[PlannedDataset]:
    """Return the datasets whose downloads are complete, and which are not installed, by id."""
    root, offline = CacheRoot(config.root), Http(replace(config, offline=True))
    top, found = root.path / "downloads", []
    for path, names, _ in os.walk(top):
        names.sort()
        id = Path(path).relative_to(top).as_posix()
        resolved = _known(id, root)
        if resolved is None or is_installed(root, id):
            continue
        size = _complete_size(resolved, Path(path), offline)
        if size is not None and not is_held(root.lock(id)):
            reason = f"its raw files are all here ({human_bytes(size)}), and it is not installed"
            found.append(PlannedDataset(id, "killed conversion", "due", reason))
    return found


def finish_conversion(
    id: str, config: Config, workers: Workers, progress: Progress | None
) -> InstalledDataset:
    """Install a dataset whose raw files are there; return what it is."""
    # A publisher whose list of files cannot be asked for is done without: then nothing vouches for
    # the files, and the dataset is as one that was installed from `--source`.
    options = InstallOptions(workers=workers)
    with shown(progress) as told:
        try:
            return install_dataset(id, config, options, progress=told)
        except NetworkError as error:
            told.note(f"{id}: its publisher's list of files cannot be asked for ({error})")
            source = str(CacheRoot(config.root).downloads(id))
            return install_dataset(id, config, replace(options, source=source), progress=told)


def _known(id: str, root: CacheRoot) -> Resolved | None:
    """Return the dataset that a folder's path names in full."""
    try:
        resolved = resolve(id, root) if "/" in id else None
    except RldsError:
        return None
    return resolved if resolved and resolved.id == id else None


def _complete_size(resolved: Resolved, folder: Path, http: Http) -> int | None:
    """Return the bytes of a dataset's raw files if every one of them was downloaded to its end."""
    try:
        resources = resources_of(resolved, InstallOptions(source=str(folder)), lambda: http)
    except RldsError:  # such as a page that says which files there are, and is not there
        return None
    total = 0
    for resource in resources:
        path = folder / resource.filename
        state = read_state(Path(f"{path}.json"))
        if state is None or state.sha256 is None or not path.is_file():
            return None
        total += path.stat().st_size
    return total
