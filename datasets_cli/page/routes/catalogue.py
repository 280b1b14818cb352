"""The catalogue: every known dataset, searched, filtered and ordered."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from datasets_cli.look.list import list_datasets
from datasets_cli.page.local_page import json_response, page_of


def catalogue(request: Request) -> Response:
    """Show all datasets."""
    page = page_of(request)
    return page.render(request, "catalogue.html", records=list_datasets(config=page.config))


def catalogue_data(request: Request) -> Response:
    """Give all datasets as ``rlds list --json`` does."""
    return json_response(list_datasets(config=page_of(request).config))


ROUTES = [Route("/", catalogue), Route("/api/catalogue", catalogue_data)]
