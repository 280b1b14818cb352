"""The application: every address, and what becomes of errors.

    /                                        /api/catalogue
    /d/{id}                                  /api/d/{id}/stats, /api/d/{id}/...
    /d/{id}/trajectories[/{k}]
    /compare?a=&b=   /activity   /static/{file}

Ids appear in addresses unescaped, with their slashes. What follows it ends the address, and the
longer address wins: /d/a/b/trajectories are the trajectories of a/b. Nothing else of an address is
ever part of a path on the disk.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import numpy as np
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from datasets_cli.audit.rules.finding import Finding
from datasets_cli.catalogue.entries import families
from datasets_cli.core.progress import silent
from datasets_cli.errors import (
    DatasetNotInstalled,
    IntegrityError,
    RldsError,
    UnknownDataset,
    UsageError,
)
from datasets_cli.project.statistics import trajectory_table
from datasets_cli.schema.columns import REWARD, TERMINATED, TRUNCATED, show_key
from datasets_cli.schema.texts import AnyColumn
from datasets_cli.schema.trajectories import trajectory_of
from datasets_cli.store.arrays import DatasetArrays
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.ui.curves import (
    MOST_POINTS,
    Curves,
    Drawing,
    curve_columns,
    curves_of,
    drawings_of,
    frame_columns,
    frame_png,
)
from datasets_cli.ui.local_page import (
    FOLDER,
    LocalPage,
    is_small,
    json_response,
    page_of,
    whole_number,
)
from datasets_cli.verbs.card import Code, Part, heads_of, parts_of_card
from datasets_cli.verbs.cite import cite
from datasets_cli.verbs.diff import compare_datasets, compare_manifests
from datasets_cli.verbs.difference import DatasetDifference
from datasets_cli.verbs.du import activity_in
from datasets_cli.verbs.frames import pictures_of
from datasets_cli.verbs.info import DatasetInfo, dataset_info
from datasets_cli.verbs.list import FIELDS, STATES, list_datasets
from datasets_cli.verbs.peek import peek, trajectory_rows
from datasets_cli.verbs.plot import KINDS
from datasets_cli.verbs.stats import DatasetStatistics, StatsCall, statistics_of
from datasets_cli.verbs.trajectories import ListedTrajectories, TrajectoriesCall, listed

STATUS = {UnknownDataset: 404, DatasetNotInstalled: 404, UsageError: 400, IntegrityError: 409}
"""The HTTP status of each error; any other is 409, because the disk may change."""
SIZES = ("1MB", "10MB", "100MB", "1GB", "10GB")
ORDERS = [name for name in FIELDS if name != "family"]
DATASETS = 50
"""Of the catalogue, on one page."""
ARRAYS = """from datasets_cli import ExperienceReplay

arrays = ExperienceReplay("{}").to_numpy(rows=range(100))"""
"""The third way to load a dataset, after the two on its card."""
FIRST_COLUMNS = 8
SHOWN_NUMBERS = 4
"""Of a row of a column in the table of first rows: the first three and the last."""
PART = 100
MOST_PART = 500
QUICK_ROWS = 1 << 20
"""Maximum rows of a dataset whose returns are computed for each request, if not cached."""
FIRST_POINTS = 1_000
SHOWN_COLUMNS = 8
ENDS = ([*TERMINATED], [*TRUNCATED])
READ_NUMBERS = 64
"""Maximum numbers of a row that a step shows; larger rows show dtype and shape."""
STEPS = 50
STEP_BYTES = 1 << 20


def application(page: LocalPage) -> Starlette:
    """Return the web application of a page, which ``guard`` protects."""
    static = Mount("/static", StaticFiles(directory=FOLDER / "static"))
    app = Starlette(
        routes=[*sorted(ROUTES, key=lambda route: -len(route.path)), static],
        exception_handlers={
            RldsError: _failed,
            OSError: _failed,
            HTTPException: _failed,
            Exception: _failed,
        },
    )
    app.state.page = page
    return app


def _failed(request: Request, error: Exception) -> Response:
    """Return an error as one sentence, as a page or as JSON."""
    status, text = _message(error)
    if request.url.path.startswith("/api/"):
        return json_response({"error": {"type": type(error).__name__, "message": text}}, status)
    return page_of(request).render(request, "error.html", status, message=text)


def _message(error: Exception) -> tuple[int, str]:
    """Return the status and the sentence of an error."""
    if isinstance(error, HTTPException):
        known = {404: "This page does not exist.", 405: "This page can only be read."}
        return error.status_code, known.get(error.status_code, f"{error.detail}.")
    if isinstance(error, RldsError):
        return next((code for kind, code in STATUS.items() if isinstance(error, kind)), 409), str(
            error
        )
    if isinstance(error, OSError):
        why = error.strerror or type(error).__name__
        return 409, f"A file changed while it was read ({why}). Load the page again."
    return 500, f"Unexpected {type(error).__name__}. The terminal of rlds ui has more."


def show_activity(request: Request) -> Response:
    """Show running and interrupted work."""
    page = page_of(request)
    return page.render(request, "activity.html", work=activity_in(CacheRoot(page.config.root)))


def activity_data(request: Request) -> Response:
    """Return the list ``activity`` of ``rlds du --json``."""
    return json_response(activity_in(CacheRoot(page_of(request).config.root)))


def catalogue(request: Request) -> Response:
    """Show the datasets of a search, installed ones first; without a search also the families."""
    page, start = page_of(request), whole_number(request, "start", 0)
    query = {name: text for name, text in request.query_params.items() if text and name != "start"}
    filters = [f"{name}={query[name]}" for name in ("family", "state") if name in query]
    filters += [f"size<={query['size']}"] if "size" in query else []
    records = list_datasets(filter=filters, sort=query.get("sort"), config=page.config)
    words = query.get("q", "").casefold().split()
    records = [each for each in records if all(word in each.id.casefold() for word in words)]
    installed = [each for each in records if each.state != "not installed"]
    counts = [Counter(each.id.partition("/")[0] for each in ids) for ids in (records, installed)]
    shown = records if query else installed
    if "sort" not in query:
        shown = sorted(shown, key=lambda each: each.state == "not installed")
    return page.render(
        request,
        "catalogue.html",
        query=query,
        choices={"family": families(), "state": STATES, "size": SIZES, "sort": ORDERS},
        count=len(shown),
        records=shown[start : start + DATASETS],
        parts={
            name: f"/?{urlencode(query | {'start': max(0, first)})}"
            for name, first in (("Before", start - DATASETS), ("After", start + DATASETS))
            if -DATASETS < first < len(shown)
        },
        families=[] if query else [(name, *(of[name] for of in counts)) for name in families()],
    )


def catalogue_data(request: Request) -> Response:
    """Give all datasets as ``rlds list --json`` does."""
    return json_response(list_datasets(config=page_of(request).config))


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


Place = tuple[int, int, int]


def dataset(request: Request) -> Response:
    """Show the metadata of a dataset, installed or not."""
    page = page_of(request)
    values = dataset_values(page, page.known_id(request.path_params["id"]))
    return page.render(request, "dataset.html", **values)


def dataset_values(page: LocalPage, id: str) -> dict[str, Any]:
    """Return the values of the page of a dataset."""
    info = dataset_info(id, config=page.config)
    statistics, missing, rows, frame = None, "", list[dict[str, str]](), ""
    if info.installed:
        opened = page.installed(info.id)
        rows = _first_rows(page, opened)
        frame = next(iter(frame_columns(opened.manifest)), "")
        try:
            statistics = _statistics(page, info.id)
        except UsageError as error:
            missing = str(error)
    parts = parts_of_card(info, statistics, str(cite(info.id, config=page.config)))
    return {
        "info": info,
        "sections": [*_sections(parts, info)],
        "missing": missing,
        "first_rows": rows,
        "frame": frame,
        "findings": [*_findings(page, info)],
        "drawings": [*drawings_of(page, KINDS, info.id)] if statistics else [],
        "heads_of": heads_of,
    }


def _first_rows(page: LocalPage, dataset: DatasetArrays) -> list[dict[str, str]]:
    """Return the first five rows as texts: observations, actions, rewards and flags."""
    frames = frame_columns(dataset.manifest)
    order = [("observation",), ("action",), REWARD, TERMINATED, TRUNCATED]
    keys = [each.key for each in dataset.manifest.all_columns]
    names = [show_key(key) for first in order for key in keys if key[: len(first)] == first]
    names = [name for name in names if name not in frames][:FIRST_COLUMNS]
    if not (names and len(dataset)):
        return []
    peeked = peek(dataset.id, columns=names, config=page.config)
    return [
        {"row": str(number), **{each.name: _cell(each.values[number]) for each in peeked.columns}}
        for number in range(len(peeked.trajectories))
    ]


def _cell(values: Any) -> str:
    """Return the numbers or texts of a row of a column, with four digits, the middle left out."""
    listed = np.asarray(values, object).ravel().tolist()
    texts = [f"{each:.4g}" if isinstance(each, float) else str(each)[:60] for each in listed]
    if len(texts) > SHOWN_NUMBERS:
        texts[3:-1] = ["…"]
    return ", ".join(texts)


def stats(request: Request) -> Response:
    """Give statistics as ``rlds stats --json`` does."""
    columns = request.query_params.get("columns", "")
    return json_response(_statistics(page_of(request), request.path_params["id"], columns))


def _statistics(page: LocalPage, id: str, columns: str = "") -> DatasetStatistics:
    """Return statistics that are kept, or that a page may wait for."""
    manifest, command = page.installed(id).manifest, f"rlds stats {id}"
    if not page.are_statistics_quick(manifest):
        raise UsageError(f"{id} has no statistics yet.", id=id, advice=f"Run: {command}")
    named = [name for name in columns.split(",") if name]
    call = StatsCall(id, columns=named, progress=silent, config=page.config)
    return statistics_of(call, page.root)


def _findings(page: LocalPage, info: DatasetInfo) -> Iterator[tuple[Finding, list[Place]]]:
    """Yield the findings of the audit with their rows: number, trajectory and step."""
    findings = info.audited.findings if info.audited else ()
    starts = page.installed(info.id).starts if findings and info.installed else np.zeros(1, int)
    for finding in findings:
        rows = np.array([row for row in finding.rows if 0 <= row < starts[-1]], int)
        numbers = trajectory_of(starts, rows)
        places = zip(
            rows.tolist(), numbers.tolist(), (rows - starts[numbers]).tolist(), strict=True
        )
        yield finding, [*places]


def _sections(
    parts: Iterator[tuple[str, Part]], info: DatasetInfo
) -> Iterator[tuple[str, list[Part]]]:
    """Yield the parts of a card below their headings, and one more way to load the data."""
    heading, below = "", list[Part]()
    for title, part in parts:
        if title:
            yield heading, below
            heading, below = title, []
        below += [part] if part else []
    yield heading, [*below, Code("python", ARRAYS.format(info.id))]


def trajectories(request: Request) -> Response:
    """Show trajectories in an order; the address has all of the table's state."""
    page, rows, names = page_of(request), *_requested_part(request)
    left = ", ".join(name for name in names if name not in rows.columns)
    note = f"Not known yet: {left}. Run: rlds stats {rows.id}" if left else ""
    links = f"/d/{rows.id}/trajectories/"
    return page.render(request, "trajectories.html", rows=rows, part=PART, note=note, links=links)


def trajectories_data(request: Request) -> Response:
    """Give a part of the table as ``rlds trajectories --json`` does."""
    return json_response(_requested_part(request)[0])


def list_part(
    page: LocalPage, dataset: DatasetArrays, call: TrajectoriesCall
) -> tuple[ListedTrajectories, list[str]]:
    """Return a part of the table, and the names of all of its columns."""
    table = trajectory_table(dataset, page.root)
    names, is_quick = [*table], len(dataset) <= QUICK_ROWS
    known = names if is_quick or page.has_statistics(dataset.manifest) else names[:4]
    return listed(dataset.manifest, table, known, call), names


def _requested_part(request: Request) -> tuple[ListedTrajectories, list[str]]:
    page = page_of(request)
    dataset = page.installed(request.path_params["id"])
    call = TrajectoriesCall(
        dataset.id,
        n=min(whole_number(request, "count", PART, 1), MOST_PART),
        start=whole_number(request, "start", 0),
        sort=request.query_params.get("sort", "number"),
    )
    return list_part(page, dataset, call)


def trajectory(request: Request) -> Response:
    """Show one trajectory; its first curves and values come with the page."""
    page, dataset, number = _requested_trajectory(request)
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
        "stepped": [
            name
            for name, column in curve_columns(dataset).items()
            if "int" in column.dtype and math.prod(column.shape) == 1
        ],
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
    _, dataset, number = _requested_trajectory(request)
    return json_response(_curves(request, dataset, number, MOST_POINTS).to_json())


def steps_data(request: Request) -> Response:
    """Give steps of a trajectory as ``rlds peek --json`` does."""
    page, dataset, number = _requested_trajectory(request)
    start, count = whole_number(request, "start", 0), whole_number(request, "count", STEPS, 1)
    return json_response(steps_of(page, dataset, number, start, part_size(dataset, count)))


def frame(request: Request) -> Response:
    """Give the frame of one step as PNG."""
    _, dataset, number = _requested_trajectory(request)
    column = request.query_params.get("column") or next(iter(frame_columns(dataset.manifest)), "")
    png = frame_png(dataset, number, request.path_params["step"], column)
    return Response(png, media_type="image/png")


def _curves(request: Request, dataset: DatasetArrays, number: int, num_points: int) -> Curves:
    text = ",".join(request.query_params.getlist("columns"))
    names = [name for name in text.split(",") if name] or first_columns(dataset)
    start, stop = whole_number(request, "start", 0), whole_number(request, "stop", 0) or None
    points = whole_number(request, "points", num_points)
    return curves_of(dataset, number, names, (start, stop), points)


def _requested_trajectory(request: Request) -> tuple[LocalPage, DatasetArrays, int]:
    page = page_of(request)
    return page, page.installed(request.path_params["id"]), request.path_params["number"]


_DATA = "/api/d/{id:dataset}/trajectories/{number:int}"


ROUTES = [
    Route("/activity", show_activity),
    Route("/api/activity", activity_data),
    Route("/", catalogue),
    Route("/api/catalogue", catalogue_data),
    Route("/compare", compare),
    Route("/d/{id:dataset}", dataset),
    Route("/api/d/{id:dataset}/stats", stats),
    Route("/d/{id:dataset}/trajectories", trajectories),
    Route("/api/d/{id:dataset}/trajectories", trajectories_data),
    Route("/d/{id:dataset}/trajectories/{number:int}", trajectory),
    Route(f"{_DATA}/curves", curves_data),
    Route(f"{_DATA}/steps", steps_data),
    Route(f"{_DATA}/frames/{{step:int}}.png", frame),
]
