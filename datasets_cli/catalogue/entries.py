"""The catalogue of a family: the entries that ship with its recipe, and those last fetched."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict

from datasets_cli.catalogue.registry import failed, recipes
from datasets_cli.errors import RldsError
from datasets_cli.recipe import CatalogueEntry, Recipe, Web
from datasets_cli.sources.disk import replace_file
from datasets_cli.store.cache_root import CacheRoot

logger = logging.getLogger(__name__)


def catalogue(recipe: Recipe, root: CacheRoot) -> dict[str, CatalogueEntry]:
    """Return a family's entries by name: those that ship, and over them those last fetched."""
    try:
        entries = {entry.name: entry for entry in recipe.datasets(None)}
    except Exception as error:  # it is anyone's code, as in load_recipe
        raise failed(recipe.family, "cannot list its datasets", error) from error
    if recipe.dynamic:
        try:
            fetched = json.loads(root.catalogue(recipe.family).read_bytes())
            entries |= {values["name"]: CatalogueEntry(**values) for values in fetched}
        except FileNotFoundError:
            pass
        except (ValueError, TypeError, KeyError) as error:
            logger.warning("%s is ignored: %s", root.catalogue(recipe.family), error)
    return entries


def catalogues(root: CacheRoot) -> list[tuple[Recipe, dict[str, CatalogueEntry]]]:
    """Return every recipe with its entries by name; one that fails is named in a warning."""
    found = []
    for recipe in recipes():
        try:
            found.append((recipe, catalogue(recipe, root)))
        except RldsError as error:
            logger.warning("%s", error)
    return found


def refresh(recipe: Recipe, root: CacheRoot, web: Web) -> int:
    """Fetch the publisher's catalogue, keep it under the cache root, return how many it has."""
    entries = list(recipe.datasets(web))
    path = root.catalogue(recipe.family)
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps([asdict(entry) for entry in entries], default=dict), encoding="utf-8")
    replace_file(new, path)
    return len(entries)


def all_entries(root: CacheRoot) -> dict[str, tuple[Recipe, CatalogueEntry]]:
    """Return ``{id: (recipe, entry)}`` over all families, in order."""
    return {
        f"{recipe.family}/{name}": (recipe, entry)
        for recipe, entries in catalogues(root)
        for name, entry in sorted(entries.items())
    }
