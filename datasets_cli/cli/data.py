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
from datasets_cli.project.open import AddCall, DeclaredCall

if TYPE_CHECKING:
    from datasets_cli.results import DeclaredDataset


@options_of(call=DeclaredCall)
def data(context: typer.Context, *, call: GivenOptions) -> None:
    """Show the data that rlds.toml declares in tables [data.NAME], and the digest of each.

    The digest is equal wherever the batches are: it is of the content of the datasets, of the
    trajectories of views, of weights, of the text of functions and of the draws. Write it into a
    paper, and whoever has the file and the same digest has the same data.

    Functions that the file names are imported: run it only in a folder whose code you trust.
    """
    state = state_of(context)

    def emit(declared: list[DeclaredDataset]) -> None:
        rows = [
            {
                "NAME": each.name,
                ">STEPS": human_count(each.num_transitions),
                ">EPISODES": human_count(each.num_trajectories),
                "DIGEST": each.digest,
            }
            for each in declared
        ]
        lines = table(rows, state.width) or ["no data is declared: there is no table [data.NAME]"]
        state.emit([each.to_json() for each in declared], lines, [each.digest for each in declared])

    state.emit_all(partial(datasets_cli.declared_datasets, **call, config=state.config), emit)


@options_of(call=AddCall)
def add(context: typer.Context, *, call: GivenOptions) -> None:
    """Write a table [data.NAME] into rlds.toml; all else in it stays, and nothing is installed."""
    state = state_of(context)
    added = datasets_cli.add_data(**call, config=state.config)
    state.emit(added.to_json(), [f"added to {added.path}:", *added.text.splitlines()], [added.name])
