"""``rlds data`` and ``rlds data add``: the data that an experiment declares."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import typer

import datasets_cli
from datasets_cli.cli.parser.fields import GivenOptions, options_of
from datasets_cli.cli.state import state_of
from datasets_cli.cli.terminal import table
from datasets_cli.core.quantities import human_count

if TYPE_CHECKING:
    from datasets_cli.results import DeclaredDataset


@options_of(call="declared_datasets")
def data(context: typer.Context, *, call: GivenOptions) -> None:
    """Show the data that rlds.toml declares.

    Prints the digest of each [data.NAME] table. The digest depends only on the content of the
    datasets, the trajectories of views, the weights, the source of functions, and the draws, and
    not on the machine. State it in a paper: the same rlds.toml and the same digest mean the same
    data.

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
