"""Ten thousand open connections: the page answers meanwhile, in bounded memory, and recovers."""

from __future__ import annotations

import resource
import socket
import threading
import time
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from datasets_cli.ui.connections import MOST_CONNECTIONS
from tests.ui.test_server import opened, started

pytestmark = pytest.mark.slow

CONNECTIONS = 10_000
FILES = CONNECTIONS + 500
SECONDS = 30.0
MOST_MIB = 50
SLOW = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "


@pytest.fixture
def many_files() -> Iterator[None]:
    """As many open files as the connections need, which this process may have in this test."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard not in (-1, resource.RLIM_INFINITY) and hard < FILES:
        pytest.skip(f"a process may open {hard:,} files here, and {FILES:,} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, FILES), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def until(is_so: Callable[[], bool]) -> None:
    """Wait for something, in bounded time."""
    end = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)


def is_answered(address: str) -> bool:
    """Return whether the page answers, also that too much is asked of it; not where it is cut."""
    try:
        return "<h1>Datasets</h1>" in opened(address)
    except urllib.error.HTTPError as error:
        return error.code in (429, 503)
    except (urllib.error.URLError, ConnectionError):
        return False


def num_sockets(process: int) -> int:
    """Return how many sockets a process has open."""
    links = []
    for path in Path(f"/proc/{process}/fd").iterdir():
        with suppress(OSError):  # it is closed by now
            links.append(str(path.readlink()))
    return sum(link.startswith("socket:") for link in links)


def memory_of(process: int) -> int:
    """Return the memory of a process that is its own, MiB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) >> 10


@pytest.mark.usefixtures("many_files", "config")
def test_ten_thousand_connections_that_ask_nothing_leave_the_page_answering() -> None:
    with started() as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert is_answered(address)
        place = "127.0.0.1", int(address.split(":")[2].split("/")[0])
        sockets, memory = num_sockets(process.pid), memory_of(process.pid)
        held: list[socket.socket] = []

        def flood() -> None:
            for number in range(CONNECTIONS):
                one = socket.create_connection(place, timeout=SECONDS)
                held.append(one)
                with suppress(OSError):  # it was closed to make room
                    one.sendall(SLOW if number % 2 else b"")
                    held[number // 2].sendall(b"x")

        flooding = threading.Thread(target=flood)
        flooding.start()
        num_answered = 0
        while flooding.is_alive():
            until(lambda: is_answered(address))
            num_answered += 1
        assert len(held) == CONNECTIONS and num_answered
        until(lambda: is_answered(address))
        print(num_answered, num_sockets(process.pid) - sockets, memory_of(process.pid) - memory)
        assert MOST_CONNECTIONS / 2 < num_sockets(process.pid) - sockets <= MOST_CONNECTIONS + 1
        assert memory_of(process.pid) - memory < MOST_MIB
        for one in held:
            one.close()
        until(lambda: num_sockets(process.pid) <= sockets)
        assert "<h1>Datasets</h1>" in opened(address)
