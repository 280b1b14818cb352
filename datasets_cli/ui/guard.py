"""The guard: what every request must be before the page answers it, and what every answer says.

Any site that a browser shows may send requests to this address, also under a name of its own that
points here, and any user of this machine may. So a request names the very address that is bound,
comes from no other site, only reads, and brings the token: once in the address, then in a cookie
that no script and no other site gets.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

MOST_AT_A_TIME = 8
PARAMETER = b"token="
HEADERS: Headers = [
    (
        b"content-security-policy",
        b"default-src 'self'; base-uri 'none'; object-src 'none'; form-action 'self'; "
        b"frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]
UNSTORED = (b"cache-control", b"no-store")
STATIC = (b"cache-control", b"private, no-cache")
"""A file of the page may be kept, and is asked for again; what shows data is not kept."""


class Refused(Exception):
    """A request that is not answered: the status and the sentence that it gets instead."""

    def __init__(self, status: HTTPStatus, text: str, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(status, text)
        self.status, self.text, self.headers = status, text, [*headers]


class Guard:
    """An ASGI application before another one."""

    def __init__(self, app: App, is_host: Callable[[str], bool], port: int, token: str) -> None:
        self._app, self._is_host, self._token = app, is_host, token.encode()
        self._cookie = b"rlds-%d" % port  # a browser sends the cookies of a host to all its ports
        self._tickets: set[bytes] = set()
        self._num_working = 0

    def ticket(self) -> str:
        """Return what stands for the token once: other users see what a browser is started with."""
        ticket = secrets.token_urlsafe(32)
        self._tickets.add(ticket.encode())
        return ticket

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        is_static = scope["path"].startswith("/static/")
        send = _with_headers(send, STATIC if is_static else UNSTORED)
        try:
            self._check(scope)
            if is_static:
                await self._app(scope, receive, send)
            else:
                await self._bounded(scope, receive, send)
        except Refused as refused:
            await _refuse(send, refused)

    async def _bounded(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request unless others are worked on already."""
        if self._num_working >= MOST_AT_A_TIME:
            text = f"The page works on {MOST_AT_A_TIME} requests already. Load it again."
            raise Refused(HTTPStatus.TOO_MANY_REQUESTS, text, (b"retry-after", b"1"))
        self._num_working += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._num_working -= 1

    def _check(self, scope: Scope) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            text = "This page can only be read: GET is the only method."
            raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, text, (b"allow", b"GET, HEAD"))
        _check_path(scope)
        self._check_origin(scope["headers"])
        self._check_token(scope)

    def _check_origin(self, headers: Headers) -> None:
        hosts = _values(headers, b"host")
        if len(hosts) != 1 or not self._is_host(hosts[0].decode("latin-1").lower()):
            text = "This page answers under the address alone that rlds ui printed."
            raise Refused(HTTPStatus.FORBIDDEN, text)
        origins = {*_values(headers, b"origin")} - {b"http://" + hosts[0]}
        if origins or {*_values(headers, b"sec-fetch-site")} - {b"same-origin", b"none"}:
            text = "This page does not answer other sites, nor their links. Paste its address."
            raise Refused(HTTPStatus.FORBIDDEN, text)

    def _check_token(self, scope: Scope) -> None:
        """Refuse a request without the token, and lead to the address without it."""
        parameters = scope["query_string"].split(b"&")
        tokens = [each[len(PARAMETER) :] for each in parameters if each.startswith(PARAMETER)]
        if tokens:
            if not self._is_token(tokens[0]):
                text = "The token in the address is not that of this run of rlds ui."
                raise Refused(HTTPStatus.FORBIDDEN, text)
            rest = b"&".join(each for each in parameters if not each.startswith(PARAMETER))
            cookie = b"%s=%s; Path=/; HttpOnly; SameSite=Strict" % (self._cookie, self._token)
            location = (b"location", scope["raw_path"] + (b"?" + rest if rest else b""))
            text = "The page is at the address without the token."
            raise Refused(HTTPStatus.SEE_OTHER, text, location, (b"set-cookie", cookie))
        if not any(map(self._is_cookie, _values(scope["headers"], b"cookie"))):
            text = "Open the address that rlds ui printed: it ends with the token of this run."
            raise Refused(HTTPStatus.FORBIDDEN, text)

    def _is_token(self, given: bytes) -> bool:
        if given in self._tickets:  # 32 random bytes that are gone now: their time says nothing
            self._tickets.remove(given)
            return True
        return secrets.compare_digest(given, self._token)

    def _is_cookie(self, header: bytes) -> bool:
        pairs = (each.strip().partition(b"=") for each in header.split(b";"))
        given = [value for name, _, value in pairs if name == self._cookie]
        return any(secrets.compare_digest(value, self._token) for value in given)


def _check_path(scope: Scope) -> None:
    """Refuse a path that means another one to somebody, or that no id and no page has."""
    path, raw = scope["path"], scope["raw_path"].lower()
    is_plain = path.startswith("/") and not path.startswith("//")
    is_text = path.isascii() and path.isprintable() and "\\" not in path
    if not (is_plain and is_text) or b"%2f" in raw or b"%25" in raw:
        raise Refused(HTTPStatus.BAD_REQUEST, "This address has characters that no page has.")


def _values(headers: Headers, name: bytes) -> list[bytes]:
    return [value for each, value in headers if each == name]


def _with_headers(send: Send, cache: tuple[bytes, bytes]) -> Send:
    """Return a ``send`` that adds what every answer says."""

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = {name for name, _ in message["headers"]}
            more = [each for each in (*HEADERS, cache) if each[0] not in own]
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return sent


async def _refuse(send: Send, refused: Refused) -> None:
    body = f"{refused.text}\n".encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(body)),
        *refused.headers,
    ]
    await send({"type": "http.response.start", "status": refused.status.value, "headers": headers})
    await send({"type": "http.response.body", "body": body})
