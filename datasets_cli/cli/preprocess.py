"""``rlds preprocess``: a function or transforms over datasets, or all pending work."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

import datasets_cli
from datasets_cli.cli.parser.fields import GivenOptions, chosen_workers, options_of
from datasets_cli.cli.state import State, state_of
from datasets_cli.cli.terminal import fitted, wrapped
from datasets_cli.core.quantities import counted, human_bytes
from datasets_cli.errors import UsageError, argument
from datasets_cli.parallel.engine import Workers
from datasets_cli.project import Pipeline, PreprocessStep, StepFile

if TYPE_CHECKING:
    from datasets_cli.results import (
        DatasetTables,
        DerivedDataset,
        FailedDataset,
        InstalledDataset,
        PlannedDataset,
        PlannedTables,
        PreprocessPlan,
        PreprocessResults,
    )

EXAMPLE = "rlds preprocess hopper-medium-v2 --fn mycode:scale --name scaled"


@options_of(step=PreprocessStep, transforms=Pipeline, workers=Workers)
def preprocess(
    context: typer.Context,
    *,
    step: GivenOptions,
    transforms: GivenOptions,
    workers: GivenOptions,
    save: Annotated[
        bool, typer.Option("--save", help="Also save this command as a step in ./rlds.toml.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print the plan only; with --fn or transforms, try the first trajectory only.",
        ),
    ] = False,
    force: Annotated[
        bool,
        typer.Option("--force", help="When joining, replace a dataset whose data differs."),
    ] = False,
) -> None:
    """Apply a function or transforms to datasets in parallel.

    Each result is a dataset derived/NAME. Transforms that need no function run in this order:
    --crop, --resize, --normalise, --returns-to-go, --n-step, --cast, --select, --exclude, --rename.
    --where and --max-trajectories choose the trajectories to read.

    Without --fn and transforms, the command prints a plan of all pending work and then executes it:
    steps of ./rlds.toml with missing or outdated results, interrupted conversions with complete raw
    files, and missing statistics. With only ID, it computes the statistics of these datasets. Steps
    run code from this folder; --dry-run runs none.

    The source is never changed. Each call of the function receives a chunk of whole trajectories,
    or the transitions that --per selects. The result is the same for every number of workers. An
    interrupted run is resumed when repeated; a finished run is not repeated.

    Examples:
        rlds preprocess hopper-medium-v2 --fn mycode:scale --name scaled
        rlds preprocess hopper-medium-v2 --where 'return > 1000' --cast float32 --name good
        rlds preprocess 'hopper-*' --fn mycode:scale --name '{name}-scaled' --save
        rlds preprocess --workers 4
    """
    state, work = state_of(context), chosen_workers(workers)
    ids = step.get("input", ())
    if force or _has_family(step.get("name", "")):
        others = [*transforms, *workers, *(step.keys() - {"input", "name", "layout"})]
        others += [flag for flag, is_set in (("save", save), ("dry_run", dry_run)) if is_set]
        _join(state, ids, step.get("name"), others, layout=step.get("layout"), force=force)
    elif not transforms and not save and step.keys() <= {"input"}:
        plan = datasets_cli.plan_preprocess(ids=ids, config=state.config)
        _prepare(state, plan, work, dry_run=dry_run)
    else:
        if not step.keys() & {"input", "fn", "name"}:
            _refuse_options([*transforms, *step, *(["save"] if save else [])])
        _map(state, _step(step, transforms), work, save=save, dry_run=dry_run)


def _join(
    state: State, ids: Sequence[str], name: str | None, others: list[str], **options: Any
) -> None:
    """Concatenate datasets into the dataset ``name``."""
    if others or not ids or name is None:
        raise UsageError(
            "--name FAMILY/NAME joins datasets as they are: it takes ID..., --layout and --force, "
            f"not {' and '.join(map(argument, others)) or 'nothing'}.",
            argument=others[0] if others else "name",
            advice="Join first, and change rows in a second call. Example: rlds preprocess A B "
            "--name mine/both",
        )
    joined = datasets_cli.join_datasets(ids, name, **options, **state.settings)
    state.note(_result_line(state, joined))
    state.emit(joined.to_json(), [str(joined.path)], [str(joined.path)])


def _map(
    state: State, step: PreprocessStep, workers: GivenOptions, *, save: bool, dry_run: bool
) -> None:
    """Execute one step, or show the columns of its result; then save the step."""
    plan = datasets_cli.plan_preprocess(step, config=state.config)
    if dry_run:
        _show_columns(state, plan)
        return
    if save:
        StepFile().has(step)  # refuses another step with the same name, before the work
    if step.is_single:
        _one(state, plan.tasks[0], workers)
    else:
        _prepare(state, plan, workers, names_done=True)
    if save:
        added = StepFile().add(step)
        state.note(f"rlds.toml {'has a new step' if added else 'has this step already'}")


def _refuse_options(names: list[str]) -> None:
    if names:
        flags = " and ".join(map(argument, names))
        raise UsageError(
            f"{flags} {'need' if names[1:] else 'needs'} ID, --fn and --name, too; transforms such "
            "as --cast float32 need no --fn.",
            argument=names[0],
            advice=f"Example: {EXAMPLE}",
        )


def _has_family(name: str) -> bool:
    """Return whether a name is an id of another family than the results of functions have."""
    return name[:1].isalnum() and "/" in name and not name.startswith("derived/")


def _step(step: GivenOptions, transforms: GivenOptions) -> PreprocessStep:
    does = transforms or step.keys() & {"fn", "where", "max_trajectories"}
    needed = {
        "input": ("ID", "input" in step),
        "fn": (
            "--fn MODULE:FUNCTION, or a transform such as --cast float32",
            does,
        ),
        "name": ("--name NAME", "name" in step),
    }
    if missing := [name for name, (_, is_set) in needed.items() if not is_set]:
        raise UsageError(
            f"rlds preprocess needs {' and '.join(needed[name][0] for name in missing)}.",
            argument=missing[0],
            advice=f"Example: {EXAMPLE}. Without any of them it does all pending work. See: rlds "
            "preprocess --help",
        )
    lists = {name: ",".join(each) for name, each in transforms.items() if isinstance(each, list)}
    inputs = step["input"]
    input = inputs[0] if len(inputs) == 1 else inputs
    return PreprocessStep.of({**step, "input": input, **transforms, **lists})


def _show_columns(state: State, plan: PreprocessPlan) -> None:
    documents: list[dict[str, Any]] = []
    lines: list[str] = []
    for task in plan.tasks:
        preview = datasets_cli.preprocess_columns(
            task.input, task.fn, task.id, **vars(task.options), config=state.config
        )
        documents.append(preview.to_json())
        for note in preview.notes:
            state.note(f"{preview.id}: {note}.")
        lines += [preview.id] if plan.tasks[1:] else []
        if task.options.chooses:
            rows = counted(preview.num_transitions, "transition")
            lines.append(f"{rows} in {counted(preview.num_trajectories, 'trajectory')}")
        lines += [
            f"{key:28} {dtype:8} {list(shape)}" for key, (dtype, shape) in preview.columns.items()
        ]
        size = human_bytes(preview.size_bytes)
        lines.append(f"{preview.layout}, about {size}")
        if preview.changes:
            lines.append(
                f"{preview.id} was created with different settings: {'; '.join(preview.changes)}"
            )
    shown = documents if documents[1:] else documents[0]
    state.emit(shown, fitted(lines, state.width), [document["id"] for document in documents])


def _one(state: State, task: PlannedDataset, workers: GivenOptions) -> None:
    made = datasets_cli.preprocess(
        task.input,
        task.fn,
        task.id,
        **vars(task.options),
        **workers,
        progress=state.progress(),
        config=state.config,
    )
    state.note(_result_line(state, made))
    state.emit(made.to_json(), [str(made.path)], [str(made.path)])


def _prepare(
    state: State,
    plan: PreprocessPlan,
    workers: GivenOptions,
    *,
    dry_run: bool = False,
    names_done: bool = False,
) -> None:
    """Print a plan, execute it, and print the folders of the results."""
    if dry_run:
        ids = [task.id for task in plan.due] + [each.id for each in plan.tables]
        state.emit({"plan": plan.to_json()}, _plan_lines(plan, state.width), ids)
        return
    for line in _plan_lines(plan, None):
        state.note(line)
    is_empty = not (plan.tasks or plan.tables)
    if is_empty and not datasets_cli.list_datasets(installed=True, config=state.config):
        state.note("Nothing is installed. Start with: rlds download demo/door-human or rlds demo")
    prepared = {task.id for task in (plan.tasks if names_done else plan.due)}

    def emit(results: PreprocessResults) -> None:
        paths = [str(dataset.path) for dataset in results.datasets if dataset.id in prepared]
        state.emit({"plan": plan.to_json(), **results.to_json()}, paths, paths)

    work = partial(
        datasets_cli.run_plan,
        plan,
        **workers,
        on_result=lambda result: state.note(_result_line(state, result)),
        progress=state.progress(),
        config=state.config,
    )
    state.emit_all(work, emit)


def _plan_lines(plan: PreprocessPlan, width: int | None) -> list[str]:
    """Return the lines of a plan: tasks that are due or blocked, and the number up to date."""
    done = sum(task.state == "done" for task in plan.tasks)
    tables = [each for each in plan.tables if not each.problem]
    parts = [counted(len(plan.due), "dataset")] if plan.due else []
    parts += [f"tables of {counted(len(tables), 'dataset')}"] if tables else []
    head = f"{' and '.join(parts)} pending" if parts else "Nothing is due"
    head += f", {done} up to date" if done else ""
    head += ":" if len(plan.tasks) > done or plan.tables else "."
    lines = wrapped(head, width)
    for task in plan.tasks:
        if task.state != "done":
            lines += wrapped(_line(task), width, "  ", "    ")
    for each in plan.tables:
        lines += wrapped(_tables_line(each), width, "  ", "    ")
    return lines


def _result_line(
    state: State, result: DerivedDataset | InstalledDataset | DatasetTables | FailedDataset
) -> str:
    """Return the line of a result."""
    from datasets_cli.results import DatasetTables, DerivedDataset, FailedDataset

    if isinstance(result, FailedDataset):
        return f"rlds: {result.id}: {result.error}"
    rows = counted(result.num_transitions, "transition")
    if isinstance(result, DatasetTables):
        return f"{result.id}: tables of {rows}, {human_bytes(result.size_bytes)}"
    is_known = isinstance(result, DerivedDataset) and result.unchanged
    known = f"{result.id} is up to date" if is_known else result.id
    return f"{known}: {rows}, {human_bytes(result.size_bytes)} on disk"


def _line(task: PlannedDataset) -> str:
    what = f"{task.fn} of {task.input}" if task.fn else "installation"
    state = "" if task.state == "due" else f" ({task.state})"
    return f"{task.id}: {what}{state}; {task.reason}"


def _tables_line(tables: PlannedTables) -> str:
    if tables.problem:
        return f"{tables.id}: no tables; {tables.reason}: {tables.problem}"
    if tables.size_bytes is None or tables.seconds is None:
        return f"{tables.id}: tables; {tables.reason}"
    cost = f"about {human_bytes(tables.size_bytes)}, {tables.seconds:.1f} s"
    return f"{tables.id}: tables ({cost}); {tables.reason}"
