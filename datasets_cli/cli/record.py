"""``rlds record``, apart from other commands, because its options load torch."""

from __future__ import annotations

import json
from typing import Any

import typer

import datasets_cli
from datasets_cli.cli.parser.fields import GivenOptions, options_of
from datasets_cli.cli.state import state_of
from datasets_cli.core.quantities import counted, human_bytes
from datasets_cli.environments.record.options import RecordCall
from datasets_cli.errors import UsageError


@options_of(call=RecordCall)
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
