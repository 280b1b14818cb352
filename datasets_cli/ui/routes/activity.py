"""What is under way: downloads, conversions and runs of preprocess. Nothing here steers them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from datasets_cli.ui.local_page import json_response, page_of
from datasets_cli.verbs.activity import activity


def show_activity(request: Request) -> Response:
    """Show what is under way, or was interrupted."""
    page = page_of(request)
    return page.render(request, "activity.html", work=activity(config=page.config))


def activity_data(request: Request) -> Response:
    """Give the same as ``rlds activity --json``."""
    return json_response(activity(config=page_of(request).config))


ROUTES = [Route("/activity", show_activity), Route("/api/activity", activity_data)]
