"""Conversion by a worker: one dataset as a whole, beside what others convert."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from datasets_cli.audit.repaired import as_named
from datasets_cli.catalogue.names import Resolved
from datasets_cli.catalogue.registry import load_recipe
from datasets_cli.errors import RldsError
from datasets_cli.formats.limits import current_limits, raised_limits
from datasets_cli.install.convert import Conversion, convert
from datasets_cli.install.worker_needs import KEPT, ConversionNeeds, fit_workers
from datasets_cli.parallel.engine import IN_THIS_PROCESS, Workers
from datasets_cli.parallel.expectation import TOKEN
from datasets_cli.parallel.tasks import run_tasks
from datasets_cli.progress import Progress, Silent
from datasets_cli.recipe import CatalogueEntry
from datasets_cli.sources.raw_file import RawFile
from datasets_cli.store.manifest import Manifest


@dataclass(frozen=True)
class StagingTask:
    """A dataset to be converted: everything that a worker needs."""

    # A recipe is of functions, some of which cannot be pickled: the worker has it by its family.

    family: str
    version: int
    name: str
    entry: CatalogueEntry | None
    files: tuple[RawFile, ...]
    folder: Path
    layout: str | None
    limits: Mapping[str, int]
    needs: ConversionNeeds | None


def convert_elsewhere(conversion: Conversion, progress: Progress, workers: Workers) -> Manifest:
    """Have a worker write the rows of a dataset; return its manifest."""
    resolved, files = conversion.resolved, conversion.files
    family, paths = resolved.recipe.family, [file.path for file in files]
    progress.writing(0)  # the time of the rows begins
    with fit_workers(workers, family, conversion.folder, paths) as (pool, needs):
        task = StagingTask(
            *(family, resolved.recipe.version, resolved.name, resolved.entry),
            files=files,
            folder=conversion.folder,
            layout=conversion.layout,
            limits=dict(current_limits()),
            needs=needs,
        )
        for _, (manifest, notes) in run_tasks(
            pool, write_in_worker, [task], KEPT, name=lambda _: resolved.id, note=progress.note
        ):
            for note in notes:
                progress.note(note)
            progress.writing(manifest.num_transitions)
    return manifest


def write_in_worker(task: StagingTask) -> tuple[Manifest, list[str]]:
    """Write the rows of a dataset; return its manifest and the notes. Runs in a worker."""
    if task.needs:
        task.needs.check()
    _clear(task.folder)
    recipe = as_named(load_recipe(task.family), task.name)
    if recipe.version != task.version:
        raise RldsError(
            f"A worker has version {recipe.version} of the recipe {task.family}, and version "
            f"{task.version} is to be used. Give all machines the same recipes."
        )
    resolved, notes = Resolved(recipe, task.name, task.entry), KeptNotes()
    conversion = Conversion(resolved, task.files, task.folder, task.layout)
    with raised_limits(task.limits):
        return convert(conversion, notes, IN_THIS_PROCESS), notes.texts


def _clear(folder: Path) -> None:
    """Remove what a worker that was killed left in a folder."""
    for path in folder.glob("*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != TOKEN:
            path.unlink(missing_ok=True)


class KeptNotes(Silent):
    """Keeps the notes for the process that will show them."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def note(self, text: str) -> None:
        """Keep it."""
        self.texts.append(text)
