"""Completions for the Tab key: ids, families, layouts and formats; fast, and silent on errors.

The script of ``rlds --install-completion`` runs ``rlds`` with the words so far in environment
variables; ``_RLDS_COMPLETE`` names the shell.
"""

from __future__ import annotations

import logging
import sys
import warnings
from contextlib import suppress
from typing import Any

import typer

VARIABLE = "_RLDS_COMPLETE"


def complete(app: typer.Typer) -> None:
    """Print only the completions of the words so far, because they appear in a prompt."""
    # Typer would import rich to clean the help of each word; ours has no markup.
    sys.modules["rich"] = None  # type: ignore[assignment]
    warnings.simplefilter("ignore")
    logging.disable()
    with suppress(Exception):
        app(prog_name="rlds")


def known_ids(context: typer.Context, incomplete: str) -> list[str]:
    """Return ids of known and installed datasets; families first, while several match."""
    from datasets_cli.catalogue.entries import catalogue, catalogues, families, load_recipe

    root = _root(context)
    here = [*root.installed()]
    family, slash, _ = incomplete.partition("/")
    names = {*families(), *(id.partition("/")[0] for id in here)}
    fitting = [name for name in sorted(names) if f"{name}/".startswith(f"{family}{slash}")]
    if len(fitting) > 1:
        return [f"{name}/" for name in fitting]
    if not fitting:  # a name without its family never means data that ships with us
        listed = [entries for recipe, entries in catalogues(root) if not recipe.folder]
        return [name for entries in listed for name in entries]
    (family,) = fitting
    entries = catalogue(load_recipe(family), root) if family in families() else {}
    return sorted({*here, *(f"{family}/{name}" for name in entries)})


def installed_ids(context: typer.Context, incomplete: str) -> list[str]:
    """Return the ids of installed datasets; without their families if none matches."""
    ids = [*_root(context).installed()]
    is_whole = any(id.startswith(incomplete) for id in ids)
    return ids if is_whole else [id.partition("/")[2] for id in ids]


def recorded_names(context: typer.Context) -> list[str]:
    """Return the names of recorded datasets."""
    return _names_below(context, "recorded/")


def derived_names(context: typer.Context) -> list[str]:
    """Return the names of derived datasets."""
    return _names_below(context, "derived/")


def family_names() -> list[str]:
    """Return the names of all families."""
    from datasets_cli.catalogue.entries import families

    return [*families()]


def layouts() -> list[str]:
    """Return the names of the layouts."""
    from datasets_cli.store.manifest import LAYOUTS

    return [*LAYOUTS]


def formats() -> list[str]:
    """Return the names of other tools' formats."""
    from datasets_cli.exchange.format import ALIASES, NAMES

    return [*NAMES, *ALIASES]


def written_formats() -> list[str]:
    """Return the names of formats that can be written."""
    from datasets_cli.exchange.format import READ_ONLY

    return [name for name in formats() if name not in READ_ONLY]


def _names_below(context: typer.Context, folder: str) -> list[str]:
    ids = _root(context).installed()
    return [id.removeprefix(folder) for id in ids if id.startswith(folder)]


def _root(context: typer.Context) -> Any:
    """Return the cache root according to the words so far."""
    from datasets_cli.config import load_config
    from datasets_cli.store.cache_root import CacheRoot

    after, before = context.params.get("root"), context.find_root().params.get("root")
    return CacheRoot(load_config(root=after or before).root)
