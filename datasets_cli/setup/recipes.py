"""Recipes: which there are, whose they are, and a file to begin one with."""

from __future__ import annotations

import importlib.util
import keyword
import os
import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from datasets_cli.catalogue.entries import catalogue
from datasets_cli.catalogue.names import OWN
from datasets_cli.catalogue.registry import PACKAGE, entry_points, families, load_recipe
from datasets_cli.config import RootOptions, config_folder
from datasets_cli.errors import RldsError, UnknownDataset, UsageError
from datasets_cli.json_form import JsonForm
from datasets_cli.options import takes_fields
from datasets_cli.recipe import Recipe
from datasets_cli.sources.new_files import write_text
from datasets_cli.store.cache_root import CacheRoot

FAMILY = {"argument": True, "metavar": "FAMILY", "complete": "family_names"}

TEMPLATE = '''"""{family}: say in one line what these datasets are.

All that a recipe may do: docs/adding-a-dataset.md. After each change run:
rlds recipe check {path} --source FOLDER
"""

from datasets_cli.recipe import TRAJECTORY_END, Block, CatalogueEntry, Recipe, Resource

BASE = "https://example.org/{family}/"  # where the publisher has the files


def datasets(web):
    # The catalogue: names, and the bytes to download where they are known.
    return [CatalogueEntry("first-v0"), CatalogueEntry("second-v0")]


def resources(name, web):
    # The files of a dataset: addresses in the order to try them. Add size and checksums.
    return [Resource(urls=(f"{{BASE}}{{name}}.npz",), filename=f"{{name}}.npz")]


def blocks(source):
    # Rows as they were recorded: nothing is cast, and no end is guessed.
    import numpy as np  # here, because `rlds list` imports every recipe

    (path,) = source.files.values()
    with np.load(path) as file:
        columns = {{
            ("observation",): file["observations"],
            ("action",): file["actions"],
            ("next", "reward"): file["rewards"],
            ("next", "terminated"): file["terminals"],
            TRAJECTORY_END: file["timeouts"],  # the last row of a trajectory that is cut off
        }}
        yield Block(columns)


texts = {{"title": "{family}", "licence": "", "citation": "", "homepage": BASE}}
# The family is the name of this file; the version is one more whenever values change.
RECIPE = Recipe("{family}", 1, **texts, datasets=datasets, resources=resources, blocks=blocks)
'''


@dataclass(frozen=True)
class RecipeInfo(JsonForm):
    """A recipe, and where it comes from.

    Args:
        family: of its datasets.
        source: ``"package"``, of this program; ``"file"``, a user's own; or ``"entry point"``, of
            another package.
        place: its file, or the package and the name that it registered.
        num_datasets: of its catalogue.
        recipe: itself; None where it cannot be loaded.
        error: why.
    """

    JSON = (
        "family source place version=recipe.version? title=recipe.title? num_datasets? "
        "licence=recipe.licence? citation=recipe.citation? homepage=recipe.homepage? "
        "options=recipe.options? unlisted=recipe.unlisted? dynamic=recipe.dynamic? error?"
    )

    family: str
    source: str
    place: str
    num_datasets: int | None = None
    recipe: Recipe | None = None
    error: RldsError | None = None


@dataclass(frozen=True)
class FamilyCall(RootOptions):
    """What ``recipe_info`` and ``new_recipe`` take.

    Args:
        family: of datasets.
    """

    family: str = field(metadata=FAMILY)


@takes_fields(RootOptions)
def list_recipes(call: RootOptions) -> list[RecipeInfo]:
    """Return every recipe, with its source; also one that cannot be loaded."""
    root = CacheRoot(call.chosen_config().root)
    return [_info(family, root) for family in families()]


@takes_fields(FamilyCall)
def recipe_info(call: FamilyCall) -> RecipeInfo:
    """Return what is known of one recipe.

    Raises:
        UnknownDataset: there is no such family; the message has the nearest ones.
    """
    root = CacheRoot(call.chosen_config().root)
    if call.family not in families():
        near = get_close_matches(call.family, families(), 3)
        hint = f" Did you mean {', '.join(near)}?" if near else ""
        raise UnknownDataset(f"There is no family {call.family!r}.{hint} See: rlds recipe list")
    return _info(call.family, root)


def _info(family: str, root: CacheRoot) -> RecipeInfo:
    if point := entry_points().get(family):
        package = point.dist.name if point.dist else "an unknown package"
        source, place = "entry point", f"{package}: {point.value}"
    else:
        spec = importlib.util.find_spec(f"{PACKAGE}.{family}")
        place = str(spec.origin if spec else "")
        shipped = Path(str(importlib.import_module(PACKAGE).__file__)).parent
        source = "package" if shipped in Path(place).parents else "file"
    try:
        recipe = load_recipe(family)
        return RecipeInfo(family, source, place, len(catalogue(recipe, root)), recipe)
    except RldsError as error:
        return RecipeInfo(family, source, place, error=error)


@takes_fields(FamilyCall)
def new_recipe(call: FamilyCall) -> RecipeInfo:
    """Write a file to begin a recipe with into the user's folder of recipes.

    Raises:
        UsageError: the family or the file is there already, or no family can have that name.
    """
    call.chosen_config()
    family = call.family
    path = config_folder() / "recipes" / f"{family}.py"
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,99}", family) or keyword.iskeyword(family):
        raise UsageError(
            f"{family!r} cannot be a family. Expected lower-case letters, digits and _, beginning "
            "with a letter, and no keyword of Python, since it names a module."
        )
    if family in (*families(), *OWN) or os.path.lexists(path):
        where = path if os.path.lexists(path) else "rlds recipe list"
        raise UsageError(f"There is a family {family} already. See: {where}")
    write_text(path, TEMPLATE.format(family=family, path=path))
    return RecipeInfo(family, "file", str(path))
