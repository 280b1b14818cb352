"""A recipe of a user's own, as text."""

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
