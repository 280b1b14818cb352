"""One trajectory: its curves, frames and steps, as a page and as single responses."""

from __future__ import annotations

import math
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from datasets_cli.schema.columns import REWARD, TERMINATED, TRUNCATED, show_key
from datasets_cli.schema.texts import AnyColumn
from datasets_cli.store.arrays import DatasetArrays
from datasets_cli.ui.curves import (
    MOST_POINTS,
    Curves,
    curve_columns,
    curves_of,
    frame_columns,
    frame_png,
)
from datasets_cli.ui.local_page import LocalPage, json_response, page_of, whole_number
from datasets_cli.verbs.frames import pictures_of
from datasets_cli.verbs.peek import peek, trajectory_rows

FIRST_POINTS = 1_000
SHOWN_COLUMNS = 8
ENDS = ([*TERMINATED], [*TRUNCATED])
READ_NUMBERS = 64
"""Of a row of a column, beyond which a step shows the type and the shape."""
STEPS = 50
STEP_BYTES = 1 << 20


def trajectory(request: Request) -> Response:
    """Show one trajectory; its first curves and values come with the page."""
    page, dataset, number = _requested(request)
    length = len(trajectory_rows(dataset, number))
    step = min(whole_number(request, "t", 0), length - 1)
    curves = _curves(request, dataset, number, FIRST_POINTS)
    return page.render(
        request,
        "trajectory.html",
        base="base.html",
        static="/static/",
        links=_links(dataset, number),
        **page_values(page, dataset, number, curves, step),
    )


def page_values(
    page: LocalPage,
    dataset: DatasetArrays,
    number: int,
    curves: Curves,
    step: int,
    most_steps: int = STEPS,
) -> dict[str, Any]:
    """Return the values of the page of a trajectory, except for links."""
    part = part_size(dataset, most_steps)
    ends = steps_of(page, dataset, number, curves.length - 1, 1)["columns"]
    frames = frame_columns(dataset.manifest)
    data = {
        "address": f"/api/d/{dataset.id}/trajectories/{number}",
        "step": step,
        "columns": [*curves.columns],
        "curves": curves.to_json(),
        "steps": steps_of(page, dataset, number, step - step % part, part),
        "part": part,
        "frames": frames,
        "stride": 1,
        "ends": [
            each["key"][-1]
            for each in ends
            if each["key"] in ENDS and str(True) in str(each["values"])
        ],
    }
    notes = pictures_of(dataset, number, frames[0]).notes if frames else ()
    return {
        "id": dataset.id,
        "number": number,
        "data": data,
        "names": [*curve_columns(dataset)],
        "notes": [*curves.notes, *notes],
    }


def _links(dataset: DatasetArrays, number: int) -> dict[str, str]:
    """Return the addresses that a page of a trajectory leads to; empty where there is none."""
    every, last = f"/d/{dataset.id}/trajectories", dataset.num_trajectories - 1
    return {
        "dataset": f"/d/{dataset.id}",
        "all": every,
        "before": f"{every}/{number - 1}" if number else "",
        "after": f"{every}/{number + 1}" if number < last else "",
        "columns": f"{every}/{number}",
    }


def first_columns(dataset: DatasetArrays) -> list[str]:
    """Return the columns whose curves are shown where none are named."""
    names = curve_columns(dataset)
    order = [show_key(REWARD), "action", "observation"]
    ranks = {
        name: next((k for k, each in enumerate(order) if f"{name}.".startswith(f"{each}.")), 3)
        for name in names
    }
    chosen = [name for name in sorted(names, key=ranks.__getitem__) if ranks[name] < 3]
    return (chosen or [*names])[:SHOWN_COLUMNS]


def part_size(dataset: DatasetArrays, most: int = STEPS) -> int:
    """Return how many steps come at once, so that wide ones are few."""
    row_bytes = sum(8 * math.prod(each.shape) for each in _step_columns(dataset))
    return max(1, min(most, STEP_BYTES // row_bytes))


def steps_of(
    page: LocalPage, dataset: DatasetArrays, number: int, start: int, count: int
) -> dict[str, Any]:
    """Return steps of a trajectory as ``rlds peek --json`` does, and which step is the first."""
    peeked = peek(
        dataset.id,
        trajectory=number,
        start=start,
        n=count,
        columns=[show_key(each.key) for each in _step_columns(dataset)],
        config=page.config,
    )
    return {"first": start, **peeked.to_json()}


def _step_columns(dataset: DatasetArrays) -> list[AnyColumn]:
    """Return the columns of text or of few numbers, which a step shows whole."""
    return [each for each in dataset.manifest.all_columns if math.prod(each.shape) <= READ_NUMBERS]


def curves_data(request: Request) -> Response:
    """Give curves of a trajectory, from a step up to another."""
    _, dataset, number = _requested(request)
    return json_response(_curves(request, dataset, number, MOST_POINTS).to_json())


def steps_data(request: Request) -> Response:
    """Give steps of a trajectory as ``rlds peek --json`` does."""
    page, dataset, number = _requested(request)
    start, count = whole_number(request, "start", 0), whole_number(request, "count", STEPS, 1)
    return json_response(steps_of(page, dataset, number, start, part_size(dataset, count)))


def frame(request: Request) -> Response:
    """Give the frame of one step as PNG."""
    _, dataset, number = _requested(request)
    column = request.query_params.get("column") or next(iter(frame_columns(dataset.manifest)), "")
    png = frame_png(dataset, number, request.path_params["step"], column)
    return Response(png, media_type="image/png")


def _curves(request: Request, dataset: DatasetArrays, number: int, num_points: int) -> Curves:
    text = ",".join(request.query_params.getlist("columns"))
    names = [name for name in text.split(",") if name] or first_columns(dataset)
    start, stop = whole_number(request, "start", 0), whole_number(request, "stop", 0) or None
    points = whole_number(request, "points", num_points)
    return curves_of(dataset, number, names, (start, stop), points)


def _requested(request: Request) -> tuple[LocalPage, DatasetArrays, int]:
    page = page_of(request)
    return page, page.installed(request.path_params["id"]), request.path_params["number"]


_DATA = "/api/d/{id:dataset}/trajectories/{number:int}"
ROUTES = [
    Route("/d/{id:dataset}/trajectories/{number:int}", trajectory),
    Route(f"{_DATA}/curves", curves_data),
    Route(f"{_DATA}/steps", steps_data),
    Route(f"{_DATA}/frames/{{step:int}}.png", frame),
]
