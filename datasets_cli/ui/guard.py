"""The guard: checks every request before the page answers it, and adds headers to every answer.

Any website in the browser may send requests to this address, also under a name of its own that
points here, and so may any user of this machine. A request must therefore name the address that is
bound, come from no other site, only read, and bring the token: once in the address, then in a
cookie that no script and no other site gets.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from urllib.parse import urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "content-security-policy": (
        "default-src 'self'; base-uri 'none'; object-src 'none'; form-action 'self'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
UNSTORED, REVALIDATED = "no-store", "private, no-cache"
"""How browsers cache pages with data, and static files."""


class Guard:
    """An ASGI application in front of another one."""

    def __init__(self, app: ASGIApp, is_host: Callable[[str], bool], port: int, token: str) -> None:
        self._app, self._is_host, self._token = app, is_host, token
        self._cookie = f"rlds-{port}"  # a browser sends the cookies of a host to all its ports
        self._tickets: set[str] = set()

    def ticket(self) -> str:
        """Return a token for one use: other users see the arguments that a browser starts with."""
        ticket = secrets.token_urlsafe(32)
        self._tickets.add(ticket)
        return ticket

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        cache = REVALIDATED if scope["path"].startswith("/static/") else UNSTORED
        answer = self._refusal(Request(scope)) or self._app
        await answer(scope, receive, _with_headers(send, cache))

    def _refusal(self, request: Request) -> Response | None:
        """Return the answer to a request that the page must not see; None if it may."""
        if request.method not in ("GET", "HEAD"):
            text = "This page can only be read: GET is the only method."
            return _refused(text, 405, {"allow": "GET, HEAD"})
        if not _is_plain_path(request.scope):
            return _refused("This address has characters that no page has.", 400)
        if text := self._foreign_origin(request.headers):
            return _refused(text)
        if tokens := request.query_params.getlist("token"):
            return self._without_token(request, tokens[0])
        if not self._is_token(request.cookies.get(self._cookie, "")):
            text = "Open the address that rlds ui printed: it ends with the token of this run."
            return _refused(text)
        return None

    def _foreign_origin(self, headers: Headers) -> str:
        """Return why a request is of another site; empty if it is not."""
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_host(hosts[0].lower()):
            return "This page answers under the address alone that rlds ui printed."
        origins = {*headers.getlist("origin")} - {f"http://{hosts[0]}"}
        if origins or {*headers.getlist("sec-fetch-site")} - {"same-origin", "none"}:
            return "This page does not answer other sites, nor their links. Paste its address."
        return ""

    def _without_token(self, request: Request, token: str) -> Response:
        """Return a redirect to the address without its token, which becomes a cookie."""
        if token in self._tickets:  # 32 random bytes that are gone now: their time says nothing
            self._tickets.remove(token)
        elif not self._is_token(token):
            return _refused("The token in the address is not that of this run of rlds ui.")
        query = [pair for pair in request.query_params.multi_items() if pair[0] != "token"]
        path = request.scope["raw_path"].decode("ascii")
        response = RedirectResponse(f"{path}?{urlencode(query)}" if query else path, 303)
        response.set_cookie(self._cookie, self._token, httponly=True, samesite="strict")
        return response

    def _is_token(self, text: str) -> bool:
        return secrets.compare_digest(text.encode(), self._token.encode())


def _is_plain_path(scope: Scope) -> bool:
    """Return whether a path is of printable ASCII, and means the same to every reader."""
    path, raw = scope["path"], scope["raw_path"].lower()
    is_absolute = path.startswith("/") and not path.startswith("//")
    is_text = path.isascii() and path.isprintable() and "\\" not in path
    return is_absolute and is_text and b"%2f" not in raw and b"%25" not in raw


def _refused(text: str, status: int = 403, headers: dict[str, str] | None = None) -> Response:
    return PlainTextResponse(f"{text}\n", status, headers)


def _with_headers(send: Send, cache: str) -> Send:
    """Return a ``send`` that adds the headers of every answer."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in {**HEADERS, "cache-control": cache}.items():
                headers.setdefault(name, value)
        await send(message)

    return sent
