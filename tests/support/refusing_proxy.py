"""A proxy that refuses every request, and keeps what was asked of it."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

DICTIONARY = "CONNECT redirector.gvt1.com:443"
"""Which Chromium asks for by itself, once a field of text has the focus."""
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
            self.server.asked += [asked] if asked != DICTIONARY else []
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
