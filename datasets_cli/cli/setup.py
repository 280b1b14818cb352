"""``rlds env``, ``config`` and ``recipe``: the program, its settings, recipes of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import typer

import datasets_cli
from datasets_cli.cli.parser.fields import GivenOptions, options_of
from datasets_cli.cli.state import state_of
from datasets_cli.cli.terminal import fact, fitted, table
from datasets_cli.config import RootOptions
from datasets_cli.quantities import counted, human_bytes, human_count
from datasets_cli.setup.recipes import CheckRecipeCall, FamilyCall, NewRecipeCall
from datasets_cli.setup.settings import SetCall, SettingsCall

if TYPE_CHECKING:
    from datasets_cli import Setting


@options_of(call=RootOptions)
def env(context: typer.Context, *, call: GivenOptions) -> None:
    """Show versions, cache root, disk, mirrors and extras: what to send with a report.

    Addresses are without user, password and query, and of variables only the names are told.
    """
    state = state_of(context)
    info = datasets_cli.program_info(**call, config=state.config)
    access = "" if info.writable else ", which this user cannot write"
    there = f"{counted(info.num_datasets, 'dataset')}, {human_bytes(info.free_bytes)} free"
    mirrors = ", ".join(f"{prefix} = {to}" for prefix, to in info.mirrors.items())
    facts = {
        "rlds": f"{info.version}, Python {info.python}",
        "system": info.system,
        "root": f"{info.root}{access}: {there}",
        "network": "none: offline" if info.offline else "allowed",
        "mirrors": mirrors or "none",
        "config file": str(info.config_file),
        "variables": ", ".join(info.variables) or "none",
        "packages": _versions(info.packages),
        **{f"extra [{name}]": _versions(needs) for name, needs in info.extras.items()},
    }
    lines = [line for name, text in facts.items() for line in fact(name, text, state.width)]
    state.emit(info.to_json(), lines, [info.version])


def _versions(packages: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name} {version or '(absent)'}" for name, version in packages.items())


@options_of(call=SettingsCall)
def config_get(context: typer.Context, *, call: GivenOptions) -> None:
    """Show the settings of the config file; what is not set has its default."""
    state = state_of(context)
    found = datasets_cli.settings(**call, config=state.config)
    for each in found:
        if each.variable:
            state.note(f"{each.variable} is set and wins over {each.key}.")
    values = [_value(each) for each in found]
    named = [f"{each.key} = {_value(each) or '(not set)'}  ({each.origin})" for each in found]
    state.emit([each.to_json() for each in found], values if "key" in call else named, values)


def _value(setting: Setting) -> str:
    return str(setting.value).lower() if isinstance(setting.value, bool) else str(setting.value)


@options_of(call=SetCall)
def config_set(context: typer.Context, *, call: GivenOptions) -> None:
    """Write a setting into the config file; its comments and all other settings stay."""
    state = state_of(context)
    changed = datasets_cli.change_setting(**call, config=state.config)
    state.emit(changed.to_json(), [f"{changed.key} = {_value(changed)}"])


@options_of(call=RootOptions)
def config_path(context: typer.Context, *, call: GivenOptions) -> None:
    """Print where the config file is, whether it is there or not."""
    state = state_of(context)
    found = datasets_cli.settings_path(**call, config=state.config)
    state.emit(found.to_json(), [str(found.path)], [str(found.path)])


@options_of(call=RootOptions)
def recipe_list(context: typer.Context, *, call: GivenOptions) -> None:
    """List the recipes: of this program, files of your own, and those of other packages."""
    state = state_of(context)
    found = datasets_cli.list_recipes(**call, config=state.config)
    rows = [
        {
            "FAMILY": each.family,
            ">DATASETS": human_count(each.num_datasets),
            "SOURCE": each.source,
            "PLACE": str(each.error or each.place),
        }
        for each in found
    ]
    lines = table(rows, state.width, ("PLACE",))
    state.emit([each.to_json() for each in found], lines, [each.family for each in found])


@options_of(call=FamilyCall)
def recipe_show(context: typer.Context, *, call: GivenOptions) -> None:
    """Show what a recipe says of its family, and where it comes from."""
    state = state_of(context)
    info = datasets_cli.recipe_info(**call, config=state.config)
    facts = {"family": info.family, "source": f"{info.source}, {info.place}"}
    if info.recipe:
        said = info.recipe
        facts |= {"title": said.title, "version": str(said.version), "licence": said.licence}
        facts |= {"citation": said.citation, "homepage": said.homepage}
        facts["datasets"] = human_count(info.num_datasets)
    facts |= {f"-o {each.name}={each.value}": each.help for each in info.options}
    facts |= {"error": str(info.error)} if info.error else {}
    lines = [line for name, text in facts.items() for line in fact(name, text, state.width)]
    state.emit(info.to_json(), lines, [info.place])


@options_of(call=NewRecipeCall)
def recipe_new(context: typer.Context, *, call: GivenOptions) -> None:
    """Write a file with comments to begin a recipe with, into your folder of recipes."""
    state = state_of(context)
    made = datasets_cli.new_recipe(**call, config=state.config)
    state.note(f"Edit it, then run: rlds recipe check {made.path}")
    state.emit(made.to_json(), [str(made.path)], [str(made.path)])


@options_of(call=CheckRecipeCall)
def recipe_check(context: typer.Context, *, call: GivenOptions) -> None:
    """Load a recipe, call its functions, and say what is wrong.

    With the files of one dataset that is read, too, and every row checked. Nothing is installed.
    This runs the code of the recipe.
    """
    state = state_of(context)
    checked = datasets_cli.check_recipe(**call, **state.settings)
    num = counted(checked.num_datasets, "dataset")
    lines = [f"{checked.family}: it loads; {num}, files named for {checked.num_called} of them"]
    if checked.id:
        rows = counted(checked.num_transitions or 0, "row")
        whole = counted(checked.num_trajectories or 0, "trajectory")
        lines += [f"{checked.id}: the rules of the format hold for {rows} in {whole}"]
        lines += [f"  {note}" for note in checked.notes]
    else:
        lines += ["No dataset was read: --source FOLDER gives the files of one."]
    state.emit(checked.to_json(), fitted(lines, state.width), [checked.family])
