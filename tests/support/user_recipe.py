"""Recipes of a user's own: as text, and of the functions that a test is about."""

from __future__ import annotations

from typing import Any

from datasets_cli.recipe import CatalogueEntry, Recipe

RECIPE = """
import numpy as np
from datasets_cli.recipe import Block, Recipe, CatalogueEntry

RECIPE = Recipe(
    family="{family}", version=1, title="mine", licence="", citation="", homepage="",
    datasets=lambda web: [
        *map(CatalogueEntry, ("one-v1", "one-v2", "one-v10", "hopper-medium-v2"))
    ],
    resources=lambda name, web: [],
    blocks=lambda source: iter([Block({{("observation",): np.arange(3.0)[:, None],
        ("action",): np.zeros(3), ("next", "reward"): np.ones(3)}})]),
)
"""


def recipe_of(name: str, **functions: Any) -> Recipe:
    """Return a recipe of one dataset, ``test/NAME``, of which nothing else is said."""
    words = dict.fromkeys(("title", "licence", "citation", "homepage"), "")
    return Recipe(
        family="test",
        version=1,
        datasets=lambda web: [CatalogueEntry(name)],
        resources=lambda name, web: [],
        **words,
        **functions,
    )
