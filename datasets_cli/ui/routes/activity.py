"""Running and interrupted downloads, conversions and runs of preprocess; nothing is steered."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.ui.local_page import json_response, page_of
from datasets_cli.verbs.du import activity_in


def show_activity(request: Request) -> Response:
    """Show running and interrupted work."""
    page = page_of(request)
    return page.render(request, "activity.html", work=activity_in(CacheRoot(page.config.root)))


def activity_data(request: Request) -> Response:
    """Give the list ``activity`` of ``rlds du --json``."""
    return json_response(activity_in(CacheRoot(page_of(request).config.root)))


ROUTES = [Route("/activity", show_activity), Route("/api/activity", activity_data)]
