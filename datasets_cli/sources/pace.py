"""The lowest speed of a server. Only the time spent waiting for bytes counts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import requests

from datasets_cli.config import LOWEST_SPEED
from datasets_cli.errors import by_reader

READ_BYTES = 1 << 16
"""At most, of one read: larger reads are not faster."""


class TooSlow(TimeoutError):
    """A server sends fewer bytes a second than the lowest speed."""


@dataclass(frozen=True)
class PaceLimits:
    """The lowest speed in bytes a second, measured over each window of waiting."""

    lowest_speed: float = LOWEST_SPEED
    window_seconds: float = 30.0
    clock: Callable[[], float] = time.monotonic


def read_body(response: requests.Response, limits: PaceLimits) -> Iterator[bytes]:
    """Yield the body of a response as it arrives."""
    # The time limit of a socket is one for each read: a byte now and then never exceeds it.
    received, waited = 0, 0.0
    while True:
        started = limits.clock()
        data: bytes = response.raw.read1(READ_BYTES, decode_content=False)
        waited += limits.clock() - started
        if not data:
            return
        yield data
        received += len(data)
        if waited < limits.window_seconds:
            continue
        if received < limits.lowest_speed * waited:
            raise TooSlow(
                f"it sent {received:,} bytes in {waited:.0f} s, and the lowest speed is "
                f"{limits.lowest_speed:g} bytes a second "
                f"({by_reader('--lowest-speed, ', '')}RLDS_LOWEST_SPEED)"
            )
        received, waited = 0, 0.0
