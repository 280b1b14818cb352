"""Executes a plan: dataset by dataset, each on all workers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from datasets_cli.config import Config
from datasets_cli.core.progress import Progress, silent
from datasets_cli.errors import PartialFailure, RldsError
from datasets_cli.install.find import installed_id, read_sound_manifest_of
from datasets_cli.install.options import FailedDataset, InstalledDataset
from datasets_cli.parallel.engine import IN_THIS_PROCESS, Workers
from datasets_cli.preprocessing.derivation import DerivedDataset, derive
from datasets_cli.preprocessing.function import load_function
from datasets_cli.project.plan import finish_conversion
from datasets_cli.project.results import (
    DatasetTables,
    PlannedDataset,
    PreprocessPlan,
    PreprocessResults,
)
from datasets_cli.project.tables import make_due_tables
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.manifest import read_manifest

Made = DerivedDataset | InstalledDataset
OnPrepared = Callable[[Made | DatasetTables | FailedDataset], None]
"""A callback with each dataset, written or failed."""


def run_all(
    plan: PreprocessPlan,
    config: Config,
    *,
    workers: Workers = IN_THIS_PROCESS,
    on_result: OnPrepared | None = None,
    progress: Progress | None = None,
) -> PreprocessResults:
    """Do the due tasks of a plan, in its order, and return all results."""
    place = CacheRoot(config.root)
    made: dict[str, Made] = {
        task.id: DerivedDataset.of(
            task.id, place.dataset(task.id), read_manifest(place.dataset(task.id)), unchanged=True
        )
        for task in plan.tasks
        if task.state == "done"
    }
    num_due = len({task.id for task in plan.due} | {each.id for each in plan.tables})
    tables: dict[str, DatasetTables] = {}
    failures: dict[str, FailedDataset] = {}
    for result in _results(plan, config, workers, progress, failures):
        if isinstance(result, FailedDataset):
            if num_due == 1:
                raise result.error
            failures[result.id] = result
        elif isinstance(result, DatasetTables):
            tables[result.id] = result
        else:
            made[result.id] = result
        if on_result:
            on_result(result)
    in_order = [made[task.id] for task in plan.tasks if task.id in made]
    results = PreprocessResults(tuple(in_order), tuple(tables.values()), tuple(failures.values()))
    if failures:
        failure = PartialFailure.of([*failures], len({*made, *tables, *failures}), results)
        raise failure from results.failures[0].error
    return results


def _results(
    plan: PreprocessPlan,
    config: Config,
    workers: Workers,
    progress: Progress | None,
    failures: Collection[str],
) -> Iterator[Made | DatasetTables | FailedDataset]:
    """Yield the result or the failure of each task, and then the tables of datasets."""
    for task in plan.due:
        try:
            if task.input in failures:
                raise RldsError(f"Its input {task.input} could not be made.", id=task.input)
            if task.kind == "killed conversion":
                yield finish_conversion(task.id, config, workers, progress)
            else:
                yield _derive(task, plan, config, workers, progress)
        except RldsError as error:
            yield FailedDataset(task.id, error)
    due = [each.id for each in plan.tables if not (each.problem or each.id in failures)]
    yield from make_due_tables(due, config, workers, progress or silent)


def _derive(
    task: PlannedDataset,
    plan: PreprocessPlan,
    config: Config,
    workers: Workers,
    progress: Progress | None,
) -> DerivedDataset:
    # First, so no user code runs for a missing input.
    id = installed_id(task.input, config)
    read_sound_manifest_of(CacheRoot(config.root).dataset(id), id)
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
