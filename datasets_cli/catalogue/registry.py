"""The registry of families and their recipes.

The folder is the registry: every module or folder of ``datasets_cli.recipes`` that does not begin
with ``_`` is a family of that name and has a ``RECIPE``. Further folders come from
``$RLDS_RECIPES`` and the user's configuration, further recipes from the entry point group
``datasets_cli.recipes``.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import logging
import pkgutil
from functools import cache

from datasets_cli.errors import RldsError, UsageError
from datasets_cli.parallel.user_code import user_error
from datasets_cli.recipe import Recipe

logger = logging.getLogger(__name__)

PACKAGE = "datasets_cli.recipes"


@cache
def families() -> tuple[str, ...]:
    """Return the names of all families, sorted."""
    package = importlib.import_module(PACKAGE)
    names = [
        module.name
        for folder in package.__path__
        for module in pkgutil.iter_modules([folder])
        if not module.name.startswith("_")
    ]
    names += entry_points()
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        shown = ", ".join(sorted(twice))
        raise UsageError(
            f"There are two recipes named {shown} in {', '.join(package.__path__)} and installed "
            "entry points.",
            found=shown,
            advice="Rename yours.",
        )
    return tuple(sorted(names))


@cache
def entry_points() -> dict[str, importlib.metadata.EntryPoint]:
    """Return the recipes of other packages by family; cached, since it reads every package."""
    return {point.name: point for point in importlib.metadata.entry_points(group=PACKAGE)}


@cache
def load_recipe(family: str) -> Recipe:
    """Return the recipe of a family."""
    point = entry_points().get(family)
    try:
        recipe = point.load() if point else importlib.import_module(f"{PACKAGE}.{family}").RECIPE
    except Exception as error:  # anyone's code, which must not stop other recipes
        raise user_error(f"recipe {family}", "cannot be loaded", error) from error
    if not isinstance(recipe, Recipe) or recipe.family != family:
        raise RldsError(f"The recipe {family} must define RECIPE, a Recipe with family={family!r}.")
    return recipe


def recipes() -> list[Recipe]:
    """Return every recipe that can be loaded; log a warning for each other one."""
    loaded = []
    for family in families():
        try:
            loaded.append(load_recipe(family))
        except RldsError as error:
            logger.warning("%s", error)
    return loaded
