"""A proxy that refuses every request, and keeps what was asked of it."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

OWN_HOSTS = ("redirector.gvt1.com", "update.googleapis.com")
"""Hosts that Chromium asks by itself: for its spelling dictionary, and for its newest version."""
REFUSAL = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class RefusingProxy(socketserver.ThreadingTCPServer):
    """The proxy; ``asked`` has what each request begins with, such as ``GET http://a/b``."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Refusal)
        self.asked: list[str] = []

    @property
    def address(self) -> str:
        """Its host and port."""
        return f"127.0.0.1:{self.server_address[1]}"


class _Refusal(socketserver.StreamRequestHandler):
    server: RefusingProxy

    def handle(self) -> None:
        if line := self.rfile.readline(65_536):
            asked = line.decode("latin-1").rpartition(" ")[0]
            self.server.asked += [] if any(host in asked for host in OWN_HOSTS) else [asked]
            self.wfile.write(REFUSAL)


@contextmanager
def refusing_proxy() -> Iterator[RefusingProxy]:
    """Yield a proxy, which ends afterwards."""
    with RefusingProxy() as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
