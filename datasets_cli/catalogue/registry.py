"""Finding recipes and resolving what a user typed into one dataset.

The folder is the registry: every module of ``datasets_cli.recipes`` that does not begin with ``_``
is a family of that name and has a ``RECIPE``. Further folders come from ``$RLDS_RECIPES`` and the
user's configuration, further recipes from the entry point group ``datasets_cli.recipes``.
"""

from __future__ import annotations

import difflib
import fnmatch
import importlib
import importlib.metadata
import json
import logging
import pkgutil
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache

from datasets_cli.errors import OfflineError, RldsError, UnknownDataset, UsageError
from datasets_cli.recipe import CatalogueEntry, Recipe, Web
from datasets_cli.store.cache_root import CacheRoot, check_id

logger = logging.getLogger(__name__)

PACKAGE = "datasets_cli.recipes"
_VERSION = re.compile(r"-v(\d+)$")


@dataclass(frozen=True)
class Resolved:
    """One dataset that a recipe knows.

    Args:
        recipe: of its family.
        name: its name within the family.
        row: its row of the catalogue, or None for an unlisted one.
    """

    recipe: Recipe
    name: str
    row: CatalogueEntry | None

    @property
    def id(self) -> str:
        """``family/name``."""
        return f"{self.recipe.family}/{self.name}"


@cache
def families() -> tuple[str, ...]:
    """Return the names of all families, sorted.

    Raises:
        UsageError: two folders hold a recipe of the same name.
    """
    package = importlib.import_module(PACKAGE)
    names = [
        module.name
        for folder in package.__path__
        for module in pkgutil.iter_modules([folder])
        if not module.name.startswith("_")
    ]
    names += _entry_points()
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise UsageError(
            f"There are two recipes named {', '.join(sorted(twice))}; rename yours. "
            f"Searched: {', '.join(package.__path__)} and installed entry points."
        )
    return tuple(sorted(names))


@cache
def _entry_points() -> dict[str, importlib.metadata.EntryPoint]:
    """Return the recipes of other packages by family; asked once, for it reads every package."""
    return {point.name: point for point in importlib.metadata.entry_points(group=PACKAGE)}


@cache
def load_recipe(family: str) -> Recipe:
    """Return the recipe of a family.

    Raises:
        RldsError: its module cannot be imported or defines no recipe of that family.
    """
    point = _entry_points().get(family)
    try:
        recipe = point.load() if point else importlib.import_module(f"{PACKAGE}.{family}").RECIPE
    except (ImportError, AttributeError, SyntaxError) as error:
        raise RldsError(f"The recipe {family} cannot be loaded: {error}") from error
    if not isinstance(recipe, Recipe) or recipe.family != family:
        raise RldsError(f"The recipe {family} must define RECIPE, a Recipe with family={family!r}.")
    return recipe


def recipes() -> list[Recipe]:
    """Return every recipe that loads; one that does not is named in a warning."""
    loaded = []
    for family in families():
        try:
            loaded.append(load_recipe(family))
        except RldsError as error:
            logger.warning("%s", error)
    return loaded


def catalogue(recipe: Recipe, root: CacheRoot) -> dict[str, CatalogueEntry]:
    """Return a family's rows by name: those that ship, and over them those last fetched."""
    rows = {row.name: row for row in recipe.datasets(None)}
    if recipe.dynamic:
        try:
            entries = json.loads(root.catalogue(recipe.family).read_bytes())
            rows |= {entry["name"]: CatalogueEntry(**entry) for entry in entries}
        except FileNotFoundError:
            pass
        except (ValueError, TypeError, KeyError) as error:
            logger.warning("%s is ignored: %s", root.catalogue(recipe.family), error)
    return rows


def refresh(recipe: Recipe, root: CacheRoot, web: Web) -> int:
    """Fetch the publisher's catalogue, keep it under the cache root, return its number of rows."""
    rows = list(recipe.datasets(web))
    path = root.catalogue(recipe.family)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps([asdict(row) for row in rows], default=dict), encoding="utf-8")
    new.replace(path)
    return len(rows)


def all_rows(root: CacheRoot) -> dict[str, tuple[Recipe, CatalogueEntry]]:
    """Return ``{id: (recipe, row)}`` over all families, in order."""
    return {
        f"{recipe.family}/{name}": (recipe, row)
        for recipe in recipes()
        for name, row in sorted(catalogue(recipe, root).items())
    }


def resolve(
    text: str,
    root: CacheRoot,
    *,
    unlisted: bool = False,
    web: Web | None = None,
    options: Mapping[str, str] | None = None,
) -> Resolved:
    """Return the dataset that a user means.

    Args:
        text: an id, or a name without its family where that is unique; without ``-vN`` it means
            the newest version. A version that does not exist never means another one.
        root: the cache root, for cached catalogues.
        unlisted: also accept a name that is not in the catalogue, where the family allows it.
        web: lets a recipe ask its publisher for a name that is not in the catalogue.
        options: of the family, which make a variant of the dataset.

    Raises:
        UnknownDataset: with the nearest names.
        UsageError: the name exists in several families, or the options make no variant of it.
    """
    found = _find(text, root, unlisted, web)
    return replace(found, name=found.recipe.variant(found.name, options or {}))


def _find(text: str, root: CacheRoot, unlisted: bool, web: Web | None) -> Resolved:
    check_id(text)
    family, _, name = text.partition("/")
    if family in families() and name:
        recipe = load_recipe(family)
        rows = catalogue(recipe, root)
        found = _newest(name, rows)
        if found is not None:
            return Resolved(recipe, found, rows[found])
        row = recipe.find(name, None)
        if row is None and unlisted and recipe.unlisted:
            return Resolved(recipe, name, None)
        if row := row or _ask(recipe, name, web, rows, root):
            return Resolved(recipe, row.name, row)
        raise _unknown(text, [f"{family}/{name}" for name in rows])
    name, tilde, variant = text.partition("~")
    by_recipe = {recipe.family: (recipe, catalogue(recipe, root)) for recipe in recipes()}
    found_in = {
        family: found
        for family, (_, rows) in by_recipe.items()
        if (found := _newest(name, rows) or _with_versions(name, rows)) is not None
    }
    if len(found_in) > 1:
        listed = " or ".join(f"{family}/{name}" for family, name in found_in.items())
        raise UsageError(f"{text} could be {listed}. Write the family too.")
    if not found_in:
        ids = [f"{family}/{name}" for family, (_, rows) in by_recipe.items() for name in rows]
        raise _unknown(text, ids)
    (family, name), *_ = found_in.items()
    return _find(f"{family}/{name}{tilde}{variant}", root, unlisted, web)


def _ask(
    recipe: Recipe, name: str, web: Web | None, rows: Mapping[str, CatalogueEntry], root: CacheRoot
) -> CatalogueEntry | None:
    """Return what a name outside the catalogue means; where nobody answers, its highest ``@N``."""
    try:
        return recipe.find(name, web) if web else _highest(recipe, name, rows, root)
    except OfflineError:
        if row := _highest(recipe, name, rows, root):
            return row
        raise


def _highest(
    recipe: Recipe, name: str, rows: Mapping[str, CatalogueEntry], root: CacheRoot
) -> CatalogueEntry | None:
    """Return the highest version ``name@N`` in the catalogue or installed."""
    family = f"{recipe.family}/"
    here = (id.removeprefix(family) for id in root.installed() if id.startswith(family))
    parts = (known.rpartition("@") for known in (*rows, *here))
    versions = [int(version) for base, _, version in parts if base == name and version.isdecimal()]
    return recipe.find(f"{name}@{max(versions)}", None) if versions else None


def _with_versions(name: str, rows: Iterable[str]) -> str | None:
    """Return a name that stands for its versions ``name@N``; which one, its publisher says."""
    return name if any(row.startswith(f"{name}@") for row in rows) else None


def match(patterns: Iterable[str], ids: Iterable[str]) -> list[str]:
    """Return the ids that fit any of the globs, with or without their family, in order."""
    patterns = list(patterns)
    return [
        id
        for id in ids
        if any(
            fnmatch.fnmatchcase(id, pattern) or fnmatch.fnmatchcase(id.partition("/")[2], pattern)
            for pattern in patterns
        )
    ]


def is_glob(text: str) -> bool:
    """Tell whether a text is a pattern rather than a name."""
    return any(character in text for character in "*?[")


def _newest(name: str, rows: Mapping[str, CatalogueEntry]) -> str | None:
    if name in rows:
        return name
    if _VERSION.search(name):
        return None
    versions = [
        (int(match[1]), row)
        for row in rows
        if (match := _VERSION.search(row)) and row[: match.start()] == name
    ]
    return max(versions)[1] if versions else None


def _unknown(text: str, ids: list[str]) -> UnknownDataset:
    names = {id.partition("/")[2]: id for id in ids}
    near = [names[name] for name in difflib.get_close_matches(text, names, n=3, cutoff=0.5)]
    near += difflib.get_close_matches(text, ids, n=3, cutoff=0.5)
    near = list(dict.fromkeys(near))[:3]
    hint = f" Did you mean {', '.join(near)}?" if near else ""
    return UnknownDataset(f"{text} is not a known dataset.{hint} See: rlds list")
