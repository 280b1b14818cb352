"""The catalogue: every known dataset, searched, filtered and ordered."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from datasets_cli.catalogue.registry import families
from datasets_cli.ui.local_page import json_response, page_of
from datasets_cli.verbs.list import FIELDS, STATES, list_datasets

SIZES = ("1MB", "10MB", "100MB", "1GB", "10GB")
ORDERS = [name for name in FIELDS if name != "family"]


def catalogue(request: Request) -> Response:
    """Show the datasets that the address asks for; all without a question."""
    page, query = page_of(request), request.query_params
    filters = [f"{name}={query[name]}" for name in ("family", "state") if query.get(name)]
    filters += [f"size<={query['size']}"] if query.get("size") else []
    sort = query.get("sort") or None
    records = list_datasets(filter=filters, sort=sort, config=page.config)
    words = query.get("q", "").casefold().split()
    records = [each for each in records if all(word in each.id.casefold() for word in words)]
    choices = {"family": families(), "state": STATES, "size": SIZES, "sort": ORDERS}
    return page.render(
        request, "catalogue.html", records=records, choices=choices, query=dict(query)
    )


def catalogue_data(request: Request) -> Response:
    """Give all datasets as ``rlds list --json`` does."""
    return json_response(list_datasets(config=page_of(request).config))


ROUTES = [Route("/", catalogue), Route("/api/catalogue", catalogue_data)]
