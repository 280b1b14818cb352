"""Variants of a dataset: ``ID~repaired`` is made of the same files, with exact repairs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from datasets_cli.recipe import Block, Description, Recipe, Source

if TYPE_CHECKING:
    from datasets_cli.audit.repairs import Repairs

SUFFIX = "~repaired"
REPAIRS = "repairs"
"""Where a manifest lists them: rule, version, what decided, and the steps of the file in runs."""


def recipe_of(recipe: Recipe, name: str) -> Recipe:
    """Return the recipe for a name; that of ``NAME~repaired`` repairs the rows that it reads."""
    if not name.endswith(SUFFIX):
        return recipe
    repaired, look = _Repaired(recipe), recipe.resources_at
    return replace(
        recipe,
        resources=lambda name, web: recipe.resources(name.removesuffix(SUFFIX), web),
        resources_at=look and (lambda name, place: look(name.removesuffix(SUFFIX), place)),
        references=lambda name: recipe.references(name.removesuffix(SUFFIX)),
        variant=lambda name, options: recipe.variant(name.removesuffix(SUFFIX), options) + SUFFIX,
        fallback=Recipe.fallback,
        describe=repaired.describe,
        blocks=repaired.blocks,
        deferred_frames=Recipe.deferred_frames,  # rows that have some are not repaired
        identity=(*recipe.identity, REPAIRS),
    )


@dataclass
class _Repaired:
    """The functions of a recipe for the datasets that are repaired."""

    recipe: Recipe
    _known: tuple[Source, Repairs] | None = None

    def describe(self, source: Source) -> Description:
        published, repairs = self._published(source), self._repairs(source)
        description = self.recipe.describe(published)
        notes = (*description.notes, *(f"repaired: {each}" for each in repairs.sentences))
        metadata = {**description.metadata, REPAIRS: repairs.entries}
        return replace(description, metadata=metadata, notes=notes)

    def blocks(self, source: Source) -> Iterator[Block]:
        return self._repairs(source).applied(self.recipe.blocks(self._published(source)))

    def _published(self, source: Source) -> Source:
        return replace(source, name=source.name.removesuffix(SUFFIX))

    def _repairs(self, source: Source) -> Repairs:
        """Return what is to be repaired, which a pass over all rows tells."""
        from datasets_cli.audit.repairs import repairs_of  # with numpy

        if self._known is None or self._known[0] != source:
            self._known = source, repairs_of(self.recipe, self._published(source))
        return self._known[1]
