"""The trajectories of a dataset: a table in the order of any column, and a part of it as JSON."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from datasets_cli.look.statistics import trajectory_table
from datasets_cli.look.summary import load_summary
from datasets_cli.look.trajectories.listing import ListedTrajectories, TrajectoriesCall, listed
from datasets_cli.page.local_page import LocalPage, json_response, page_of
from datasets_cli.page.numbers import whole_number
from datasets_cli.store.arrays import DatasetArrays

PART = 100
MOST_PART = 500
QUICK_ROWS = 1 << 20
"""Of a dataset whose returns are worked out for each answer, where none are kept."""


def trajectories(request: Request) -> Response:
    """Show trajectories in an order; the address has all of the table's state."""
    page, dataset = _asked(request)
    rows = _listed(request, page, dataset)
    return page.render(
        request,
        "trajectories.html",
        rows=rows,
        part=PART,
        note=_note(page, dataset),
        links=f"/d/{dataset.id}/trajectories/",
    )


def trajectories_data(request: Request) -> Response:
    """Give a part of the table as ``rlds trajectories --json`` does."""
    return json_response(_listed(request, *_asked(request)))


def known_columns(page: LocalPage, dataset: DatasetArrays) -> list[str]:
    """Return the columns of trajectories that are known without reading many rows."""
    names = [*trajectory_table(dataset, None)]
    return names if _are_kept(page, dataset) or len(dataset) <= QUICK_ROWS else names[:3]


def list_part(
    page: LocalPage, dataset: DatasetArrays, call: TrajectoriesCall
) -> ListedTrajectories:
    """Return a part of the table; nothing is written for it."""
    table = trajectory_table(dataset, page.root if _are_kept(page, dataset) else None)
    return listed(dataset.id, table, known_columns(page, dataset), call)


def _listed(request: Request, page: LocalPage, dataset: DatasetArrays) -> ListedTrajectories:
    call = TrajectoriesCall(
        dataset.id,
        n=min(whole_number(request, "count", PART, 1), MOST_PART),
        start=whole_number(request, "start", 0),
        sort=request.query_params.get("sort", "number"),
        descending=request.query_params.get("descending", "") in ("1", "true"),
    )
    return list_part(page, dataset, call)


def _asked(request: Request) -> tuple[LocalPage, DatasetArrays]:
    page = page_of(request)
    return page, page.installed(request.path_params["id"])


def _are_kept(page: LocalPage, dataset: DatasetArrays) -> bool:
    return load_summary(page.root, dataset.manifest.content) is not None


def _note(page: LocalPage, dataset: DatasetArrays) -> str:
    """Return what is said of columns that are not known yet."""
    names, known = [*trajectory_table(dataset, None)], known_columns(page, dataset)
    left = ", ".join(name for name in names if name not in known)
    return f"Not known yet: {left}. Run: rlds stats {dataset.id}" if left else ""


ROUTES = [
    Route("/d/{id:dataset}/trajectories", trajectories),
    Route("/api/d/{id:dataset}/trajectories", trajectories_data),
]
