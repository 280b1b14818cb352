"""Recipes: list, description, template and check."""

from __future__ import annotations

import importlib.util
import keyword
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from datasets_cli.catalogue.entries import PACKAGE, catalogue, entry_points, families, load_recipe
from datasets_cli.catalogue.names import OWN, Resolved
from datasets_cli.config import RootOptions, config_folder
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import takes_fields
from datasets_cli.core.progress import Progress, ProgressOptions
from datasets_cli.core.progress_display import displayed
from datasets_cli.errors import (
    OfflineError,
    RldsError,
    SourceError,
    UnknownDataset,
    UsageError,
    argument,
)
from datasets_cli.install.options import InstallOptions
from datasets_cli.parallel.user_code import call_user_code, line_of, module_of
from datasets_cli.recipe import CatalogueEntry, Recipe, Resource
from datasets_cli.sources.new_files import temporary_folder, write_text
from datasets_cli.store.cache_root import CacheRoot, check_id
from datasets_cli.store.deep_report import DeepReport

FAMILY = {
    **{"argument": True, "metavar": "FAMILY", "complete": "family_names"},
    "help": "Name of the family.",
}

TEMPLATE = '''"""{family}: describe these datasets in one line.

The guide to recipes: docs/adding-a-dataset.md. After each change run:
rlds recipe check {path} --source FOLDER
"""

from datasets_cli.recipe import TRAJECTORY_END, Block, CatalogueEntry, Recipe, Resource

BASE = "https://example.org/{family}/"  # the URL of the files


def datasets(web):
    # The catalogue: the names and, if known, the sizes of the datasets.
    return [CatalogueEntry("first-v0"), CatalogueEntry("second-v0")]


def resources(name, web):
    # The files of a dataset, with URLs in the order of preference. Add sizes and checksums.
    return [Resource(urls=(f"{{BASE}}{{name}}.npz",), filename=f"{{name}}.npz")]


def blocks(source):
    # The recorded rows: do not cast values, and do not guess the ends of trajectories.
    import numpy as np  # here, because `rlds list` imports every recipe

    (path,) = source.files.values()
    with np.load(path) as file:
        columns = {{
            ("observation",): file["observations"],
            ("action",): file["actions"],
            ("next", "reward"): file["rewards"],
            ("next", "terminated"): file["terminals"],
            TRAJECTORY_END: file["timeouts"],  # the last row of a truncated trajectory
        }}
        yield Block(columns)


texts = {{"title": "{family}", "licence": "", "citation": "", "homepage": BASE}}
# The family is the name of this file. Increment the version whenever values change.
RECIPE = Recipe("{family}", 1, **texts, datasets=datasets, resources=resources, blocks=blocks)
'''


@dataclass(frozen=True)
class RecipeInfo(JsonForm):
    """A recipe and its source.

    Args:
        family: the name of its family.
        source: ``"package"`` for rlds, ``"file"`` for a user's file, or ``"entry point"`` for
            another package.
        place: its file, or the package and the registered name.
        num_datasets: the number of datasets in its catalogue.
        recipe: the recipe, or None if it cannot be loaded.
        error: the reason why it cannot be loaded, or None.
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
    """The arguments of ``recipe_info`` and ``new_recipe``.

    Args:
        family: the name of a family.
    """

    family: str = field(metadata=FAMILY)


@takes_fields(RootOptions)
def list_recipes(call: RootOptions) -> list[RecipeInfo]:
    """Return all recipes with their sources, including recipes that cannot be loaded."""
    root = CacheRoot(call.chosen_config().root)
    return [_info(family, root) for family in families()]


@takes_fields(FamilyCall)
def recipe_info(call: FamilyCall) -> RecipeInfo:
    """Return the description of one recipe.

    Raises:
        UnknownDataset: the family is unknown; the message suggests similar names.
    """
    root = CacheRoot(call.chosen_config().root)
    if call.family not in families():
        near = get_close_matches(call.family, families(), 3)
        hint = f" Did you mean {', '.join(near)}?" if near else ""
        raise UnknownDataset(
            f"Unknown family {call.family!r}.{hint}",
            argument="family",
            found=call.family,
            advice="See: rlds recipe list",
        )
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
    """Write a template for a new recipe into the user's folder of recipes.

    Raises:
        UsageError: the family or the file exists, or the name is invalid.
    """
    call.chosen_config()
    family = call.family
    path = config_folder() / "recipes" / f"{family}.py"
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,99}", family) or keyword.iskeyword(family):
        raise UsageError(
            f"{family!r} is not a valid family name. It names a module: expected lower-case "
            "letters, digits and _, a letter first, and not a Python keyword.",
            argument="family",
            found=family,
        )
    if family in (*families(), *OWN) or os.path.lexists(path):
        where = path if os.path.lexists(path) else "rlds recipe list"
        raise UsageError(
            f"The family {family} exists already.",
            argument="family",
            found=family,
            advice=f"See: {where}",
        )
    write_text(path, TEMPLATE.format(family=family, path=path))
    return RecipeInfo(family, "file", str(path))


MOST_CALLED = 20
"""The number of datasets whose files are requested by the check of a recipe."""


@dataclass(frozen=True)
class CheckedRecipe(JsonForm):
    """A recipe that passed its check.

    Args:
        family: the name of its family.
        path: its file.
        num_datasets: the number of datasets in its catalogue.
        id: the id of the dataset that was read, or empty.
        report: the deep check of that dataset, or None.
        notes: remarks on that dataset, such as final steps.
    """

    JSON = "family path num_datasets id|null deep=report? notes"

    family: str
    path: Path
    num_datasets: int
    id: str = ""
    report: DeepReport | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class CheckRecipeCall(ProgressOptions, RootOptions):
    """The arguments of ``check_recipe``.

    Args:
        file: recipe file, or the folder that contains it.
        source: folder with the raw files of one dataset, which are read and checked row by row,
            and not installed.
        dataset: the name of that dataset without its family; by default the first.
    """

    file: str | os.PathLike[str] = field(
        metadata={
            "argument": True,
            "metavar": "FILE",
            "help": "Recipe file, or the folder that contains it.",
        }
    )
    _: KW_ONLY
    source: str | os.PathLike[str] | None = field(
        default=None,
        metadata={
            "metavar": "FOLDER",
            "help": (
                "Folder with the raw files of one dataset, which are read and checked row by row."
            ),
        },
    )
    dataset: str | None = field(
        default=None,
        metadata={"metavar": "NAME", "help": "Name of that dataset, without its family."},
    )


@takes_fields(CheckRecipeCall)
def check_recipe(call: CheckRecipeCall) -> CheckedRecipe:
    """Load a recipe, call its functions, and read one dataset if ``source`` is set.

    This runs the code of the recipe. Nothing is installed, and the network is not used.

    Raises:
        RldsError: the recipe raises an error or returns an invalid value.
        SourceError: the files cannot be read, or their rows break a rule of the format.
        UsageError: the file does not exist.
    """
    call.chosen_config()
    if call.source is None and call.dataset is not None:
        raise UsageError(
            f"{argument('dataset')} requires {argument('source')}.",
            argument="dataset",
            found=call.dataset,
        )
    path = Path(call.file).expanduser().absolute()
    with _loaded(path) as (recipe, user_call):
        listed = user_call("datasets(None)", lambda: [*recipe.datasets(None)])
        entries = _checked_entries(recipe, listed)
        for name in [*entries][:MOST_CALLED]:
            _call_with(recipe, name, user_call)
        checked = CheckedRecipe(recipe.family, path, len(entries))
        if call.source is None:
            return checked
        with displayed(call.progress, "transitions read") as progress:
            return _read(checked, recipe, entries, call, progress)


@contextmanager
def _loaded(path: Path) -> Iterator[tuple[Recipe, Callable[..., Any]]]:
    """Import the recipe of a file for the block; yield it with a wrapper for its calls."""
    file, family = path / "__init__.py" if path.is_dir() else path, path.stem
    if not file.is_file() or file.suffix != ".py":
        what = "is not a recipe" if path.exists() else "does not exist"
        raise UsageError(
            f"{path} {what}.",
            argument="file",
            path=path,
            advice="Pass a file FAMILY.py, or its folder.",
        )
    name, whose = f"{PACKAGE}.{family}", f"recipe {family}"
    with module_of(name, path, whose) as module:
        recipe = getattr(module, "RECIPE", None)
        if not isinstance(recipe, Recipe) or recipe.family != family:
            raise RldsError(
                f"{path} must define RECIPE, a Recipe with family={family!r}.",
                path=path,
                expected=family,
                found=recipe,
            )
        yield recipe, partial(call_user_code, whose, path=path)


def _checked_entries(recipe: Recipe, entries: list[Any]) -> dict[str, CatalogueEntry]:
    """Return the entries of a catalogue by their names, which must be valid in ids."""
    by_name: dict[str, CatalogueEntry] = {}
    for entry in entries:
        if not isinstance(entry, CatalogueEntry) or entry.name in by_name:
            raise RldsError(
                f"datasets(None) returns {entry!r}; expected CatalogueEntry objects with different "
                "names.",
                found=entry,
            )
        check_id(f"{recipe.family}/{entry.name}")
        by_name[entry.name] = entry
    if not entries and not (recipe.unlisted or recipe.dynamic):
        raise RldsError(
            "datasets(None) returns an empty list; expected datasets, or unlisted=True.",
            expected="datasets",
        )
    return by_name


def _call_with(recipe: Recipe, name: str, user_call: Callable[..., Any]) -> None:
    """Call the functions with a parameter for the name of a dataset."""
    variant = user_call(f"variant({name!r}, {{}})", lambda: recipe.variant(name, {}))
    if variant != name:
        raise RldsError(
            f"variant({name!r}, {{}}) returns {variant!r}; expected {name!r}.",
            expected=name,
            found=variant,
        )
    user_call(f"fallback({name!r}, {{}})", lambda: recipe.fallback(name, {}))
    user_call(f"references({name!r})", lambda: dict(recipe.references(name)))
    if recipe.resources_at is None:
        files = user_call(f"resources({name!r}, None)", lambda: [*recipe.resources(name, None)])
        if not files or not all(isinstance(each, Resource) for each in files):
            raise RldsError(
                f"resources({name!r}, None) returns {files!r}; expected Resources.",
                expected="Resources",
                found=files,
            )


def _read(
    checked: CheckedRecipe,
    recipe: Recipe,
    entries: dict[str, CatalogueEntry],
    call: CheckRecipeCall,
    progress: Progress,
) -> CheckedRecipe:
    """Convert a dataset into a temporary folder, as a download does, and check every row."""
    from datasets_cli.install.fetch import raw_file, resources_of
    from datasets_cli.install.installation import stage
    from datasets_cli.store.dataset import open_dataset
    from datasets_cli.store.deep_check import deep_check
    from datasets_cli.store.manifest import write_manifest

    if call.dataset is None and not entries:
        raise UsageError(
            "The catalogue is empty.",
            argument="dataset",
            advice=f"Name the dataset with {argument('dataset')}.",
        )
    name = call.dataset or next(iter(entries))
    resolved = Resolved(recipe, name, entries.get(name) or recipe.find(name, None))
    options = InstallOptions(source=os.fspath(call.source or ""), accept_any=True)
    with temporary_folder("recipe") as folder:
        root = CacheRoot(folder)
        files = [
            raw_file(each, root, resolved.id, options, _no_web, progress)
            for each in resources_of(resolved, options, _no_web)
        ]
        try:
            manifest, staging = stage(resolved, files, root, None, progress)
        except SourceError as error:
            if line := line_of(error.__cause__, checked.path):
                error.append(f" It is raised{line}.")
            raise
        write_manifest(staging, manifest)
        report = deep_check(open_dataset(staging, text=True), progress)
    final = filter(None, [manifest.recorded_steps])
    notes = (*manifest.metadata["notes"], *final, *report.remarks)
    return replace(checked, id=resolved.id, report=report, notes=notes)


def _no_web() -> NoReturn:
    raise OfflineError("A recipe is checked without a network, and this one asks for it.")
