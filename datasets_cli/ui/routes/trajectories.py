"""The trajectories of a dataset: a table in the order of any column, and a part of it as JSON."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from datasets_cli.project.statistics import trajectory_table
from datasets_cli.store.arrays import DatasetArrays
from datasets_cli.ui.local_page import LocalPage, json_response, page_of, whole_number
from datasets_cli.verbs.trajectories import ListedTrajectories, TrajectoriesCall, listed

PART = 100
MOST_PART = 500
QUICK_ROWS = 1 << 20
"""Of a dataset whose returns are worked out for each answer, where none are kept."""


def trajectories(request: Request) -> Response:
    """Show trajectories in an order; the address has all of the table's state."""
    page, rows, names = page_of(request), *_requested(request)
    left = ", ".join(name for name in names if name not in rows.columns)
    note = f"Not known yet: {left}. Run: rlds stats {rows.id}" if left else ""
    links = f"/d/{rows.id}/trajectories/"
    return page.render(request, "trajectories.html", rows=rows, part=PART, note=note, links=links)


def trajectories_data(request: Request) -> Response:
    """Give a part of the table as ``rlds trajectories --json`` does."""
    return json_response(_requested(request)[0])


def list_part(
    page: LocalPage, dataset: DatasetArrays, call: TrajectoriesCall
) -> tuple[ListedTrajectories, list[str]]:
    """Return a part of the table, and the names of all of its columns."""
    table = trajectory_table(dataset, page.root)
    names, is_quick = [*table], len(dataset) <= QUICK_ROWS
    known = names if is_quick or page.has_statistics(dataset.manifest) else names[:3]
    return listed(dataset.id, table, known, call), names


def _requested(request: Request) -> tuple[ListedTrajectories, list[str]]:
    page = page_of(request)
    dataset = page.installed(request.path_params["id"])
    call = TrajectoriesCall(
        dataset.id,
        n=min(whole_number(request, "count", PART, 1), MOST_PART),
        start=whole_number(request, "start", 0),
        sort=request.query_params.get("sort", "number"),
    )
    return list_part(page, dataset, call)


ROUTES = [
    Route("/d/{id:dataset}/trajectories", trajectories),
    Route("/api/d/{id:dataset}/trajectories", trajectories_data),
]
