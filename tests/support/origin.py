"""An HTTP server on loopback that serves files, keeps a log, and misbehaves on request.

    with Origin() as origin:
        url = origin.put("a.bin", b"...")                          # GET, HEAD, Range, If-Range
        origin.script("a.bin", Fault(cut=100), Fault(status=503))  # two requests, then good
        origin.always("b.bin", Fault(status=404))                  # every request
        ...
        assert origin.ranges("a.bin") == [None, "bytes=100-", "bytes=100-"]

One ``Fault`` describes one answer; its fields combine.
"""

from __future__ import annotations

import functools
import hashlib
import re
import socket
import ssl
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any

import trustme


@functools.cache
def certificate() -> Path:
    """Return a file with a new key and certificate of localhost, and their authority's."""
    authority = trustme.CA()
    path = Path(tempfile.mkdtemp()) / "localhost.pem"
    authority.issue_cert("localhost", "127.0.0.1").private_key_and_cert_chain_pem.write_to_path(
        path
    )
    authority.cert_pem.write_to_path(path, append=True)
    return path


@dataclass(frozen=True)
class Published:
    """A file and what the server tells of it."""

    data: bytes
    headers: Mapping[str, str | None]


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: Message

    @property
    def range(self) -> str | None:
        return self.headers["Range"]


class Stall:
    """A hold-up: the server sets ``reached`` and goes on when ``release`` is set."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.release = threading.Event()

    def hold(self) -> None:
        self.reached.set()
        self.release.wait()


@dataclass(frozen=True)
class Fault:
    """How one answer differs from a good one.

    Args:
        status: answer this instead of the file.
        body: send this instead of the file's bytes.
        headers: added to, or replacing, the good ones; None takes one away.
        cut: close the connection after so many bytes of the body.
        stall: hold the connection after ``stall_after`` bytes of the body.
        flip: position of a byte of the body that is sent wrong.
        longer: promise so many bytes more than are sent; fewer where negative.
        no_length: send no Content-Length; the end of the connection ends the body.
        chunked: send chunks of so many bytes and no Content-Length.
        ignore_range: answer a Range request with the whole file.
        shift_range: answer a Range request with a range that begins so many bytes later.
        slow_body: seconds of pause after each byte of the body and its framing.
    """

    status: int | None = None
    body: bytes | None = None
    headers: Mapping[str, str | None] = field(default_factory=dict)
    cut: int | None = None
    stall: Stall | None = None
    stall_after: int = 0
    flip: int | None = None
    longer: int = 0
    no_length: bool = False
    chunked: int = 0
    ignore_range: bool = False
    shift_range: int = 0
    slow_body: float = 0.0


GOOD = Fault()
PIECE_BYTES = 1 << 16
"""Sent at once: ``Origin.sent`` is then little more than what a client that has gone received."""


def redirect(location: str, status: int = 302) -> Fault:
    return Fault(status=status, headers={"Location": location})


def closed_port_url() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{listener.getsockname()[1]}/"


class Origin:
    def __init__(self, *, tls: bool = False) -> None:
        self.requests: list[Request] = []
        self.sent = 0
        self._files: dict[str, Published] = {}
        self._scripts: dict[str, list[Fault]] = defaultdict(list)
        self._always: dict[str, Fault] = {}
        self._stalls: list[Stall] = []
        self._lock = threading.Lock()
        handler = type("BoundHandler", (_Handler,), {"origin": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        if tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate())
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
            self.url = f"https://127.0.0.1:{self._server.server_port}/"

    def __enter__(self) -> Origin:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for stall in self._stalls:
            stall.release.set()
        self._server.shutdown()
        self._server.server_close()
        asked = {request.method for request in self.requests}
        assert kind or asked <= {"GET"}, f"a publisher may not answer {asked}"

    def put(self, path: str, data: bytes, **headers: str | None) -> str:
        """Serve bytes and return their URL; ``etag=None`` takes the ETag away."""
        good = {"etag": f'"{hashlib.md5(data).hexdigest()}"', "content_type": "application/x-data"}
        named = {name.replace("_", "-").title(): value for name, value in (good | headers).items()}
        kept = {name: value for name, value in named.items() if value is not None}
        self._files[f"/{path}"] = Published(data, kept)
        return self.url + path

    def script(self, path: str, *faults: Fault) -> None:
        """Answer the next requests of a path like this, one fault each; those after them well."""
        self._scripts[f"/{path}"] += faults

    def heal(self, path: str) -> None:
        """Drop the faults of a path that no request has met yet."""
        self._scripts[f"/{path}"].clear()

    def always(self, path: str, fault: Fault) -> None:
        """Answer every request of a path like this once its script is done."""
        self._always[f"/{path}"] = fault

    def log(self, path: str) -> list[Request]:
        return [request for request in self.requests if request.path == f"/{path}"]

    def ranges(self, path: str) -> list[str | None]:
        return [request.range for request in self.log(path)]

    def next_answer(self, request: Request) -> tuple[Published | None, Fault]:
        with self._lock:
            self.requests.append(request)
            script = self._scripts[request.path]
            fault = script.pop(0) if script else self._always.get(request.path, GOOD)
            self._stalls += [fault.stall] if fault.stall else []
            return self._files.get(request.path), fault


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Take a client that does not accept the certificate as it comes; show all else."""
        if not isinstance(sys.exception(), ssl.SSLError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    origin: Origin

    def do_GET(self) -> None:
        request = Request(self.command, self.path, self.headers)
        published, fault = self.origin.next_answer(request)
        status, body, headers = _answer(request, published, fault)
        sent = {**headers, **_framing(body, fault), "Connection": "close"} | dict(fault.headers)
        self.close_connection = True
        with suppress(OSError):  # the client may have gone
            self.send_response(status)
            for name, value in sent.items():
                if value is not None:
                    self.send_header(name, value)
            self.end_headers()
            self.wfile = _slowed(self.wfile, fault.slow_body)
            if self.command != "HEAD":
                self._send_body(body, fault)

    def do_HEAD(self) -> None:
        self.do_GET()

    def _send_body(self, body: bytes, fault: Fault) -> None:
        if fault.flip is not None and fault.flip < len(body):
            wrong = bytes([body[fault.flip] ^ 0xFF])
            body = body[: fault.flip] + wrong + body[fault.flip + 1 :]
        end = len(body) if fault.cut is None else fault.cut
        if fault.stall:
            self._send(body[: fault.stall_after], fault)
            fault.stall.hold()
            self._send(body[fault.stall_after : end], fault)
        else:
            self._send(body[:end], fault, is_cut=end < len(body))
        if fault.chunked and fault.cut is None:
            self.wfile.write(b"0\r\n\r\n")

    def _send(self, data: bytes, fault: Fault, is_cut: bool = False) -> None:
        size = fault.chunked or PIECE_BYTES
        for start in range(0, len(data), size):
            chunk = data[start : start + size]
            # A cut leaves a chunk without its rest.
            is_torn = is_cut and len(chunk) < size
            framed = (
                b"%x\r\n%s" % (size, chunk) if is_torn else b"%x\r\n%s\r\n" % (len(chunk), chunk)
            )
            self.wfile.write(framed if fault.chunked else chunk)
            self.origin.sent += len(chunk)
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        """Keep stderr for the tests."""


def _slowed(file: IO[bytes], pause: float) -> Any:
    return _Slow(file, pause) if pause else file


class _Slow:
    def __init__(self, file: IO[bytes], pause: float) -> None:
        self._file = file
        self._pause = pause

    def write(self, data: bytes) -> None:
        for byte in data:
            self._file.write(bytes([byte]))
            time.sleep(self._pause)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _answer(
    request: Request, published: Published | None, fault: Fault
) -> tuple[int, bytes, Mapping[str, str | None]]:
    """Return status, body and headers of the answer, but for its framing."""
    if fault.status is not None or (published is None and fault.body is None):
        return fault.status or 404, fault.body or b"no\n", {}
    headers = published.headers if published else {}
    body = published.data if fault.body is None and published else fault.body or b""
    match = re.fullmatch(r"bytes=(\d+)-", request.range or "")
    condition = request.headers["If-Range"]
    changed = condition not in (None, headers.get("Etag"), headers.get("Last-Modified"))
    if match is None or fault.ignore_range or changed:
        return 200, body, headers
    start = int(match[1]) + fault.shift_range
    if start >= len(body):
        return 416, b"", {"Content-Range": f"bytes */{len(body)}"}
    content_range = f"bytes {start}-{len(body) - 1}/{len(body)}"
    return 206, body[start:], {**headers, "Content-Range": content_range}


def _framing(body: bytes, fault: Fault) -> dict[str, str | None]:
    if fault.chunked:
        return {"Transfer-Encoding": "chunked"}
    return {} if fault.no_length else {"Content-Length": str(len(body) + fault.longer)}
