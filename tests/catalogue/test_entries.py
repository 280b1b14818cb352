"""A family's catalogue, shipped and fetched."""

from __future__ import annotations

from dataclasses import replace

from datasets_cli.catalogue.entries import catalogue, load_recipe, refresh
from datasets_cli.recipe import CatalogueEntry
from datasets_cli.store.cache_root import CacheRoot


def test_a_refreshed_catalogue_is_kept_and_a_damaged_one_ignored(root: CacheRoot) -> None:
    minari = load_recipe("minari")
    fresh = replace(
        minari,
        datasets=lambda web: (
            [CatalogueEntry("new-v0", size=5)] if web else [CatalogueEntry("old-v0")]
        ),
    )
    assert refresh(fresh, root, web=object()) == 1  # type: ignore[arg-type]
    assert sorted(catalogue(fresh, root)) == ["new-v0", "old-v0"]
    root.catalogue("minari").write_text("{")
    assert sorted(catalogue(fresh, root)) == ["old-v0"]
