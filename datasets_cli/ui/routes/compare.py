"""Two datasets side by side: how they differ, and how their returns and lengths do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from datasets_cli.core.progress import silent
from datasets_cli.errors import UsageError
from datasets_cli.ui.curves import Drawing, drawings_of
from datasets_cli.ui.local_page import LocalPage, is_small, page_of
from datasets_cli.verbs.diff import compare_datasets, compare_manifests
from datasets_cli.verbs.difference import DatasetDifference


def compare(request: Request) -> Response:
    """Show how two installed datasets differ; without two, what can be chosen."""
    page, query = page_of(request), request.query_params
    ids = [query.get(name, "") for name in ("a", "b")]
    values: dict[str, Any] = {"installed": [*page.root.installed()], "ids": ids}
    if all(ids):
        difference, missing = _difference(page, *ids)
        drawings = [*_drawings(page, *difference.ids)]
        values |= {"difference": difference, "missing": missing, "drawings": drawings}
    return page.render(request, "compare.html", **values)


def _difference(page: LocalPage, id: str, other: str) -> tuple[DatasetDifference, str]:
    """Return the difference of two datasets, and why no row of them is compared, if none is."""
    manifests = [page.installed(each).manifest for each in (id, other)]
    command = f"rlds diff {id} {other}"
    try:
        if not is_small(*manifests):
            raise UsageError(
                "The datasets have too many rows to compare on a page.",
                advice=f"Run: {command}",
            )
        return compare_datasets(id, other, progress=silent, config=page.config), ""
    except UsageError as error:
        return compare_manifests(*manifests), str(error)


def _drawings(page: LocalPage, *ids: str) -> Iterator[Drawing | str]:
    """Yield plots of both datasets, where the tables that they come from are there or quick."""
    for each in ids:
        if not page.are_statistics_quick(page.installed(each).manifest):
            yield f"{each} has no statistics yet. Run: rlds stats {each}"
            return
    yield from drawings_of(page, ("returns", "lengths", "ends"), *ids)


ROUTES = [Route("/compare", compare)]
