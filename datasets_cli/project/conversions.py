"""Killed conversions: datasets whose raw files are complete, and which are not installed."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from datasets_cli.catalogue.names import Resolved, resolve
from datasets_cli.config import Config
from datasets_cli.core.progress import Note, Progress
from datasets_cli.core.progress_display import displayed
from datasets_cli.core.quantities import human_bytes
from datasets_cli.errors import NetworkError, RldsError
from datasets_cli.install.fetch import resources_of
from datasets_cli.install.find import is_installed
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstalledDataset, InstallOptions
from datasets_cli.parallel.engine import Workers
from datasets_cli.project.results import PlannedDataset
from datasets_cli.sources.http import Http
from datasets_cli.sources.partial_download import read_state
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.lock import is_held


def killed_conversions(config: Config) -> list[PlannedDataset]:
    """Return the datasets with complete downloads that are not installed, in the order of ids."""
    root, offline = CacheRoot(config.root), Http(replace(config, offline=True))
    top, conversions = root.path / "downloads", []
    for path, names, _ in os.walk(top):
        names.sort()
        id = Path(path).relative_to(top).as_posix()
        resolved = _known(id, root)
        if resolved is None or is_installed(root, id):
            continue
        size = _complete_size(resolved, Path(path), offline)
        if size is not None and not is_held(root.lock(id)):
            reason = f"its raw files are complete ({human_bytes(size)}), and it is not installed"
            conversions.append(PlannedDataset(id, "killed conversion", "due", reason))
    return conversions


def finish_conversion(
    id: str, config: Config, workers: Workers, progress: Progress | None
) -> InstalledDataset:
    """Install a dataset whose raw files are complete."""
    # If the publisher's list of files is out of reach, nothing vouches for the files: the dataset
    # is then as one that was installed from `--source`.
    options = InstallOptions(workers=workers)
    with displayed(progress) as display:
        try:
            return install_dataset(id, config, options, progress=display)
        except NetworkError as error:
            display(Note(f"{id}: its publisher's list of files is out of reach ({error})"))
            source = str(CacheRoot(config.root).downloads(id))
            return install_dataset(id, config, replace(options, source=source), progress=display)


def _known(id: str, root: CacheRoot) -> Resolved | None:
    """Return the dataset whose full id is the path of a folder."""
    try:
        resolved = resolve(id, root) if "/" in id else None
    except RldsError:
        return None
    return resolved if resolved and resolved.id == id else None


def _complete_size(resolved: Resolved, folder: Path, http: Http) -> int | None:
    """Return the size of a dataset's raw files; None unless all of them are complete."""
    try:
        resources = resources_of(resolved, InstallOptions(source=str(folder)), lambda: http)
    except RldsError:  # such as a missing page of the list of files
        return None
    total = 0
    for resource in resources:
        path = folder / resource.filename
        state = read_state(Path(f"{path}.json"))
        if state is None or state.sha256 is None or not path.is_file():
            return None
        total += path.stat().st_size
    return total
