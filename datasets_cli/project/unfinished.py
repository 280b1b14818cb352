"""Unfinished work: interrupted runs, and killed conversions, whose raw files are all there.

Nothing that is found there is imported or unpickled. A run is resumed where the working directory
has the very function that it began with, which its text tells.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import asdict, replace
from pathlib import Path

from datasets_cli.catalogue.names import Resolved, resolve
from datasets_cli.config import Config
from datasets_cli.core.progress import Progress
from datasets_cli.core.progress_bars import shown
from datasets_cli.core.quantities import human_bytes
from datasets_cli.errors import NetworkError, RldsError
from datasets_cli.install.fetch import resources_of
from datasets_cli.install.find import is_installed
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstalledDataset, InstallOptions
from datasets_cli.parallel.engine import Workers
from datasets_cli.parallel.function_text import identity_by_text
from datasets_cli.preprocessing.origin import preprocess_command
from datasets_cli.preprocessing.pipeline import Pipeline
from datasets_cli.preprocessing.work import Request, read_function_digest, read_request
from datasets_cli.project.results import Kind, PlannedDataset, TaskState
from datasets_cli.sources.http import Http
from datasets_cli.sources.partial_download import read_state
from datasets_cli.store.cache_root import CacheRoot, lock_of
from datasets_cli.store.lock import is_held


def interrupted_runs(root: CacheRoot, folder: Path) -> list[PlannedDataset]:
    """Return the runs that were killed, sorted by id."""
    runs: dict[str, PlannedDataset] = {}
    for id, work in root.partial_runs():
        runs.setdefault(id, _planned(id, work, root, folder))
    return [runs[id] for id in sorted(runs)]


def _planned(id: str, work: Path, root: CacheRoot, folder: Path) -> PlannedDataset:
    kind: Kind = "interrupted run"
    if is_held(lock_of(root.dataset(id))):
        return PlannedDataset(id, kind, "running", "another process works on it")
    drop = f"To drop it: rm -r {shlex.quote(str(work))}"
    try:
        request, digest = read_request(work), read_function_digest(work)
    except ValueError as error:
        reason = f"cannot be resumed: {error}. The call that began it continues it. {drop}"
        return PlannedDataset(id, kind, "left", reason)
    state: TaskState = "left"
    if not request.fn:
        reason = (
            "cannot be resumed from here: its function has no name to import it by. The Python "
            f"call that began it continues it. {drop}"
        )
    elif not is_installed(root, request.input):
        reason = f"cannot be resumed: {request.input} is not installed any more. {drop}"
    elif _digest_here(request, folder) == digest:
        state, reason = "due", f"it was interrupted, and continues in {work}"
    else:
        reason = f"{_why_not(id, request, folder)}. {drop}"
    return PlannedDataset(
        id, kind, state, reason, request.input, request.fn, request.options, request.replaces
    )


def _digest_here(request: Request, folder: Path) -> str | None:
    if isinstance(request.fn, Pipeline):  # which is the same in every folder
        return request.fn.identity.digest
    identity = identity_by_text(request.fn, folder)
    return None if identity is None else identity.digest


def _why_not(id: str, request: Request, folder: Path) -> str:
    """Return why the function that a run began with is not that of the working directory."""
    fn = request.fn.to_json() if isinstance(request.fn, Pipeline) else request.fn
    command = preprocess_command(request.input, fn, id, asdict(request.options))
    if isinstance(request.fn, Pipeline):
        return (
            "cannot be resumed: another version of rlds began it, whose transforms meant something "
            f"else. To begin it again: {command}"
        )
    if Path(request.folder) != folder:
        return f"cannot be resumed from here: cd {shlex.quote(request.folder)}"
    return (
        f"cannot be resumed: {request.fn} is not known to be what it was. To begin it again, or "
        f"to continue if it is: {command}"
    )


def killed_conversions(config: Config) -> list[PlannedDataset]:
    """Return the datasets whose downloads are complete, and which are not installed, by id."""
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
            reason = f"its raw files are all here ({human_bytes(size)}), and it is not installed"
            conversions.append(PlannedDataset(id, "killed conversion", "due", reason))
    return conversions


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
