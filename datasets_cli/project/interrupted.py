"""Interrupted runs: what killed runs left under the root, and whether it is resumed from here.

Nothing that is found there is imported or unpickled. A run is resumed where the working directory
has the very function that it began with, which its text tells.
"""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path

from datasets_cli.install.installed import is_installed
from datasets_cli.preprocessing.function_source import source_entry
from datasets_cli.preprocessing.origin import preprocess_command
from datasets_cli.preprocessing.pipelines.pipeline import Pipeline
from datasets_cli.preprocessing.work import Request, read_function_digest, read_request
from datasets_cli.project.results import Kind, PlannedDataset, TaskState
from datasets_cli.store.cache_root import CacheRoot, lock_of
from datasets_cli.store.lock import is_held


def interrupted_runs(root: CacheRoot, folder: Path) -> list[PlannedDataset]:
    """Return the runs that were killed, sorted by id."""
    found: dict[str, PlannedDataset] = {}
    for id, work in root.partial_runs():
        found.setdefault(id, _planned(id, work, root, folder))
    return [found[id] for id in sorted(found)]


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
        return str(request.fn.entry["digest"])
    entry = source_entry(request.fn, folder)
    return None if entry is None else entry["digest"]


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
