"""Plans of preparation: steps, killed conversions and tables that are due; and their execution."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from datasets_cli.catalogue.names import (
    Resolved,
    as_list,
    is_glob,
    match,
    resolve,
    select_installed,
)
from datasets_cli.config import Config
from datasets_cli.core.progress import Note, Progress, silent
from datasets_cli.core.progress_display import displayed
from datasets_cli.core.quantities import human_bytes
from datasets_cli.errors import (
    DamagedDataset,
    DatasetNotInstalled,
    NetworkError,
    PartialFailure,
    RldsError,
    UnknownDataset,
    UsageError,
)
from datasets_cli.install.fetch import resources_of
from datasets_cli.install.find import (
    condition_of,
    installed_id,
    is_installed,
    read_sound_manifest_of,
)
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import FailedDataset, InstalledDataset, InstallOptions
from datasets_cli.parallel.engine import IN_THIS_PROCESS, Workers
from datasets_cli.preprocessing.derivation import FAMILY, DerivedDataset, derive, selection_of
from datasets_cli.preprocessing.function import FunctionIdentity, changes_by_name, load_function
from datasets_cli.preprocessing.origin import origin_of
from datasets_cli.preprocessing.pipeline import Pipeline
from datasets_cli.project.file import StepFile
from datasets_cli.project.results import (
    DatasetTables,
    PlannedDataset,
    PreprocessPlan,
    PreprocessResults,
    TaskState,
)
from datasets_cli.project.step import PreprocessStep, refuse_functions
from datasets_cli.project.tables import make_due_tables, plan_tables
from datasets_cli.sources.http import Http
from datasets_cli.sources.partial_download import read_state
from datasets_cli.store.cache_root import CacheRoot, has_manifest, lock_of, runs_to
from datasets_cli.store.dataset import open_dataset
from datasets_cli.store.lock import is_held
from datasets_cli.store.manifest import Manifest, read_manifest


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


def make_plan(
    step: PreprocessStep | None,
    folder: str | os.PathLike[str] | None,
    ids: str | Iterable[str],
    config: Config,
) -> PreprocessPlan:
    """Return the plan of one step, of the tables of ids, or of all that is due."""
    here = Path(folder or "").absolute()
    if step is None and ids:
        names = as_list(ids)
        refuse_functions(names)
        installed = [installed_id(id, config) for id in select_installed(names, config)]
        return PreprocessPlan((), here, plan_tables(installed, (), config))
    if step is None:
        return plan_all(here, config)
    # An existing result with different settings is refused, and not replaced.
    return PreprocessPlan(_Planner(here, config, replaces=False).steps({"": step}), here)


def plan_all(folder: Path, config: Config) -> PreprocessPlan:
    """Return the plan of a folder and a root, without importing user code."""
    file = StepFile(folder)
    steps = file.read()
    named = {f"Step {number} of {file.path}": step for number, step in enumerate(steps or (), 1)}
    conversions = {task.id: task for task in killed_conversions(config)}
    planner = _Planner(folder, config, replaces=True, to_come=conversions)
    tasks = {task.id: task for task in planner.steps(named)}
    tasks |= conversions
    order = in_order({id: task.input for id, task in tasks.items()})
    made = [id for id in order if tasks[id].state in ("due", "unknown")]
    tables = plan_tables(CacheRoot(config.root).installed(), made, config)
    return PreprocessPlan(tuple(tasks[id] for id in order), folder, tables)


class _Verdict(NamedTuple):
    """The state of a planned dataset, and the reason."""

    state: TaskState
    reason: str
    changes: tuple[str, ...] = ()


class _Planner:
    """Decides whether each derived dataset is due."""

    def __init__(
        self, folder: Path, config: Config, *, replaces: bool, to_come: Iterable[str] = ()
    ) -> None:
        self._folder, self._config, self._replaces = folder, config, replaces
        self._root = CacheRoot(config.root)
        self._to_come = {*to_come}

    def steps(self, steps: dict[str, PreprocessStep]) -> tuple[PlannedDataset, ...]:
        """Return the datasets of steps, each after its input."""
        derivations = {each.result: each for each in expand(steps, self._config)}
        order = in_order({id: each.input for id, each in derivations.items()})
        return tuple(self._planned(derivations[id]) for id in order)

    def _planned(self, derivation: Derivation) -> PlannedDataset:
        try:
            verdict = self._verdict(derivation)
        except UsageError as error:  # such as a condition that matches no trajectory
            verdict = _Verdict("blocked", f"{error}")
        if verdict.state in ("due", "unknown"):
            self._to_come.add(derivation.result)
        return PlannedDataset(
            id=derivation.result,
            kind="step",
            state=verdict.state,
            reason=verdict.reason,
            input=derivation.input,
            fn=derivation.step.fn,
            options=derivation.step.options,
            replaces=self._replaces,
            changes=verdict.changes,
        )

    def _verdict(self, derivation: Derivation) -> _Verdict:
        id, input = derivation.result, derivation.input
        dest = self._root.dataset(id)
        if is_held(lock_of(dest.resolve())):
            return _Verdict("running", "another process works on it")
        if input in self._to_come:
            return _Verdict("due", f"{input} is made first")
        if not is_installed(self._root, input):
            remedy = f"Run: rlds download {input}"
            if input.startswith(f"{FAMILY}/"):
                remedy = "No step makes it"
            return _Verdict("blocked", f"{input} is not installed. {remedy}")
        condition = condition_of(self._root.dataset(input), input)
        if condition.sound_manifest is None:
            return _Verdict("blocked", condition.problem)
        if not has_manifest(dest):
            interrupted = " (a run of it was interrupted)" if runs_to(dest) else ""
            return _Verdict("due", f"it is not made yet{interrupted}")
        return self._compared(derivation, condition.sound_manifest, dest)

    def _compared(self, derivation: Derivation, parent: Manifest, dest: Path) -> _Verdict:
        """Return whether the existing dataset is the result of the step."""
        try:
            made = read_manifest(dest)
        except DamagedDataset as error:
            return _Verdict("blocked", f"{error}")
        if made.parent is None:
            return _Verdict(
                "blocked", f"{dest} has {made.id}, which is not derived. Choose another out"
            )
        step, function = derivation.step, made.function
        known = FunctionIdentity(str(function.get("name")), str(function.get("digest")))
        changed: list[str] | None = []
        if isinstance(step.fn, Pipeline):
            known = step.fn.identity
        else:
            changed = changes_by_name(step.fn, self._folder, function)
        selection = None
        if step.options.chooses:
            dataset = open_dataset(self._root.dataset(derivation.input))
            selection = selection_of(dataset, step.options, self._root)
        origin = origin_of(parent, known, step.options, selection)
        changes = [*origin.differences(made), *(changed or ())]
        otherwise: TaskState = "due" if self._replaces else "blocked"
        if changes:
            reason = f"it was created with different settings: {'; '.join(changes)}"
            return _Verdict(otherwise, reason, tuple(changes))
        if problem := condition_of(dest, derivation.result).problem:
            return _Verdict(otherwise, problem)
        if changed is None:
            return _Verdict("unknown", f"only an import of {step.fn} shows whether it is due")
        return _Verdict("done", "it is up to date")


@dataclass(frozen=True)
class Derivation:
    """A dataset that a step derives from its input."""

    step: PreprocessStep
    label: str
    input: str
    result: str


def expand(steps: Mapping[str, PreprocessStep], config: Config) -> list[Derivation]:
    """Return the derivations of steps from installed datasets and from results of other steps."""
    installed = list(CacheRoot(config.root).installed())
    results: set[str] = set()
    # A glob may match the results of another step, whose globs may match a third step.
    for _ in range(len(steps) + 1):
        derivations = [
            Derivation(step, label, id, step.result_id(id))
            for label, step in steps.items()
            for id in _inputs(step, label, sorted({*installed, *results}), config)
        ]
        before, results = results, {each.result for each in derivations}
        if results == before:
            _check(steps, derivations)
            return derivations
    raise UsageError(
        f"{' and '.join(steps)} match one another's results without an end.",
        argument="input",
        advice="Write ids, or narrower globs, as their input.",
    )


def in_order(needs: Mapping[str, str]) -> list[str]:
    """Return ids, each after its input, and in their own order otherwise."""
    ordered: dict[str, None] = {}
    for first in needs:
        chain = [first]
        while (below := needs[chain[-1]]) in needs and below not in ordered:
            if below in chain:
                circle = [*chain[chain.index(below) :], below]
                raise UsageError(
                    f"Steps form a cycle: {' needs '.join(circle)}.",
                    argument="input",
                    id=below,
                    advice="Change the input or the name of one of them.",
                )
            chain.append(below)
        ordered |= dict.fromkeys(reversed(chain))
    return list(ordered)


def _inputs(
    step: PreprocessStep, label: str, candidates: Sequence[str], config: Config
) -> list[str]:
    ids: list[str] = []
    for text in step.inputs:
        ids += _matched(step, text, candidates) if is_glob(text) else [_id(text, label, config)]
    return list(dict.fromkeys(ids))


def _matched(step: PreprocessStep, glob: str, candidates: Sequence[str]) -> list[str]:
    """Return the matches of a glob without the step's own results."""
    if not glob.startswith(f"{FAMILY}/"):
        candidates = [id for id in candidates if not id.startswith(f"{FAMILY}/")]
    ids = match([glob], candidates)
    own = {step.result_id(id) for id in ids}
    return [id for id in ids if id not in own]


def _id(text: str, label: str, config: Config) -> str:
    """Return the id of a text; the dataset may not be installed yet."""
    if text.startswith(f"{FAMILY}/"):
        return text
    try:
        return installed_id(text, config)
    except DatasetNotInstalled:
        return resolve(text, CacheRoot(config.root)).id
    except (UnknownDataset, UsageError) as error:
        error.prepend(_prefix(label))
        raise


def _check(steps: Mapping[str, PreprocessStep], derivations: list[Derivation]) -> None:
    """Refuse a step without input, and two results of one name."""
    for label, step in steps.items():
        if not any(each.label == label for each in derivations):
            globs = " ".join(map(repr, step.inputs))
            raise UnknownDataset(
                f"{_prefix(label)}No installed dataset matches {globs}.",
                argument="input",
                found=step.inputs,
                advice=f"See: rlds list --installed. To install published ones: rlds download "
                f"{globs}",
            )
    made: dict[str, Derivation] = {}
    for each in derivations:
        other = made.setdefault(each.result, each)
        if other is not each:
            labels = " and ".join(filter(None, dict.fromkeys((other.label, each.label))))
            raise UsageError(
                f"{_prefix(labels)}{each.result} would be derived from both {other.input} and "
                f"{each.input}.",
                argument="name",
                id=each.result,
                advice="Give each its own name; {name} in it is the last part of the input's id.",
            )


def _prefix(label: str) -> str:
    return f"{label}: " if label else ""


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
