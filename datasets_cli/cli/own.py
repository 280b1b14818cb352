"""``rlds record``, ``import``, ``export`` and ``data``: own datasets, files and declarations."""

from __future__ import annotations

import json
import shlex
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

import datasets_cli
from datasets_cli.cli.parser.fields import GivenOptions, Limits, Yes, options_of
from datasets_cli.cli.state import State, state_of
from datasets_cli.cli.terminal import fitted, table
from datasets_cli.core.quantities import counted, human_bytes, human_count
from datasets_cli.errors import UsageError

if TYPE_CHECKING:
    from datasets_cli.results import DeclaredDataset, ExportedDataset, ImportPlan


@options_of(call="import_dataset")
def import_data(
    context: typer.Context, *, call: GivenOptions, yes: Yes = False, limit: Limits = None
) -> None:
    """Import another tool's files as a dataset.

    Prints a table of the columns that are read, their keys, and the columns that are skipped.
    Columns with well-known names are mapped automatically, after confirmation unless --yes is set
    or --map names every column. The ends of trajectories are never guessed.

    Examples:
        rlds import robot.npz --name mine/robot
        rlds import log.csv --name mine/robot --map episode=run --map observation=x.0..3
    """
    state = state_of(context).with_limits(limit)
    plan = datasets_cli.plan_import(**call, config=state.config)
    for line in _plan_lines(state, plan):
        state.note(line)
    line = _same_again(plan, call)
    is_dry_run, mapped = "dry_run" in call, {pair.partition("=")[2] for pair in call.get("map", ())}
    is_mapped = mapped.issuperset(filter(None, plan.map.values()))
    if not (yes or is_dry_run or is_mapped):
        if not state.interactive:
            raise UsageError(
                "The columns were mapped by their names.",
                argument="map",
                advice=f"Confirm with --yes, or paste: {line}",
            )
        state.confirm(f"Read these columns into {plan.id}?", yes=False)
    made = datasets_cli.import_dataset(**call | {"map": plan.map}, **state.settings)
    rows = counted(made.num_transitions, "transition")
    counts = f"{rows} in {counted(made.num_trajectories, 'trajectory')}"
    final = f", {counted(made.final_steps, 'final step')}" if made.final_steps else ""
    where = "nothing was written" if is_dry_run else f"in {made.path}"
    lines = fitted([f"{made.id}: {counts}{final}, {where}"], state.width)
    lines += [] if is_mapped else [line]  # not broken, to be pasted
    state.emit({**made.to_json(), "plan": plan.to_json()}, lines, [made.id])


def _plan_lines(state: State, plan: ImportPlan) -> list[str]:
    """Return the plan as a table, a column per line."""
    rows = [
        {
            **{"KEY": each["key"] or "-", "COLUMN": each["column"]},
            **{"DTYPE": each["dtype"], "SHAPE": each["shape"]},
            "": f"skipped: {each['skipped']}" if each["skipped"] else "",
        }
        for each in plan.columns
    ]
    lines = [f"{plan.path} is {plan.format}.", *table(rows, state.width), *plan.notes]
    keep = "Keep a skipped column with --map info.NAME=COLUMN."
    lines += [keep] if any(each["skipped"] and each["dtype"] for each in plan.columns) else []
    return [*lines, f"Trajectories: {plan.ends}."] if plan.ends else lines


def _same_again(plan: ImportPlan, call: GivenOptions) -> str:
    """Return the command that reads the same columns without a question."""
    options = [f"--{name}" for name in ("force", "strict") if name in call]
    for flag, name in (("--from", "format"), ("--columns", "columns"), ("--layout", "layout")):
        options += [flag, call[name]] if name in call else []
    words = ["rlds", "import", str(plan.path), "--name", plan.id, *options]
    return f"{shlex.join(words)} {plan.options}"


@options_of(call="export_dataset")
def export(context: typer.Context, *, call: GivenOptions) -> None:
    """Export an installed dataset to another tool's format.

    Every value stays the same. Data that the format cannot store is listed first, and is an error
    without --allow-loss. An interrupted export leaves no file at PATH.

    Examples:
        rlds export hopper-medium-v2 --to parquet --out hopper.parquet
        rlds export hopper-medium-v2 --to npz --out hopper.npz --dry-run
    """
    state = state_of(context)
    made = datasets_cli.export_dataset(**call, **state.settings)
    lines = fitted(_export_lines(made, is_dry_run="dry_run" in call), state.width)
    state.emit(made.to_json(), lines, [str(made.path)])


def _export_lines(made: ExportedDataset, *, is_dry_run: bool) -> list[str]:
    lost = [f"  not kept: {line}" for line in made.losses]
    if is_dry_run:
        nothing = "" if lost else "; all of it is kept"
        return [f"{made.id} as {made.format} would be {made.path}{nothing}", *lost]
    head = f"{made.id} as {made.format}: {made.path}, {human_bytes(made.size_bytes)}"
    return [head, *lost, f"Open it in Python with {made.opened_by}"]


@options_of(call="record")
def record(context: typer.Context, *, call: GivenOptions) -> None:
    """Record episodes of a gymnasium environment into a dataset.

    Prints the folder of the dataset. The values are the same for every number of workers. An
    interrupted recording is resumed with the same result when repeated; a finished recording is not
    repeated. The last observation of each episode and the reason for its end are stored; the info
    dict of the environment is not.

    Requires the extra collect (gymnasium). The policy runs code from this folder.

    Examples:
        rlds record CartPole-v1 --episodes 100 --name cartpole-random
        rlds record CartPole-v1 --policy mycode:act --steps 50000 --name cartpole-mine
    """
    state = state_of(context)
    call["env_options"] = dict(map(_option, call.get("env_options", [])))
    if (checks := call.get("check_actions")) != "strict":
        call["check_actions"] = checks != "false"
    made = datasets_cli.record(**{"num_workers": None, **call}, **state.settings)
    steps = counted(made.num_transitions, "transition")
    episodes = counted(made.num_trajectories, "trajectory")
    state.note(f"{made.id}: {steps} in {episodes}, {human_bytes(made.size_bytes)} on disk")
    state.emit(made.to_json(), [str(made.path)], [str(made.path)])


def _option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not (name.isidentifier() and equals):
        raise UsageError(
            f"-o {text} is not NAME=VALUE. Example: -o continuous=true",
            argument="env_options",
            expected="NAME=VALUE",
            found=text,
        )
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


@options_of(call="declared_datasets")
def data(context: typer.Context, *, call: GivenOptions) -> None:
    """Show the data that rlds.toml declares.

    Prints the digest of each [data.NAME] table. The digest depends only on the content of the
    datasets, the trajectories of views, the weights, the source code of functions and the sampling
    order, not on the machine. State it in a paper: the same rlds.toml with the same digest means
    the same data.

    Functions in rlds.toml are imported: run this only in a folder whose code you trust.

    Examples:
        rlds data
        rlds data train --json
    """
    state = state_of(context)

    def emit(declared: list[DeclaredDataset]) -> None:
        rows = [
            {
                "NAME": each.name,
                ">TRANSITIONS": human_count(each.num_transitions),
                ">TRAJECTORIES": human_count(each.num_trajectories),
                "DIGEST": each.digest,
            }
            for each in declared
        ]
        lines = table(rows, state.width) or ["rlds.toml has no [data.NAME] table"]
        state.emit([each.to_json() for each in declared], lines, [each.digest for each in declared])

    state.emit_all(partial(datasets_cli.declared_datasets, **call, config=state.config), emit)


@options_of(call="add_data")
def add(context: typer.Context, *, call: GivenOptions) -> None:
    """Add a [data.NAME] table to rlds.toml.

    The rest of the file is not changed, and nothing is installed.

    Examples:
        rlds data add good --dataset hopper-medium-v2 --where 'return > 1000'
        rlds data add test --dataset hopper-medium-v2 --split 0.9,0.1 --part 1
    """
    state = state_of(context)
    added = datasets_cli.add_data(**call, config=state.config)
    state.emit(added.to_json(), [f"added to {added.path}:", *added.text.splitlines()], [added.name])
