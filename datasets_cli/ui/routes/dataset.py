"""One dataset: its card, findings of the audit, columns, returns, and how to load it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from datasets_cli.audit.rules.finding import Finding
from datasets_cli.core.progress import silent
from datasets_cli.errors import UsageError
from datasets_cli.schema.trajectories import trajectory_of
from datasets_cli.ui.curves import drawings_of
from datasets_cli.ui.local_page import LocalPage, json_response, page_of
from datasets_cli.verbs.card import Code, Part, heads_of, parts_of_card
from datasets_cli.verbs.cite import cite
from datasets_cli.verbs.info import DatasetInfo, dataset_info
from datasets_cli.verbs.plot import KINDS
from datasets_cli.verbs.stats import DatasetStatistics, StatsCall, statistics_of

ARRAYS = """from datasets_cli import ExperienceReplay

arrays = ExperienceReplay("{}").to_numpy(rows=range(100))"""
"""The third way to load a dataset, after the two on its card."""

Place = tuple[int, int, int]


def dataset(request: Request) -> Response:
    """Show the metadata of a dataset, installed or not."""
    page = page_of(request)
    values = dataset_values(page, page.known_id(request.path_params["id"]))
    return page.render(request, "dataset.html", **values)


def dataset_values(page: LocalPage, id: str) -> dict[str, Any]:
    """Return the values of the page of a dataset."""
    info = dataset_info(id, config=page.config)
    statistics, missing = None, ""
    if info.installed:
        try:
            statistics = _statistics(page, info.id)
        except UsageError as error:
            missing = str(error)
    parts = parts_of_card(info, statistics, str(cite(info.id, config=page.config)))
    return {
        "info": info,
        "sections": [*_sections(parts, info)],
        "missing": missing,
        "findings": [*_findings(page, info)],
        "drawings": [*drawings_of(page, KINDS, info.id)] if statistics else [],
        "heads_of": heads_of,
    }


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


ROUTES = [Route("/d/{id:dataset}", dataset), Route("/api/d/{id:dataset}/stats", stats)]
