"""Requests to the page as a browser, or an attacker, sends them, without a socket."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp

from datasets_cli.config import Config
from datasets_cli.ui.application import application
from datasets_cli.ui.guard import Guard
from datasets_cli.ui.local_page import LocalPage

HOST = "127.0.0.1:8000"
TOKEN = "a-token-of-this-run"
COOKIE = f"rlds-8000={TOKEN}"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: list[tuple[str, str]]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    def header(self, name: str) -> str | None:
        values = [value for each, value in self.headers if each == name]
        assert len(values) < 2, values
        return values[0] if values else None

    def json(self) -> Any:
        """Return the body as JSON, in which every number is finite."""
        return json.loads(self.body, parse_constant=lambda name: 1 / 0)


def guarded(config: Config) -> Guard:
    return Guard(application(LocalPage.of(config)), {HOST}.__contains__, 8000, TOKEN)


def ask(
    app: ASGIApp, target: str, headers: dict[str, str] | None = None, method: str = "GET"
) -> Answer:
    """Return the answer to a request, which has host and cookie unless ``headers`` has others."""
    return asyncio.run(answer(app, target, headers, method))


async def answer(
    app: ASGIApp, target: str, headers: dict[str, str] | None = None, method: str = "GET"
) -> Answer:
    """Return the answer to a request; the target is as it is sent, with its escapes."""
    raw_path, _, query = target.partition("?")
    sent = {"host": HOST, "cookie": COOKIE} | (headers or {})
    scope = {
        **{"type": "http", "http_version": "1.1", "scheme": "http", "root_path": ""},
        **{"method": method, "path": unquote(raw_path), "raw_path": raw_path.encode()},
        **{"query_string": query.encode(), "server": ("127.0.0.1", 8000), "client": None},
        "headers": [(name.encode(), value.encode()) for name, value in sent.items() if value],
    }
    messages: list[Any] = []
    received = iter([True])

    async def receive() -> Any:
        if not next(received, False):  # the browser stays
            await asyncio.Event().wait()
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        messages.append(message)

    await app(scope, receive, send)
    head, *parts = messages
    pairs = [(name.decode(), value.decode()) for name, value in head["headers"]]
    return Answer(head["status"], pairs, b"".join(each.get("body", b"") for each in parts))
