"""The plan: every dataset that is to be made here, whether it is due, and in which order."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable
from pathlib import Path

from datasets_cli.config import Config, load_config
from datasets_cli.errors import DamagedDataset, UsageError
from datasets_cli.install.installed import condition_of, is_installed
from datasets_cli.preprocessing.derived import FAMILY, selection_of
from datasets_cli.preprocessing.function_source import source_entry
from datasets_cli.preprocessing.origin import origin_of
from datasets_cli.preprocessing.pipeline import Pipeline
from datasets_cli.project.expansion import Derivation, expand, in_order
from datasets_cli.project.file import FILENAME, StepFile
from datasets_cli.project.results import PlannedDataset, PreprocessPlan, TaskState
from datasets_cli.project.step import PreprocessStep
from datasets_cli.project.unfinished import interrupted_runs, killed_conversions
from datasets_cli.store.cache_root import CacheRoot, has_manifest, lock_of, runs_to
from datasets_cli.store.dataset import open_dataset
from datasets_cli.store.lock import is_held
from datasets_cli.store.manifest import Manifest, read_manifest


def make_plan(
    step: PreprocessStep | None, folder: str | os.PathLike[str] | None, config: Config
) -> PreprocessPlan:
    """Return what one step is to make, or all preparation that is due where it is None."""
    here = Path(folder or "").absolute()
    if step is None:
        return plan_all(here, config)
    # A result that was made otherwise does not make room.
    return PreprocessPlan(_Planner(here, config, replaces=False).steps({"": step}), here)


def plan_all(folder: Path, config: Config) -> PreprocessPlan:
    """Return all preparation of a folder and a root; no code of the user's is imported."""
    file = StepFile(folder)
    steps = file.read()
    named = {f"Step {number} of {file.path}": step for number, step in enumerate(steps or (), 1)}
    conversions = {task.id: task for task in killed_conversions(config)}
    planner = _Planner(folder, config, replaces=True, to_come=conversions)
    tasks = {task.id: task for task in planner.steps(named)}
    # A step continues, or sweeps, what a run to its own result left.
    for task in interrupted_runs(CacheRoot(config.root), folder):
        tasks.setdefault(task.id, task)
    tasks |= conversions
    if steps is None and not tasks:
        raise _nothing_here(folder, config)
    order = in_order({id: task.input for id, task in tasks.items()})
    return PreprocessPlan(tuple(tasks[id] for id in order), folder)


class _Planner:
    """Says of each derived dataset whether it is due."""

    def __init__(
        self, folder: Path, config: Config, *, replaces: bool, to_come: Iterable[str] = ()
    ) -> None:
        self._folder, self._config, self._replaces = folder, config, replaces
        self._root = CacheRoot(config.root)
        self._to_come = {*to_come}

    def steps(self, steps: dict[str, PreprocessStep]) -> tuple[PlannedDataset, ...]:
        """Return what steps make, each after what it is made of."""
        found = {each.out: each for each in expand(steps, self._config)}
        order = in_order({out: each.input for out, each in found.items()})
        return tuple(self._planned(found[out]) for out in order)

    def _planned(self, derivation: Derivation) -> PlannedDataset:
        state: TaskState = "blocked"
        try:
            state, reason = self._state(derivation)
        except UsageError as error:  # such as a condition that holds for no trajectory
            reason = f"{error}"
        if state in ("due", "unknown"):
            self._to_come.add(derivation.out)
        return PlannedDataset(
            id=derivation.out,
            kind="step",
            state=state,
            reason=reason,
            input=derivation.input,
            fn=derivation.step.fn,
            options=derivation.step.options,
            replaces=self._replaces,
        )

    def _state(self, derivation: Derivation) -> tuple[TaskState, str]:
        out, input = derivation.out, derivation.input
        dest = self._root.dataset(out)
        if is_held(lock_of(dest.resolve())):
            return "running", "another process works on it"
        if input in self._to_come:
            return "due", f"{input} is made first"
        if not is_installed(self._root, input):
            remedy = f"Run: rlds download {input}"
            if input.startswith(f"{FAMILY}/"):
                remedy = "No step makes it"
            return "blocked", f"{input} is not installed. {remedy}"
        condition = condition_of(self._root.dataset(input), input)
        if condition.sound_manifest is None:
            return "blocked", condition.problem
        if not has_manifest(dest):
            interrupted = " (a run of it was interrupted)" if runs_to(dest) else ""
            return "due", f"it is not made yet{interrupted}"
        return self._compared(derivation, condition.sound_manifest, dest)

    def _compared(
        self, derivation: Derivation, parent: Manifest, dest: Path
    ) -> tuple[TaskState, str]:
        """Return whether what is there is what the step would make."""
        try:
            made = read_manifest(dest)
        except DamagedDataset as error:
            return "blocked", f"{error}"
        if made.parent is None:
            return "blocked", f"{dest} has {made.id}, which no function made. Choose another out"
        step = derivation.step
        entry = (
            step.fn.entry if isinstance(step.fn, Pipeline) else source_entry(step.fn, self._folder)
        )
        unknown = {**made.function, "name": str(step.fn).replace(":", ".")}
        selection = None
        if step.options.chooses:
            dataset = open_dataset(self._root.dataset(derivation.input))
            selection = selection_of(dataset, step.options, self._root)
        origin = origin_of(parent, entry or unknown, step.options, selection)
        otherwise: TaskState = "due" if self._replaces else "blocked"
        if differences := origin.differences(made):
            return otherwise, f"it was made otherwise, from {'; '.join(differences)}"
        if problem := condition_of(dest, derivation.out).problem:
            return otherwise, problem
        if entry is None:
            return "unknown", f"{step.fn} must be imported to tell whether it is due"
        return "done", "it is up to date"


def _nothing_here(folder: Path, config: Config) -> UsageError:
    root = CacheRoot(config.root)
    sound = (id for id in root.installed() if condition_of(root.dataset(id), id).sound_manifest)
    id = next((id for id in sound if not id.startswith(f"{FAMILY}/")), None)
    flag = [] if config.root == load_config().root else ["--root", str(config.root)]
    if id is None:
        remedy = (
            "Nothing is installed either. Begin with: "
            f"{shlex.join(['rlds', *flag, 'download', 'demo/door-human'])} or rlds demo"
        )
    else:
        words = ["rlds", *flag, "preprocess", id, "--fn", "copy:copy", "--out"]
        name = id.rpartition("/")[2]
        remedy = (
            "To map a function over a dataset, here one of Python's that changes nothing: "
            f"{shlex.join([*words, f'{name}-copy'])} (--save makes it a step of {FILENAME})"
        )
    return UsageError(
        f"There is nothing to prepare: {folder} has no {FILENAME}, and under {config.root} no run "
        f"or conversion was interrupted. {remedy}"
    )
