"""Slow servers: what may take how long, and that a mirror is asked then."""

from __future__ import annotations

import io
import itertools
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection

from datasets_cli.config import Config
from datasets_cli.core.progress import Silent
from datasets_cli.errors import NetworkError
from datasets_cli.sources.download import fetch
from datasets_cli.sources.http import TIMEOUT_SECONDS, Http
from datasets_cli.sources.pace import Pace, PaceLimits, TooSlow
from datasets_cli.sources.resource import Resource
from tests.support.origin import Fault, Origin, certificate, redirect

DATA = bytes(range(256)) * 400
PAUSE = 0.001
SLOW = {
    "headers byte by byte": (Fault(slow_headers=PAUSE), "has not sent all its headers after 40 s"),
    "100 Continue for ever": (Fault(continues=True), "has not sent all its headers after 40 s"),
    "a body byte by byte": (Fault(slow_body=PAUSE), "the lowest speed is 1000 bytes a second"),
    "chunks byte by byte": (Fault(slow_body=PAUSE, chunked=9999), "the lowest speed is 1000"),
}


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin() as running:
        running.put("file.bin", DATA)
        running.put("page.json", json.dumps([0] * 999).encode())
        yield running


def impatient(config: Config, retries: int = 1, connect_seconds: float = 10.0) -> Http:
    """Return a client for which a second passes whenever it looks at its clock.

    A read takes it a second, then, however long it takes: 20 reads are the time for headers.
    """
    ticks = itertools.count()
    return Http(
        config,
        retries=retries,
        backoff_seconds=0.001,
        timeout_seconds=(connect_seconds, 10.0),
        clock=lambda: float(next(ticks)),
    )


def get(http: Http, folder: Path, *urls: str) -> bytes:
    return fetch(Resource(urls, "file.bin"), folder, http, Silent()).path.read_bytes()


@pytest.mark.parametrize("fault", SLOW)
def test_a_slow_server_is_left_for_the_mirror_at_once_and_asked_last_from_then_on(
    fault: str, origin: Origin, config: Config, tmp_path: Path
) -> None:
    good = origin.url + "file.bin"
    with Origin() as other:
        slow = other.put("file.bin", DATA).replace("127.0.0.1", "localhost")
        other.always("file.bin", SLOW[fault][0])
        http = impatient(config, retries=4)
        for number in range(3):
            assert get(http, tmp_path / str(number), slow, good) == DATA
        assert len(other.requests) == 1 and len(origin.requests) == 3


def test_a_server_that_is_slow_is_left_in_45_seconds() -> None:
    limits = PaceLimits()
    assert max(limits.window_seconds, limits.header_seconds, sum(TIMEOUT_SECONDS)) <= 45


@pytest.mark.parametrize("fault", SLOW)
def test_a_slow_server_is_asked_again_and_again_where_no_other_has_the_file(
    fault: str, origin: Origin, config: Config, tmp_path: Path
) -> None:
    slow, refused = origin.put("slow/file.bin", DATA), origin.url + "none.bin"
    origin.script("slow/file.bin", *[SLOW[fault][0]] * 3)
    assert get(impatient(config, retries=2), tmp_path, slow, refused) == DATA
    assert len(origin.log("slow/file.bin")) == 4 and len(origin.log("none.bin")) == 1


@pytest.mark.parametrize("fault", SLOW)
def test_a_slow_document_is_an_error(fault: str, origin: Origin, config: Config) -> None:
    origin.always("page.json", SLOW[fault][0])
    with pytest.raises(NetworkError, match=SLOW[fault][1]) as caught:
        impatient(config).json(origin.url + "page.json")
    assert caught.value.exit_code == 5
    assert len(origin.log("page.json")) == 2


@pytest.mark.parametrize("fault", SLOW)
def test_a_redirect_may_be_as_slow_as_an_answer_and_its_body_is_not_read(
    fault: str, origin: Origin, config: Config
) -> None:
    moved = redirect("/page.json")
    slow = replace(SLOW[fault][0], status=302, headers=moved.headers, body=DATA)
    origin.always("moved", slow)
    http = impatient(config, retries=0)
    if slow.slow_body:
        assert http.json(origin.url + "moved") == [0] * 999
    else:
        with pytest.raises(NetworkError, match="all its headers"):
            http.json(origin.url + "moved")


@pytest.mark.parametrize("fault", SLOW)
def test_a_connection_of_another_kind_is_measured_too(
    fault: str, origin: Origin, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OverSocks(HTTPConnection):
        """As urllib3 has one for a SOCKS proxy: a class of its own."""

    found = HTTPAdapter.get_connection_with_tls_context

    def over_socks(*arguments: Any, **options: Any) -> Any:
        pool: Any = found(*arguments, **options)
        if pool.ConnectionCls is HTTPConnection:
            pool.ConnectionCls = OverSocks
        return pool

    monkeypatch.setattr(HTTPAdapter, "get_connection_with_tls_context", over_socks)
    http = impatient(config)
    assert http.json(origin.url + "page.json") == [0] * 999
    origin.always("page.json", SLOW[fault][0])
    with pytest.raises(NetworkError, match=SLOW[fault][1]):
        http.json(origin.url + "page.json")


def test_what_a_slow_server_sent_is_kept_and_continued(
    origin: Origin, config: Config, tmp_path: Path
) -> None:
    origin.script("file.bin", Fault(slow_body=PAUSE))
    assert get(impatient(config), tmp_path, origin.url + "file.bin") == DATA
    first, second = origin.ranges("file.bin")
    assert first is None
    assert second is None or int(second.strip("bytes=-")) < 1000


def test_one_byte_of_each_connection_is_too_slow_as_well(
    origin: Origin, config: Config, tmp_path: Path
) -> None:
    origin.always("file.bin", Fault(cut=1))
    http = impatient(config, retries=2)
    with pytest.raises(NetworkError, match="cannot be read"):
        get(http, tmp_path, origin.url + "file.bin")
    assert len(origin.requests) == 3


def test_any_speed_is_taken_where_the_lowest_is_0(
    origin: Origin, config: Config, tmp_path: Path
) -> None:
    url = origin.put("file.bin", DATA[:20])
    origin.always("file.bin", Fault(slow_body=PAUSE))
    assert get(impatient(replace(config, lowest_speed=0.0)), tmp_path, url) == DATA[:20]


def test_connections_that_are_used_again_are_measured_again(config: Config) -> None:
    with Keeping(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1", b"HTTP/1.1 ") as url:
        http = impatient(config, retries=0)
        assert http.json(url) == 1
        with pytest.raises(NetworkError, match="all its headers after 40 s"):
            http.json(url)


# --- by default ---------------------------------------------------------------------------------


class Clock:
    """Time that passes while bytes are waited for, and where a test says so."""

    def __init__(self, bytes_a_second: int) -> None:
        self.now = 0.0
        self.bytes_a_second = bytes_a_second

    def __call__(self) -> float:
        return self.now

    def readinto(self, buffer: bytearray) -> int:
        self.now += 1.0
        return self.bytes_a_second


def seconds_of_patience(pace: Pace, clock: Clock, at_most: int = 1000) -> float:
    """Return when a stream of so many bytes a second is given up."""
    stream = io.RawIOBase()
    stream.readinto = clock.readinto  # type: ignore[assignment]
    began = clock.now
    with suppress(TooSlow):
        while clock.now - began < at_most:
            pace.read_into(stream, bytearray(1))
    return clock.now - began


@pytest.mark.parametrize(("speed", "patience"), [(0, 1000), (1, 30), (999, 30), (1000, 1000)])
def test_a_body_has_a_kilobyte_a_second_over_30_seconds(speed: int, patience: int) -> None:
    clock = Clock(speed)  # of speed 0 is the end of the body; a stall has the limit of a read
    pace = Pace(PaceLimits(clock=clock))
    pace.expect_body()
    assert seconds_of_patience(pace, clock) == patience


def test_headers_have_40_seconds_at_any_speed() -> None:
    clock = Clock(10**6)
    pace = Pace(PaceLimits(clock=clock))
    pace.expect_headers()
    assert seconds_of_patience(pace, clock) == 41


def test_a_speed_that_falls_is_noticed_and_the_time_of_our_own_work_does_not_count() -> None:
    clock = Clock(10**6)
    pace = Pace(PaceLimits(clock=clock))
    pace.expect_body()
    assert seconds_of_patience(pace, clock, at_most=300) == 300
    clock.now += 500  # a disk
    clock.bytes_a_second = 1500
    assert seconds_of_patience(pace, clock, at_most=300) == 300
    clock.bytes_a_second = 500
    assert seconds_of_patience(pace, clock) <= 60


# --- before a request is sent -------------------------------------------------------------------


class Keeping:
    """A server that gives one answer after the other on one connection, and keeps it open."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = answers
        self.socket = socket.create_server(("127.0.0.1", 0))

    def __enter__(self) -> str:
        threading.Thread(target=self.serve, daemon=True).start()
        return f"http://127.0.0.1:{self.socket.getsockname()[1]}/"

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def serve(self) -> None:
        with suppress(OSError):
            connection, _ = self.socket.accept()
            with connection:
                for answer in self.answers:
                    connection.recv(65536)
                    connection.sendall(answer)
                trickle(connection)


def trickle(connection: socket.socket) -> None:
    """Send bytes that never become a line until the client has gone."""
    with suppress(OSError):
        while True:
            connection.sendall(b"x")
            threading.Event().wait(PAUSE)


@contextmanager
def stuck(answer: bytes) -> Iterator[int]:
    """A port on which each connection gets an answer, and then bytes that end nothing."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                connection.recv(65536)
                connection.sendall(answer)
                threading.Thread(target=trickle, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    with server:
        yield server.getsockname()[1]


def test_a_connection_that_is_not_taken_ends(config: Config) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, ExitStack() as waiting:
        for _ in range(3):
            client = waiting.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(full.getsockname())
        with pytest.raises(NetworkError, match="timed out") as caught:
            impatient(config, 1, 0.1).json(f"http://127.0.0.1:{full.getsockname()[1]}/")
    assert caught.value.exit_code == 5


def test_a_tls_handshake_byte_by_byte_ends(config: Config) -> None:
    record = b"\x16\x03\x03\x40\x00"  # of 16,384 bytes
    with stuck(record) as port, pytest.raises(NetworkError, match="timed out"):
        impatient(config, 0, 0.3).json(f"https://127.0.0.1:{port}/")


def test_headers_of_a_proxy_byte_by_byte_end(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stuck(b"HTTP/1.1 200 ") as port:
        monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{port}")
        with pytest.raises(NetworkError, match="all its headers after 40 s"):
            impatient(config, retries=0).json("https://example.org/")


def test_a_slow_body_over_tls_is_noticed(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate()))
    with Origin(tls=True) as origin:
        url = origin.put("page.json", b"[" + b" " * 1000 + b"]")
        assert impatient(config).json(url) == []
        origin.always("page.json", Fault(slow_body=PAUSE))
        with pytest.raises(NetworkError, match="the lowest speed is 1000 bytes a second"):
            impatient(config, retries=0).json(url)
