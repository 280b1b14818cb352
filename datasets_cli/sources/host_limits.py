"""How many connections one host has at a time, whoever opens them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

CONNECTIONS_A_HOST = 4
"""As few as a browser has: publishers limit what one address asks for."""


class HostLimits:
    """Lets threads wait for their turn with a host; several clients may share it."""

    def __init__(self, at_once: int = CONNECTIONS_A_HOST) -> None:
        self._at_once = at_once
        self._lock = threading.Lock()
        self._turns: dict[str, threading.BoundedSemaphore] = {}

    @contextmanager
    def turn(self, url: str) -> Iterator[None]:
        """Wait until the host of an address has a connection to spare, and have it."""
        # A thread has one turn at a time: with two, threads could wait for each other.
        host = url.partition("://")[2].partition("/")[0]
        with self._lock:
            turns = self._turns.setdefault(host, threading.BoundedSemaphore(self._at_once))
        with turns:
            yield
