"""``rlds record``, ``import`` and ``export``: data of one's own, in and out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import typer

import datasets_cli
from datasets_cli.cli.parser.arguments import Limits, Yes
from datasets_cli.cli.parser.fields import GivenOptions, options_of
from datasets_cli.cli.state import State, state_of
from datasets_cli.cli.terminal import fitted
from datasets_cli.environments.record.options import RecordCall
from datasets_cli.errors import UsageError, for_reader
from datasets_cli.exchange.export_dataset import ExportCall
from datasets_cli.exchange.import_dataset import ImportCall
from datasets_cli.quantities import counted, human_bytes

if TYPE_CHECKING:
    from datasets_cli import ExportedDataset, ImportPlan


@options_of(call=ImportCall)
def import_data(
    context: typer.Context, *, call: GivenOptions, yes: Yes = False, limit: Limits = None
) -> None:
    """Read files of another tool into a dataset of your own.

    What its columns mean is taken from their names, shown as the --map options that say the same,
    and asked about; --yes takes it, and so does a --map for every column that is read. Where
    trajectories end is never guessed.
    """
    state = state_of(context).with_limits(limit)
    plan = datasets_cli.plan_import(**call, config=state.config)
    said = {pair.partition("=")[2] for pair in call.get("map", ())}
    if not (yes or said.issuperset(plan.map.values())):
        _ask(state, plan, [pair for pair in call.get("map", ()) if pair.endswith("=")])
    made = datasets_cli.import_dataset(**call, **state.settings)
    lines = [f"{made.id}: {counted(made.num_transitions, 'transition')} in {made.path}"]
    state.emit({**made.to_json(), "plan": plan.to_json()}, fitted(lines, state.width), [made.id])


def _ask(state: State, plan: ImportPlan, left_out: list[str]) -> None:
    """Show what the columns are taken for, and go on if the user agrees."""
    options = " ".join([plan.options, *(f"--map {pair}" for pair in left_out)])
    by_names = f"{plan.path} is {plan.format}. By their names its columns are: {options}"
    state.note(for_reader(by_names))
    for line in plan.dropped:
        state.note(f"Not read: {line}")
    if not state.interactive:
        raise UsageError(
            f"The columns are known by their names alone. Add --yes to agree, or say it: {options}"
        )
    state.confirm(f"Read it into {plan.id} so?", yes=False)


@options_of(call=ExportCall)
def export(context: typer.Context, *, call: GivenOptions) -> None:
    """Write an installed dataset in the format of another tool, with every value unchanged.

    What the format cannot hold is listed before the first byte; without --allow-loss that ends it.
    The file or folder is there when it is whole.
    """
    state = state_of(context)
    made = datasets_cli.export_dataset(**call, **state.settings)
    lines = fitted(_export_lines(made, is_tried="dry_run" in call), state.width)
    state.emit(made.to_json(), lines, [str(made.path)])


def _export_lines(made: ExportedDataset, *, is_tried: bool) -> list[str]:
    lost = [f"  not kept: {line}" for line in made.losses]
    if is_tried:
        nothing = "" if lost else "; all of it is kept"
        return [f"{made.id} as {made.format} would be {made.path}{nothing}", *lost]
    return [f"{made.id} as {made.format}: {made.path}, {human_bytes(made.size_bytes)}", *lost]


@options_of(call=RecordCall)
def record(context: typer.Context, *, call: GivenOptions) -> None:
    """Record episodes of a gymnasium environment into a dataset; print its folder.

    The values are the same for every number of workers, and a recording that was killed continues
    where it stopped, with the same result. The same command again does nothing. The observation
    after the last action of an episode is the true one, and what ended it is kept. What an
    environment tells in its info is not recorded.

    Needs gymnasium: pip install 'rlds-cli[collect]'. A policy is code of this folder, and is run.
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
        raise UsageError(f"-o {text} is not NAME=VALUE. Example: -o continuous=true")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value
