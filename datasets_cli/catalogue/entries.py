"""The catalogue of a family: the entries of its recipe, and the fetched entries.

The folder is the registry: every module or folder of ``datasets_cli.recipes`` that does not begin
with ``_`` is a family of that name and has a ``RECIPE``. Further folders come from
``$RLDS_RECIPES`` and the user's configuration, further recipes from the entry point group
``datasets_cli.recipes``.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import logging
import pkgutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from datasets_cli.core.checked_json import decode, encode
from datasets_cli.errors import RldsError, UsageError
from datasets_cli.recipe import CatalogueEntry, Entries, Recipe, Web
from datasets_cli.sources.new_files import replacing
from datasets_cli.store.cache_root import CacheRoot

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
        raise _recipe_error(family, "cannot be loaded", error) from error
    if not isinstance(recipe, Recipe) or recipe.family != family:
        raise RldsError(
            f"The recipe {family} must define RECIPE, a Recipe with family={family!r}.",
            expected=f"RECIPE, a Recipe with family={family!r}",
            found=recipe,
        )
    return recipe


def _recipe_error(family: str, what: str, error: Exception) -> RldsError:
    """Return the error of a recipe, whose code may be anyone's, with the line that raised."""
    from datasets_cli.parallel.user_code import user_error  # with the parser of Python

    return user_error(f"recipe {family}", what, error)


def recipes(family: str | None = None) -> list[Recipe]:
    """Return every recipe, or that of a family; log a warning for each that cannot be loaded."""
    loaded = []
    for each in families() if family is None else (family,):
        try:
            loaded.append(load_recipe(each))
        except RldsError as error:
            logger.warning("%s", error)
    return loaded


@dataclass(frozen=True, eq=False)  # equal as mappings are
class Catalogue(Mapping[str, CatalogueEntry]):
    """The entries of a family by name; an entry is built when it is read."""

    recipe: Recipe
    shipped: Entries
    fetched: Mapping[str, CatalogueEntry]

    def __getitem__(self, name: str) -> CatalogueEntry:
        if name in self.fetched:
            return self.fetched[name]
        if name not in self.shipped.names:
            raise KeyError(name)
        with _named(self.recipe):
            return self.shipped.build(name)

    def __contains__(self, name: object) -> bool:
        return name in self.fetched or name in self.shipped.names

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self.shipped.names, *self.fetched)))

    def __len__(self) -> int:
        return len({*self.shipped.names, *self.fetched})


def catalogue(recipe: Recipe, root: CacheRoot) -> Catalogue:
    """Return the entries of a family by name; fetched entries replace entries of the recipe."""
    with _named(recipe):
        shipped = recipe.datasets(None)
        if not isinstance(shipped, Entries):
            built = _by_name(shipped)
            shipped = Entries(built, built.__getitem__)
    return Catalogue(recipe, shipped, _fetched(recipe, root) if recipe.dynamic else {})


@contextmanager
def _named(recipe: Recipe) -> Iterator[None]:
    """Convert an exception of a recipe, which may be anyone's code, to an error that names it."""
    try:
        yield
    except Exception as error:
        raise _recipe_error(recipe.family, "cannot list its datasets", error) from error


def _fetched(recipe: Recipe, root: CacheRoot) -> dict[str, CatalogueEntry]:
    path = root.catalogue(recipe.family)
    try:
        return _by_name(decode(list[CatalogueEntry], json.loads(path.read_bytes())))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        logger.warning("%s is ignored: %s", path, error)
        return {}


def _by_name(entries: Iterable[CatalogueEntry]) -> dict[str, CatalogueEntry]:
    return {entry.name: entry for entry in entries}


def catalogues(root: CacheRoot, family: str | None = None) -> list[tuple[Recipe, Catalogue]]:
    """Return every recipe with its entries by name; log a warning for a recipe that fails."""
    listed = []
    for recipe in recipes(family):
        try:
            listed.append((recipe, catalogue(recipe, root)))
        except RldsError as error:
            logger.warning("%s", error)
    return listed


def refresh(recipe: Recipe, root: CacheRoot, web: Web) -> int:
    """Fetch the publisher's catalogue into the cache root; return the number of its entries."""
    entries = list(recipe.datasets(web))
    with replacing(root.catalogue(recipe.family)) as new:
        new.write_text(json.dumps(encode(entries)), encoding="utf-8")
    return len(entries)


def all_entries(
    root: CacheRoot, family: str | None = None
) -> dict[str, tuple[Recipe, CatalogueEntry]]:
    """Return ``{id: (recipe, entry)}`` of all families in order, or of one."""
    entries_by_id: dict[str, tuple[Recipe, CatalogueEntry]] = {}
    for recipe, entries in catalogues(root, family):
        try:
            entries_by_id |= {
                f"{recipe.family}/{name}": (recipe, entries[name]) for name in sorted(entries)
            }
        except RldsError as error:
            logger.warning("%s", error)
    return entries_by_id
