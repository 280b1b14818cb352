"""Slow servers: the lowest speed, and the mirror that is asked instead."""

from __future__ import annotations

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

from datasets_cli.config import Config
from datasets_cli.core.progress import silent
from datasets_cli.errors import NetworkError
from datasets_cli.sources.download import fetch
from datasets_cli.sources.http import TIMEOUT_SECONDS, Http
from datasets_cli.sources.pace import PaceLimits, TooSlow, read_body
from datasets_cli.sources.resource import Resource
from tests.support.origin import Fault, Origin, certificate, redirect

DATA = bytes(range(256)) * 400
PAUSE = 0.001
SLOW = {
    "a body byte by byte": Fault(slow_body=PAUSE),
    "chunks byte by byte": Fault(slow_body=PAUSE, chunked=9999),
}


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin() as running:
        running.put("file.bin", DATA)
        running.put("page.json", json.dumps([0] * 999).encode())
        yield running


def impatient(config: Config, retries: int = 1, connect_seconds: float = 10.0) -> Http:
    """Return a client for which a second passes whenever it looks at its clock.

    Each read then takes a second, however long it takes.
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
    return fetch(Resource(urls, "file.bin"), folder, http, silent).path.read_bytes()


@pytest.mark.parametrize("fault", SLOW)
def test_a_slow_server_is_left_for_the_mirror_at_once_and_asked_last_from_then_on(
    fault: str, origin: Origin, config: Config, tmp_path: Path
) -> None:
    good = origin.url + "file.bin"
    with Origin() as other:
        slow = other.put("file.bin", DATA).replace("127.0.0.1", "localhost")
        other.always("file.bin", SLOW[fault])
        http = impatient(config, retries=4)
        for number in range(3):
            assert get(http, tmp_path / str(number), slow, good) == DATA
        assert len(other.requests) == 1 and len(origin.requests) == 3


def test_a_server_that_is_slow_is_left_in_45_seconds() -> None:
    limits = PaceLimits()
    assert max(limits.window_seconds, sum(TIMEOUT_SECONDS)) <= 45


@pytest.mark.parametrize("fault", SLOW)
def test_a_slow_server_is_asked_again_and_again_where_no_other_has_the_file(
    fault: str, origin: Origin, config: Config, tmp_path: Path
) -> None:
    slow, refused = origin.put("slow/file.bin", DATA), origin.url + "none.bin"
    origin.script("slow/file.bin", *[SLOW[fault]] * 3)
    assert get(impatient(config, retries=2), tmp_path, slow, refused) == DATA
    assert len(origin.log("slow/file.bin")) == 4 and len(origin.log("none.bin")) == 1


@pytest.mark.parametrize("fault", SLOW)
def test_a_slow_document_is_an_error(fault: str, origin: Origin, config: Config) -> None:
    origin.always("page.json", SLOW[fault])
    with pytest.raises(NetworkError) as caught:
        impatient(config).json(origin.url + "page.json")
    assert (caught.value.exit_code, caught.value.found) == (5, "TooSlow")
    assert "lowest speed is 1000 bytes a second" in str(caught.value)
    assert len(origin.log("page.json")) == 2


@pytest.mark.parametrize("fault", SLOW)
def test_the_body_of_a_redirect_is_not_read(fault: str, origin: Origin, config: Config) -> None:
    moved = redirect("/page.json")
    origin.always("moved", replace(SLOW[fault], status=302, headers=moved.headers, body=DATA))
    assert impatient(config, retries=0).json(origin.url + "moved") == [0] * 999


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
    with pytest.raises(NetworkError):
        get(http, tmp_path, origin.url + "file.bin")
    assert len(origin.requests) == 3


def test_any_speed_is_taken_where_the_lowest_is_0(
    origin: Origin, config: Config, tmp_path: Path
) -> None:
    url = origin.put("file.bin", DATA[:20])
    origin.always("file.bin", Fault(slow_body=PAUSE))
    assert get(impatient(replace(config, lowest_speed=0.0)), tmp_path, url) == DATA[:20]


# --- by default ---------------------------------------------------------------------------------


class Clock:
    """Time that passes while bytes are waited for, and where a test says so."""

    def __init__(self, bytes_a_second: int) -> None:
        self.now = 0.0
        self.bytes_a_second = bytes_a_second
        self.raw = self  # the clock is the response, too

    def __call__(self) -> float:
        return self.now

    def read1(self, size: int, decode_content: bool) -> bytes:
        self.now += 1.0
        return bytes(min(size, self.bytes_a_second))


@pytest.mark.parametrize(("speed", "patience"), [(1, 30), (999, 30), (1000, 1000)])
def test_a_body_has_a_kilobyte_a_second_over_30_seconds(speed: int, patience: int) -> None:
    clock: Any = Clock(speed)
    with suppress(TooSlow):
        for _ in read_body(clock, PaceLimits(clock=clock)):
            if clock.now >= 1000:
                break
    assert clock.now == patience


def test_a_speed_that_falls_is_noticed_and_the_time_of_our_own_work_does_not_count() -> None:
    clock: Any = Clock(1500)
    body = read_body(clock, PaceLimits(clock=clock))
    for _ in range(300):
        next(body)
        clock.now += 50  # a disk
    clock.bytes_a_second = 500
    with pytest.raises(TooSlow):
        for _ in range(60):
            next(body)


# --- before a request is sent -------------------------------------------------------------------


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
        with pytest.raises(NetworkError) as caught:
            impatient(config, 1, 0.1).json(f"http://127.0.0.1:{full.getsockname()[1]}/")
    assert (caught.value.exit_code, caught.value.found) == (5, "TimeoutError")


def test_a_tls_handshake_byte_by_byte_ends(config: Config) -> None:
    record = b"\x16\x03\x03\x40\x00"  # of 16,384 bytes
    with stuck(record) as port, pytest.raises(NetworkError) as caught:
        impatient(config, 0, 0.3).json(f"https://127.0.0.1:{port}/")
    assert caught.value.found == "TimeoutError"


def test_a_slow_body_over_tls_is_noticed(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate()))
    with Origin(tls=True) as origin:
        url = origin.put("page.json", b"[" + b" " * 1000 + b"]")
        assert impatient(config).json(url) == []
        origin.always("page.json", Fault(slow_body=PAUSE))
        with pytest.raises(NetworkError) as caught:
            impatient(config, retries=0).json(url)
    assert caught.value.found == "TooSlow"
