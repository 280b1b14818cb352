"""A recipe that is checked: loaded, its functions called, and one dataset read by it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from datasets_cli.catalogue.names import Resolved
from datasets_cli.catalogue.registry import PACKAGE
from datasets_cli.config import RootOptions
from datasets_cli.errors import OfflineError, RldsError, SourceError, UsageError, argument
from datasets_cli.install.options import InstallOptions
from datasets_cli.json_form import JsonForm
from datasets_cli.options import takes_fields
from datasets_cli.parallel.user_code import line_of, module_of, tried
from datasets_cli.progress import Progress, ProgressOptions
from datasets_cli.progress_bars import shown
from datasets_cli.quantities import file_rows
from datasets_cli.recipe import CatalogueEntry, Recipe, Resource
from datasets_cli.sources.new_files import temporary_folder
from datasets_cli.store.cache_root import CacheRoot, check_id
from datasets_cli.store.deep_check.report import DeepReport

MOST_CALLED = 20
"""Datasets of a catalogue whose files are asked for when a recipe is checked."""


@dataclass(frozen=True)
class CheckedRecipe(JsonForm):
    """A recipe in which no fault was found.

    Args:
        family: of its datasets.
        path: its file.
        num_datasets: of its catalogue.
        id: of the dataset that was read; empty where no files were given.
        report: of the check of every row of that; None where none was read.
        notes: of what was read, such as steps that are no rows.
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
    """What ``check_recipe`` takes.

    Args:
        file: of the recipe, or its folder.
        source: a folder with the files of one dataset, which is read and checked row by row, and
            not kept.
        dataset: its name, without the family; the first of the catalogue by default.
    """

    file: str | os.PathLike[str] = field(metadata={"argument": True, "metavar": "FILE"})
    _: KW_ONLY
    source: str | os.PathLike[str] | None = field(default=None, metadata={"metavar": "FOLDER"})
    dataset: str | None = field(default=None, metadata={"metavar": "NAME"})


@takes_fields(CheckRecipeCall)
def check_recipe(call: CheckRecipeCall) -> CheckedRecipe:
    """Load a recipe, call its functions, read one dataset where its files are given.

    This runs the code of the recipe. Nothing is installed, and no connection is opened.

    Raises:
        RldsError: the recipe raises, or returns what no recipe does; with the line.
        SourceError: the files are not read, or their rows break a rule of the format.
        UsageError: there is no such file.
    """
    call.chosen_config()
    if call.source is None and call.dataset is not None:
        raise UsageError(f"{argument('dataset')} needs {argument('source')}, whose files it names.")
    path = Path(call.file).expanduser().absolute()
    with _loaded(path) as (recipe, tried):
        listed = tried("datasets(None)", lambda: [*recipe.datasets(None)])
        entries = _checked_entries(recipe, listed)
        for name in [*entries][:MOST_CALLED]:
            _call_with(recipe, name, tried)
        checked = CheckedRecipe(recipe.family, path, len(entries))
        if call.source is None:
            return checked
        with shown(call.progress, "steps read") as told:
            return _read(checked, recipe, entries, call, told)


@contextmanager
def _loaded(path: Path) -> Iterator[tuple[Recipe, Callable[..., Any]]]:
    """Yield the recipe of a file, which is imported for so long, and what names it in errors."""
    file, family = path / "__init__.py" if path.is_dir() else path, path.stem
    if not file.is_file() or file.suffix != ".py":
        what = "is not a recipe" if path.exists() else "does not exist"
        raise UsageError(f"{path} {what}. Give a file FAMILY.py, or its folder.")
    name, whose = f"{PACKAGE}.{family}", f"recipe {family}"
    with module_of(name, path, whose) as module:
        recipe = getattr(module, "RECIPE", None)
        if not isinstance(recipe, Recipe) or recipe.family != family:
            raise RldsError(f"{path} must define RECIPE, a Recipe with family={family!r}.")
        yield recipe, partial(tried, whose, path=path)


def _checked_entries(recipe: Recipe, entries: list[Any]) -> dict[str, CatalogueEntry]:
    """Return the entries of a catalogue by names, which ids may have."""
    by_name: dict[str, CatalogueEntry] = {}
    for entry in entries:
        if not isinstance(entry, CatalogueEntry) or entry.name in by_name:
            raise RldsError(
                f"datasets(None) returns {entry!r}; expected entries with other names each."
            )
        check_id(f"{recipe.family}/{entry.name}")
        by_name[entry.name] = entry
    if not entries and not (recipe.unlisted or recipe.dynamic):
        raise RldsError("datasets(None) returns no dataset, and the recipe is not unlisted=True.")
    return by_name


def _call_with(recipe: Recipe, name: str, tried: Callable[..., Any]) -> None:
    """Call what takes the name of a dataset."""
    variant = tried(f"variant({name!r}, {{}})", lambda: recipe.variant(name, {}))
    if variant != name:
        raise RldsError(f"variant({name!r}, {{}}) returns {variant!r}; expected the name itself.")
    tried(f"fallback({name!r}, {{}})", lambda: recipe.fallback(name, {}))
    tried(f"references({name!r})", lambda: dict(recipe.references(name)))
    if recipe.resources_at is None:
        files = tried(f"resources({name!r}, None)", lambda: [*recipe.resources(name, None)])
        if not files or not all(isinstance(each, Resource) for each in files):
            raise RldsError(f"resources({name!r}, None) returns {files!r}; expected Resources.")


def _read(
    checked: CheckedRecipe,
    recipe: Recipe,
    entries: dict[str, CatalogueEntry],
    call: CheckRecipeCall,
    told: Progress,
) -> CheckedRecipe:
    """Read a dataset as a download does, into a folder that goes, and check every row."""
    from datasets_cli.install.installation import stage
    from datasets_cli.install.raw_files import raw_file, resources_of
    from datasets_cli.store.dataset import open_dataset
    from datasets_cli.store.deep_check.deep_check import deep_check
    from datasets_cli.store.manifest import write_manifest

    if call.dataset is None and not entries:
        raise UsageError(f"The catalogue is empty. Name the dataset with {argument('dataset')}.")
    name = call.dataset or next(iter(entries))
    resolved = Resolved(recipe, name, entries.get(name) or recipe.find(name, None))
    options = InstallOptions(source=os.fspath(call.source or ""), accept_any=True)
    with temporary_folder("recipe") as folder:
        root = CacheRoot(folder)
        files = [
            raw_file(each, root, resolved.id, options, _no_web, told)
            for each in resources_of(resolved, options, _no_web)
        ]
        try:
            manifest, staging = stage(resolved, files, root, None, told)
        except SourceError as error:
            if line := line_of(error.__cause__, checked.path):
                error.append(f" It is raised{line}.")
            raise
        write_manifest(staging, manifest)
        report = deep_check(open_dataset(staging, text=True), told)
    dropped = [file_rows(report.num_transitions, manifest.dropped_steps)]
    notes = (*manifest.metadata["notes"], *dropped[: manifest.dropped_steps], *report.remarks)
    return replace(checked, id=resolved.id, report=report, notes=notes)


def _no_web() -> NoReturn:
    raise OfflineError("A recipe is checked without a network, and this one asks for it.")
