"""One dataset: its card, columns, returns and lengths, and how to load it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from datasets_cli.look.info import dataset_info
from datasets_cli.page.local_page import page_of


def dataset(request: Request) -> Response:
    """Show what is known of a dataset, installed or not."""
    page = page_of(request)
    info = dataset_info(page.known_id(request.path_params["id"]), config=page.config)
    return page.render(request, "dataset.html", info=info)


ROUTES = [Route("/d/{id:dataset}", dataset)]
