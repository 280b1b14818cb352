"""How long a server may take: a limit for its headers, a lowest speed for what follows them.

The time limit that sockets have is one for each read, which a server that sends a byte now and then
never exceeds. Here every read of an answer is counted, whoever asks for it: http.client for the
status line and the headers, also those of ``100 Continue`` and of a proxy; we for the body.
"""

from __future__ import annotations

import functools
import io
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, cast

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection

from datasets_cli.config import LOWEST_SPEED
from datasets_cli.errors import by_reader

MAX_BODY_LINES = 100
"""In a row, in the framing of a chunked body; http.client takes as many headers."""
MAX_BODY_LINE_BYTES = 4096


class TooSlow(TimeoutError):
    """A server takes longer than it may."""


@dataclass(frozen=True)
class PaceLimits:
    """What is asked of a server."""

    lowest_speed: float = LOWEST_SPEED
    window_seconds: float = 30.0
    header_seconds: float = 40.0
    clock: Callable[[], float] = time.monotonic


class Pace:
    """How long the answers on one connection take, against the limits."""

    def __init__(self, limits: PaceLimits) -> None:
        self._limits = limits
        self.expect_headers()

    def expect_headers(self) -> None:
        """Begin to wait for a status line and headers."""
        self._headers_due: float | None = self._limits.clock() + self._limits.header_seconds

    def expect_body(self) -> None:
        """Begin to measure the speed of a body."""
        self._headers_due = None
        self._begin_window()

    @property
    def is_body(self) -> bool:
        """Whether all headers are there."""
        return self._headers_due is None

    def read_into(self, stream: io.RawIOBase, buffer: Any) -> int | None:
        """Read once from a connection, and return the number of bytes."""
        limits = self._limits
        began = limits.clock()
        count = cast("int | None", stream.readinto(buffer))
        now = limits.clock()
        if self._headers_due is None:
            # Only the waiting counts: a slow disk between two reads is not the server's fault.
            self._add(count or 0, now - began)
        elif now > self._headers_due:
            raise TooSlow(f"it has not sent all its headers after {limits.header_seconds:g} s")
        return count

    def _add(self, num_bytes: int, seconds: float) -> None:
        limits = self._limits
        self._received += num_bytes
        self._waited += seconds
        if self._waited < limits.window_seconds:
            return
        if num_bytes and self._received < limits.lowest_speed * self._waited:
            raise TooSlow(
                f"it sent {self._received:,} bytes in {self._waited:.0f} s, and the lowest speed "
                f"is {limits.lowest_speed:g} bytes a second "
                f"({by_reader('--lowest-speed, ', '')}RLDS_LOWEST_SPEED)"
            )
        self._begin_window()

    def _begin_window(self) -> None:
        self._received = 0
        self._waited = 0.0


class PacedAdapter(HTTPAdapter):
    """Sends requests over connections whose answers are measured."""

    def __init__(self, limits: PaceLimits) -> None:
        super().__init__()
        self._limits = limits

    def get_connection_with_tls_context(
        self, request: Any, verify: Any, proxies: Mapping[str, str] | None = None, cert: Any = None
    ) -> Any:
        """Return the connections to the host of a request, or to its proxy."""
        pool: Any = super().get_connection_with_tls_context(request, verify, proxies, cert)
        if not issubclass(pool.ConnectionCls, _PacedConnection):
            pool.ConnectionCls = _paced(pool.ConnectionCls)
            pool.conn_kw["limits"] = self._limits
        return pool


class _PacedConnection(HTTPConnection):
    """Measures what is read from its socket, from the request on."""

    def __init__(self, *arguments: Any, limits: PaceLimits, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._limits = limits
        self._pace = Pace(limits)

    def connect(self) -> None:
        # A TLS handshake has the limit of a connection as one time limit for all of its reads.
        super().connect()
        self.sock = self._measured(self.sock)

    def _tunnel(self) -> None:
        plain = self.sock
        self._pace.expect_headers()
        self.sock = self._measured(plain)
        try:
            super()._tunnel()
        finally:
            self.sock = plain

    def request(self, *arguments: Any, **options: Any) -> None:
        self._pace.expect_headers()
        super().request(*arguments, **options)

    def getresponse(self) -> Any:
        connected: Any = self.sock
        try:
            response = super().getresponse()
        except BaseException:
            # urllib3 leaves it open where the lengths in the headers contradict each other.
            connected.close_file()
            raise
        self._pace.expect_body()
        return response

    def _measured(self, plain: socket.socket) -> socket.socket:
        return cast("socket.socket", _PacedSocket(plain, self._pace))


@functools.cache
def _paced(kind: type[HTTPConnection]) -> type[HTTPConnection]:
    """Return the same kind of connection, over TLS or a SOCKS proxy too, measured."""
    return type(f"_Paced{kind.__name__}", (_PacedConnection, kind), {})


class _PacedSocket:
    """A socket; what is read from its file is measured."""

    def __init__(self, plain: socket.socket, pace: Pace) -> None:
        self._plain = plain
        self._pace = pace
        self._file: io.BufferedReader | None = None

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return a file of what the server sends."""
        stream = self._plain.makefile(cast("Any", mode), buffering=0)
        self._file = _BoundedLines(_PacedStream(stream, self._pace), self._pace)
        return self._file

    def close_file(self) -> None:
        """Close the file of the last answer."""
        if self._file is not None:
            self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)


class _BoundedLines(io.BufferedReader):
    """A file of what the server sends; the lines that frame a chunked body are bounded."""

    # urllib3 would read any number of them after the last chunk, each of up to 64 KiB.

    def __init__(self, stream: io.RawIOBase, pace: Pace) -> None:
        super().__init__(stream)
        self._pace = pace
        self._num_lines = 0

    def read(self, size: int | None = -1) -> bytes:
        self._num_lines = 0
        return super().read(size)

    def readline(self, size: int | None = -1) -> bytes:
        if not self._pace.is_body:
            return super().readline(size)
        self._num_lines += 1
        line = super().readline(MAX_BODY_LINE_BYTES + 1)
        if self._num_lines > MAX_BODY_LINES or len(line) > MAX_BODY_LINE_BYTES:
            raise HTTPException("the lines between the chunks of its body are too long or too many")
        return line


class _PacedStream(io.RawIOBase):
    """The stream of a socket, measured."""

    def __init__(self, stream: io.RawIOBase, pace: Pace) -> None:
        self._stream = stream
        self._pace = pace

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        return self._pace.read_into(self._stream, buffer)

    def close(self) -> None:
        self._stream.close()
        super().close()
