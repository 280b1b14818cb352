"""Doing what a plan says: one dataset after the other, each on all workers."""

from __future__ import annotations

from collections.abc import Callable

from datasets_cli.config import Config
from datasets_cli.errors import PartialFailure, RldsError
from datasets_cli.install.installed import installed_dataset, installed_id
from datasets_cli.install.options import FailedDataset, InstalledDataset
from datasets_cli.parallel.engine import IN_THIS_PROCESS, Workers
from datasets_cli.parallel.functions import load_function
from datasets_cli.preprocessing.derived import DerivedDataset, derive
from datasets_cli.progress import Progress
from datasets_cli.project.results import PlannedDataset, PreprocessPlan, PreprocessResults
from datasets_cli.project.unfinished import finish_conversion
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.manifest import read_manifest

Made = DerivedDataset | InstalledDataset
OnPrepared = Callable[[Made | FailedDataset], None]
"""Called with each dataset as soon as it is made, or could not be."""


def run_all(
    plan: PreprocessPlan,
    config: Config,
    *,
    workers: Workers = IN_THIS_PROCESS,
    on_result: OnPrepared | None = None,
    progress: Progress | None = None,
) -> PreprocessResults:
    """Make what is due of a plan, in its order, and return what it is."""
    made: list[Made] = []
    failures: dict[str, FailedDataset] = {}
    for task in plan.tasks:
        result: Made | FailedDataset
        if task.state == "done":
            folder = CacheRoot(config.root).dataset(task.id)
            made.append(DerivedDataset.of(task.id, folder, read_manifest(folder), unchanged=True))
        if task not in plan.due:
            continue
        try:
            if task.input in failures:
                raise RldsError(f"It is not made, because {task.input} could not be.")
            if task.kind == "killed conversion":
                result = finish_conversion(task.id, config, workers, progress)
            else:
                result = _derive(task, plan, config, workers, progress)
            made.append(result)
        except RldsError as error:
            if len(plan.due) == 1:
                raise
            result = failures[task.id] = FailedDataset(task.id, error)
        if on_result:
            on_result(result)
    results = PreprocessResults(tuple(made), tuple(failures.values()))
    if failures:
        failure = PartialFailure.of([*failures], len(made) + len(failures), results)
        raise failure from results.failures[0].error
    return results


def _derive(
    task: PlannedDataset,
    plan: PreprocessPlan,
    config: Config,
    workers: Workers,
    progress: Progress | None,
) -> DerivedDataset:
    # First: no code is run for an input that is not there.
    id = installed_id(task.input, config)
    installed_dataset(CacheRoot(config.root), id, None)
    return derive(
        id,
        load_function(task.fn, plan.folder) if isinstance(task.fn, str) else task.fn,
        task.id,
        config,
        options=task.options,
        workers=workers,
        progress=progress,
        replaces=task.replaces,
    )
