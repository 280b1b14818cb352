"""``rlds record``: episodes of an environment as a dataset of one's own."""

from __future__ import annotations

import json
from typing import Any

import typer

import datasets_cli
from datasets_cli.cli.parser.fields import GivenOptions, options_of
from datasets_cli.cli.state import state_of
from datasets_cli.environments.record.options import RecordCall
from datasets_cli.errors import UsageError
from datasets_cli.quantities import counted, human_bytes


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
