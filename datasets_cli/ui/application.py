"""The application: every address, and what becomes of errors.

    /                                        /api/catalogue
    /d/{id}                                  /api/d/{id}/stats, /api/d/{id}/...
    /d/{id}/trajectories[/{k}]
    /compare?a=&b=   /activity   /static/{file}

An id stands in an address unchanged, with its slashes. What follows it ends the address, and the
longer address wins: /d/a/b/trajectories are the trajectories of a/b. Nothing else of an address is
ever part of a path on the disk.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from datasets_cli.errors import (
    DatasetNotInstalled,
    IntegrityError,
    RldsError,
    UnknownDataset,
    UsageError,
)
from datasets_cli.ui.local_page import FOLDER, LocalPage, json_response, page_of

ROUTES = "datasets_cli.ui.routes"
STATUS = {UnknownDataset: 404, DatasetNotInstalled: 404, UsageError: 400, IntegrityError: 409}
"""The HTTP status of each error; any other is 409, because the disk may change."""


def application(page: LocalPage) -> Starlette:
    """Return the web application of a page, which ``guard`` protects."""
    static = Mount("/static", StaticFiles(directory=FOLDER / "static"))
    app = Starlette(
        routes=[*_routes(), static],
        exception_handlers={
            RldsError: _failed,
            OSError: _failed,
            HTTPException: _failed,
            Exception: _failed,
        },
    )
    app.state.page = page
    return app


def _routes() -> list[Route]:
    """Return the routes of all files in ``routes/``, the longest first."""
    names = (each.name for each in pkgutil.iter_modules(import_module(ROUTES).__path__))
    routes = [route for name in names for route in import_module(f"{ROUTES}.{name}").ROUTES]
    return sorted(routes, key=lambda route: -len(route.path))


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
