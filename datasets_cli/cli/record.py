"""``rlds record``: episodes of an environment as a dataset of one's own."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

import datasets_cli
from datasets_cli.cli.parser.arguments import Layout
from datasets_cli.cli.parser.completion import recorded_names
from datasets_cli.cli.parser.fields import Given, options_of
from datasets_cli.cli.state import state_of
from datasets_cli.environments.record.options import RecordOptions
from datasets_cli.errors import UsageError
from datasets_cli.quantities import human_bytes, human_count

_CHECKS: dict[str, Any] = {"true": True, "false": False}


@options_of(options=RecordOptions)
def record(
    context: typer.Context,
    *,
    env: Annotated[
        str,
        typer.Argument(
            metavar="ENV", help="Id of a gymnasium environment, or MODULE:ID of one that registers."
        ),
    ],
    out: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The dataset is recorded/NAME.",
            autocompletion=recorded_names,
        ),
    ],
    policy: Annotated[
        str,
        typer.Option(
            metavar="random|MODULE:FUNCTION",
            help="Chooses actions: takes a TensorDict [n] with observation, gives one with action.",
        ),
    ] = "random",
    options: Given,
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Processes; by default all cores if the work is worth it, 0 for none.",
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "-o",
            "--option",
            metavar="NAME=VALUE",
            help="A further argument of gymnasium.make; VALUE is JSON, or text.",
        ),
    ] = None,
    layout: Layout = None,
    append: Annotated[
        bool, typer.Option("--append", help="Add the episodes to the dataset that is there.")
    ] = False,
    check_actions: Annotated[
        str,
        typer.Option(
            metavar="true|strict|false",
            help="true refuses actions that are NaN, infinite or of no category; strict also those "
            "that are out of bounds, which true counts; false none.",
        ),
    ] = "true",
) -> None:
    """Record episodes of a gymnasium environment into a dataset; print its folder.

    The values are the same for every number of workers, and a recording that was killed continues
    where it stopped, with the same result. The same command again does nothing. The observation
    after the last action of an episode is the true one, and what ended it is kept. What an
    environment tells in its info is not recorded.

    Needs gymnasium: pip install 'rlds-cli[collect]'. A policy is code of this folder, and is run.
    """
    state = state_of(context)
    found = datasets_cli.record(
        env,
        out,
        policy=policy,
        num_workers=workers,
        **options,
        env_options=dict(map(_option, option or [])),
        layout=layout,
        append=append,
        check_actions=_CHECKS.get(check_actions, check_actions),
        progress=state.progress(),
        config=state.config,
    )
    state.note(
        f"{found.id}: {human_count(found.num_transitions)} transitions in "
        f"{human_count(found.num_trajectories)} trajectories, {human_bytes(found.size_bytes)} on "
        "disk"
    )
    state.emit(found.to_json(), [str(found.path)], [str(found.path)])


def _option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not (name.isidentifier() and equals):
        raise UsageError(f"-o {text} is not NAME=VALUE. Example: -o continuous=true")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value
