"""A plan of preparation: shown, then done, with a note on each dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import datasets_cli
from datasets_cli.cli.parser.fields import Given
from datasets_cli.cli.state import State
from datasets_cli.cli.terminal import wrapped
from datasets_cli.errors import PartialFailure
from datasets_cli.quantities import human_bytes, human_count

if TYPE_CHECKING:
    from datasets_cli import (
        DerivedDataset,
        FailedDataset,
        InstalledDataset,
        PlannedDataset,
        PreprocessPlan,
    )


def prepare(
    state: State,
    plan: PreprocessPlan,
    workers: Given,
    *,
    dry_run: bool = False,
    names_done: bool = False,
) -> None:
    """Tell a plan, do what is due of it, and print the folders of what is done."""
    if dry_run:
        ids = [task.id for task in plan.due]
        state.emit({"plan": plan.to_json()}, plan_lines(plan, state.width), ids)
        return
    for line in plan_lines(plan, None):
        state.note(line)
    failure = None
    try:
        results = datasets_cli.run_plan(
            plan,
            **workers,
            on_result=lambda result: state.note(made(result)),
            progress=state.row_progress(),
            config=state.config,
        )
    except PartialFailure as error:
        failure, results = error, error.results
    wanted = {task.id for task in (plan.tasks if names_done else plan.due)}
    paths = [str(dataset.path) for dataset in results.datasets if dataset.id in wanted]
    state.emit({"plan": plan.to_json(), **results.to_json()}, paths, paths)
    if failure:
        raise failure


def plan_lines(plan: PreprocessPlan, width: int | None) -> list[str]:
    """Return what is to be done, what cannot be, and how much is done."""
    done = sum(task.state == "done" for task in plan.tasks)
    head = f"{_datasets(len(plan.due))} to make" if plan.due else "Nothing is due"
    head += f", {done} up to date" if done else ""
    head += ":" if len(plan.tasks) > done else "."
    lines = wrapped(head, width)
    for task in plan.tasks:
        if task.state != "done":
            lines += wrapped(_line(task), width, "  ", "    ")
    return lines


def made(result: DerivedDataset | InstalledDataset | FailedDataset) -> str:
    """Return what became of a dataset, for people."""
    from datasets_cli import DerivedDataset, FailedDataset

    if isinstance(result, FailedDataset):
        return f"rlds: {result.id}: {result.error}"
    is_known = isinstance(result, DerivedDataset) and result.unchanged
    known = f"{result.id} is up to date" if is_known else result.id
    return (
        f"{known}: {human_count(result.num_transitions)} transitions, "
        f"{human_bytes(result.size_bytes)} on disk"
    )


def _line(task: PlannedDataset) -> str:
    what = f"{task.fn} of {task.input}" if task.fn else "installation"
    state = "" if task.state == "due" else f" ({task.state})"
    return f"{task.id}: {what}{state}; {task.reason}"


def _datasets(count: int) -> str:
    return f"{count} dataset{'s' * (count != 1)}"
