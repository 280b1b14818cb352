"""The network: what is retried, which servers are asked, what an answer must be."""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urljoin

import requests

from datasets_cli.config import Config
from datasets_cli.errors import (
    AccessError,
    NetworkError,
    OfflineError,
    RldsError,
    by_reader,
)
from datasets_cli.formats.limits import beyond, limit, raised_limits
from datasets_cli.sources.failures import (
    WORST,
    TransientError,
    all_failed,
    check_status,
    host_of,
    translated,
)
from datasets_cli.sources.pace import PaceLimits
from datasets_cli.sources.resource import NoSuchData
from datasets_cli.sources.session import Session

logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")

# A connection that stalls loses less than this; larger reads are not faster.
READ_BYTES = 1 << 16
TIMEOUT_SECONDS = (10.0, 30.0)  # connect, read
LONGEST_WAIT_SECONDS = 120.0
MOST_PAGES = 100
"""Of one list; Hugging Face has 1,000 entries on each."""
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
        host = _place_of(url)
        with self._lock:
            turns = self._turns.setdefault(host, threading.BoundedSemaphore(self._at_once))
        with turns:
            yield


class Http:
    """A client that retries, honours Retry-After, mirrors and offline mode."""

    # A host that has no address is asked once more in all: without a network no pause would help.

    def __init__(
        self,
        config: Config,
        *,
        retries: int = 4,
        backoff_seconds: float = 0.5,
        timeout_seconds: tuple[float, float] = TIMEOUT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        hosts: HostLimits | None = None,
    ) -> None:
        self.config = config
        self.retries = retries
        self.backoff_seconds = backoff_seconds
        self.clock = clock
        self._hosts = hosts or HostLimits()
        self._unresolved: set[str] = set()
        self._slow: set[str] = set()
        limits = PaceLimits(config.lowest_speed, clock=clock)
        self._session = Session(limits, timeout_seconds, allow_http=config.allow_http)

    def candidates(self, url: str) -> list[str]:
        """Return the URLs to try for ``url``: mirrors whose prefix fits, then itself."""
        mirrored = [
            replacement + url[len(prefix) :]
            for prefix, replacement in self.config.mirrors
            if url.startswith(prefix)
        ]
        return [*mirrored, url]

    def json(self, url: str, no_such_data: NoSuchData | None = None) -> Any:
        """Return the JSON document at ``url``, trying mirrors first."""
        return self.first_answer(
            *(url, self.candidates(url)),
            lambda each, retries: self._with_retries(each, retries, _read_document, no_such_data),
        )

    def pages(self, url: str) -> Iterator[Any]:
        """Yield the JSON documents of a list that comes in pages, trying mirrors first."""
        # Each answer names the next page in its `Link` header, as Hugging Face does for a list of
        # more than 1,000 entries.
        page = url
        for _ in range(MOST_PAGES):
            document, following = self.first_answer(
                *(page, self.candidates(page)),
                lambda each, retries: self._with_retries(
                    each, retries, partial(self._page, host_of(url))
                ),
            )
            yield document
            if following is None:
                return
            page = following
        raise NetworkError(f"{url} has more than {MOST_PAGES} pages, which is more than is read.")

    def _page(
        self, publisher: str, url: str, response: requests.Response
    ) -> tuple[Any, str | None]:
        """Return the document of a page, and the address of the next; None after the last."""
        following = _next_page(publisher, response)
        if following is not None:
            self._session.check_downgrade(url, response.url, following)
        return _read_document(url, response), following

    def has(self, url: str) -> bool:
        """Return whether there is a file at ``url``; the first server that knows decides."""
        return self.first_answer(url, self.candidates(url), self._has)

    def _has(self, url: str, slow_retries: int) -> bool:
        try:
            return self._with_retries(url, slow_retries, lambda url, response: True)
        except AccessError as error:
            if error.missing:
                return False
            raise

    def first_answer(
        self, what: str, urls: Iterable[str], ask: Callable[[str, int], Answer]
    ) -> Answer:
        """Return what the first server that answers says.

        ``ask`` takes an address and how often it may be asked again where it is too slow.
        """
        # One that was too slow once is asked after all others, and only then again and again.
        waiting = deque(sorted(urls, key=lambda url: _place_of(url) in self._slow))
        failures: dict[str, RldsError] = {}
        while waiting:
            url = waiting.popleft()
            is_last = url in failures or not waiting
            try:
                return ask(url, self.retries if is_last else 0)
            except OfflineError:
                raise
            except WORST as error:
                if isinstance(error, TransientError) and error.slow:
                    self._slow.add(_place_of(url))
                    if not is_last:
                        waiting.append(url)
                failures[url] = error
        raise all_failed(what, [*failures.values()])

    def _with_retries(
        self,
        url: str,
        slow_retries: int,
        read: Callable[[str, requests.Response], Answer],
        no_such_data: NoSuchData | None = None,
    ) -> Answer:
        for attempt in range(self.retries + 1):
            try:
                with (
                    self.open(url, no_such_data=no_such_data) as response,
                    translated(url),
                    raised_limits(dict(self.config.limits)),
                ):
                    return read(url, response)
            except TransientError as error:
                if attempt == (slow_retries if error.slow else self.retries):
                    raise
                self.pause(attempt, error)
        raise AssertionError("the last attempt returns or raises")

    @contextmanager
    def open(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        no_such_data: NoSuchData | None = None,
    ) -> Iterator[requests.Response]:
        """Send one GET and give the response with its body still to be read."""
        if self.config.offline:
            raise OfflineError(
                f"{url} is needed, but offline mode is on (RLDS_OFFLINE"
                f"{by_reader(' or --offline', '')}). Give the files with "
                f"{by_reader('--source DIR', 'source=')}, or go online."
            )
        # Of redirects the first host counts, which decides where they lead.
        with self._hosts.turn(url):
            with translated(url):
                response = self._session.get(url, headers or {})
            self._unresolved.discard(host_of(url))
            with response:
                check_status(url, response, no_such_data)
                yield response

    def pause(self, attempt: int, error: TransientError) -> None:
        """Sleep as long as the server asks, else ever longer, before the next attempt."""
        if error.unresolved is not None:
            if error.unresolved in self._unresolved:
                raise error
            self._unresolved.add(error.unresolved)
        seconds = self.backoff_seconds * 2**attempt * random.uniform(0.75, 1.25)
        if error.wait is not None:
            if error.wait > LONGEST_WAIT_SECONDS:
                raise NetworkError(
                    f"{error} It asks to wait {error.wait:.0f} s; try again after that. "
                    "What has been downloaded is kept."
                ) from error
            seconds = error.wait
        # A host without an address is asked only once more, and the error then says so.
        level = logging.WARNING if error.unresolved is None else logging.INFO
        logger.log(level, "%s; trying again in %.1f s", str(error).rstrip("."), seconds)
        time.sleep(seconds)


def _place_of(url: str) -> str:
    """Return the host and port of a URL, which may be none."""
    return url.partition("://")[2].partition("/")[0]


def _read_document(url: str, response: requests.Response) -> Any:
    """Return the JSON document that an answer is."""
    body = bytearray()
    num_values = 0
    for data in response.raw.stream(READ_BYTES, decode_content=False):
        body += data
        # Each value but the first follows one of these; in texts they count as well.
        num_values += sum(map(data.count, (b"[", b"{", b",")))
        for name, found in (("json_bytes", len(body)), ("json_values", num_values)):
            if found > limit(name):
                raise NetworkError(beyond(name, found, url))
    try:
        return json.loads(body)
    # ValueError is also what text that is not UTF-8 and a number of 5,000 digits are.
    except (ValueError, RecursionError) as error:
        raise NetworkError(f"{url} did not answer with JSON: {error}") from error


def _next_page(publisher: str, response: requests.Response) -> str | None:
    """Return the address of the next page of a list; None after the last."""
    link = response.links.get("next", {}).get("url")
    if link is None:
        return None
    following = urljoin(response.url, link)
    if host_of(following) not in (publisher, host_of(response.url)):
        raise NetworkError(
            f"{response.url} names a next page on another host, {following}, which is not asked."
        )
    return following
