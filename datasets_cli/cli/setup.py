"""``rlds env``, ``config`` and ``recipe``: the program, its settings and its recipes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

import datasets_cli
from datasets_cli.cli.parser.fields import GivenOptions, options_of
from datasets_cli.cli.state import state_of
from datasets_cli.cli.terminal import fact, fitted, table
from datasets_cli.core.quantities import counted, human_bytes, human_count


@options_of(call="program_info")
def env(context: typer.Context, *, call: GivenOptions) -> None:
    """Show versions, cache root, disk, mirrors and extras.

    Include its output in a bug report. URLs are shown without user, password and query, and
    environment variables without values.

    Examples:
        rlds env
    """
    state = state_of(context)
    info = datasets_cli.program_info(**call, config=state.config)
    state.emit(info.to_json(), _facts(info.to_json(), state.width), [info.version])


def _facts(document: Mapping[str, Any], width: int | None) -> list[str]:
    """Return a line for each value of a document, also of nested mappings."""
    lines = []
    for name, value in document.items():
        if isinstance(value, dict) and isinstance(next(iter(value.values()), 0), dict):
            lines += _facts({f"{name} {below}": each for below, each in value.items()}, width)
        else:
            text = human_bytes(value) if name.endswith("bytes") else _text(value)
            lines += fact(name.replace("_", " "), text, width)
    return lines


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_text(each)}" for name, each in value.items()) or "none"
    if isinstance(value, list):
        return "; ".join(map(_text, value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return "absent" if value is None else str(value)


@options_of(call="settings")
def config(context: typer.Context, *, call: GivenOptions) -> None:
    """Show the config file and its settings.

    Edit the file with any editor.

    Examples:
        rlds config
    """
    state = state_of(context)
    found = datasets_cli.settings(**call, config=state.config)
    for each in found.settings:
        if each.variable:
            state.note(f"{each.variable} is set and overrides {each.key}.")
    lines = [
        f"{each.key} = {_text(each.value) or '(not set)'}  ({each.origin})"
        for each in found.settings
    ]
    missing = "" if found.path.exists() else "  (does not exist)"
    state.emit(found.to_json(), [f"{found.path}{missing}", *lines], [str(found.path)])


@options_of(call="list_recipes")
def recipe_list(context: typer.Context, *, call: GivenOptions) -> None:
    """List the recipes.

    Lists the recipes that ship with rlds, your own recipes, and recipes of other packages.

    Examples:
        rlds recipe list
    """
    state = state_of(context)
    found = datasets_cli.list_recipes(**call, config=state.config)
    rows = [
        {
            "FAMILY": each.family,
            ">DATASETS": human_count(each.num_datasets),
            "SOURCE": each.source,
            "PLACE": f"{each.place}: {each.error}" if each.error else each.place,
        }
        for each in found
    ]
    lines = table(rows, state.width, ("PLACE",))
    state.emit([each.to_json() for each in found], lines, [each.family for each in found])


@options_of(call="recipe_info")
def recipe_show(context: typer.Context, *, call: GivenOptions) -> None:
    """Show the title, licence and options of a recipe.

    Also shows where the recipe comes from.

    Examples:
        rlds recipe show d4rl
    """
    state = state_of(context)
    info = datasets_cli.recipe_info(**call, config=state.config)
    state.emit(info.to_json(), _facts(info.to_json(), state.width), [info.place])


@options_of(call="new_recipe")
def recipe_new(context: typer.Context, *, call: GivenOptions) -> None:
    """Write a commented template for a new recipe.

    The file is written into your recipe folder.

    Examples:
        rlds recipe new lunar
    """
    state = state_of(context)
    made = datasets_cli.new_recipe(**call, config=state.config)
    state.note(f"Edit it, then run: rlds recipe check {made.place}")
    state.emit(made.to_json(), [made.place], [made.place])


@options_of(call="check_recipe")
def recipe_check(context: typer.Context, *, call: GivenOptions) -> None:
    """Load a recipe, call its functions and report errors.

    With --source, it also reads the raw files of one dataset and checks every row. Nothing is
    installed. The code of the recipe is run.

    Examples:
        rlds recipe check lunar.py
        rlds recipe check lunar.py --source ./rollouts --dataset easy-v1
    """
    state = state_of(context)
    checked = datasets_cli.check_recipe(**call, **state.settings)
    lines = [f"{checked.family}: it loads; {counted(checked.num_datasets, 'dataset')}"]
    if report := checked.report:
        rows = counted(report.num_transitions, "transition")
        whole = counted(report.num_trajectories, "trajectory")
        lines += [f"{checked.id}: every value is valid: {rows} in {whole}"]
        lines += [f"  {note}" for note in checked.notes]
    else:
        lines += ["No dataset was read: --source FOLDER gives the files of one."]
    state.emit(checked.to_json(), fitted(lines, state.width), [checked.family])
