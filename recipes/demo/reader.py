"""Reading a demo dataset as its family reads the published one."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import replace

from datasets_cli.recipe import Block, DeferredFrames, Description, Entries, Recipe, Source

from .catalogue import SAMPLES, files_of


def describe(source: Source) -> Description:
    """Return the description by the family's recipe, with the origin of the files."""
    recipe, published = _published(source)
    sample, found = SAMPLES[source.name], recipe.describe(published)
    metadata = {"licence": sample.licence, **found.metadata}
    metadata |= {"about": sample.about, "sample_of": sample.id}
    note = f"demo data, a sample of {sample.id}: {sample.about}"
    return replace(found, metadata=metadata, notes=(note, *found.notes))


def blocks(source: Source) -> Iterator[Block]:
    """Yield the rows that the family's recipe reads."""
    recipe, published = _published(source)
    yield from recipe.blocks(published)


def deferred_frames(source: Source) -> DeferredFrames | None:
    """Return the deferred frames of the family's recipe, if any."""
    recipe, published = _published(source)
    return recipe.deferred_frames(published)


def references(name: str) -> Mapping[str, str]:
    """Return the papers of the published dataset."""
    recipe, published = _recipe_and_name(name)
    return recipe.references(published)


def _published(source: Source) -> tuple[Recipe, Source]:
    """Return the family's recipe, and the files under the names of the published dataset."""
    recipe, name = _recipe_and_name(source.name)
    entries = recipe.datasets(None)
    assert isinstance(entries, Entries), "every family that ships has a table"
    entry = entries.get(name) or recipe.find(name, None)
    files = {row["filename"]: source.files[row["path"]] for row in files_of(source.name)}
    return recipe, Source(name, files, entry)


def _recipe_and_name(name: str) -> tuple[Recipe, str]:
    """Return the recipe and the name of the published dataset of a sample."""
    # Imported by name: `rlds list` would otherwise import the other recipes too.
    family, _, published = SAMPLES[name].id.partition("/")
    recipe: Recipe = importlib.import_module(f"datasets_cli.recipes.{family}").RECIPE
    return recipe, published
