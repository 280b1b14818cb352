"""The HTTP client: retries, mirrors, pauses, offline mode and JSON documents."""

from __future__ import annotations

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
    SourceError,
    by_reader,
)
from datasets_cli.formats.limits import check_limit, raised_limits, read_json
from datasets_cli.sources.failures import (
    WORST_FIRST,
    TransientError,
    all_failed,
    check_status,
    host_of,
    translated,
)
from datasets_cli.sources.pace import PaceLimits, read_body
from datasets_cli.sources.resource import NoSuchData
from datasets_cli.sources.session import Session

logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")

TIMEOUT_SECONDS = (10.0, 30.0)  # connect, read
LONGEST_WAIT_SECONDS = 120.0
MOST_PAGES = 100
"""Maximum pages of a list; Hugging Face returns 1,000 entries per page."""
CONNECTIONS_A_HOST = 4
"""As few as in a browser, because publishers limit the requests of one client."""


class HostLimits:
    """A limit on the connections to each host; several clients may share it."""

    def __init__(self, at_once: int = CONNECTIONS_A_HOST) -> None:
        self._at_once = at_once
        self._lock = threading.Lock()
        self._turns: dict[str, threading.BoundedSemaphore] = {}

    @contextmanager
    def turn(self, url: str) -> Iterator[None]:
        """Hold one of the connections to the host of an address; wait until one is free."""
        # A thread holds one at a time: with two, threads could wait for each other.
        host = _place_of(url)
        with self._lock:
            turns = self._turns.setdefault(host, threading.BoundedSemaphore(self._at_once))
        with turns:
            yield


class Http:
    """An HTTP client with retries, Retry-After, mirrors and offline mode."""

    # A host name without an address is retried once: without a network no pause would help.

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
        self.limits = PaceLimits(config.lowest_speed, clock=clock)
        self._session = Session(timeout_seconds, allow_http=config.allow_http)

    def candidates(self, url: str) -> list[str]:
        """Return the URLs to try for ``url``: mirrors with a matching prefix, then itself."""
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
            lambda each, retries: self._with_retries(each, retries, self._document, no_such_data),
        )

    def pages(self, url: str) -> Iterator[Any]:
        """Yield the JSON documents of a list in pages, trying mirrors first."""
        # Each response names the next page in its `Link` header, as Hugging Face does for a list
        # of more than 1,000 entries.
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
        raise NetworkError(
            f"{url} has more than {MOST_PAGES} pages; no more are read.", expected=MOST_PAGES
        )

    def _page(
        self, publisher: str, url: str, response: requests.Response
    ) -> tuple[Any, str | None]:
        """Return the document of a page and the address of the next page, None for the last."""
        following = _next_page(publisher, response)
        if following is not None:
            self._session.check_downgrade(url, response.url, following)
        return self._document(url, response), following

    def _document(self, url: str, response: requests.Response) -> Any:
        return _parse(url, read_body(response, self.limits))

    def has(self, url: str) -> bool:
        """Return whether a file exists at ``url``; the first server that answers decides."""
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
        """Return the result of ``ask`` for the first address that does not fail.

        ``ask`` takes an address and the number of retries if its server is too slow.
        """
        # A server that was too slow is asked last, and only then with retries.
        waiting = deque(sorted(urls, key=lambda url: _place_of(url) in self._slow))
        failures: dict[str, RldsError] = {}
        while waiting:
            url = waiting.popleft()
            is_last = url in failures or not waiting
            try:
                return ask(url, self.retries if is_last else 0)
            except OfflineError:
                raise
            except WORST_FIRST as error:
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
        """Send one GET and yield the response with its body unread."""
        if self.config.offline:
            raise OfflineError(
                f"{url} is needed, but offline mode is on (RLDS_OFFLINE"
                f"{by_reader(' or --offline', '')}).",
                argument="offline",
                advice=f"Pass the files with {by_reader('--source DIR', 'source=')}, or go online.",
            )
        # Of redirects, only the first host counts.
        with self._hosts.turn(url):
            with translated(url):
                response = self._session.get(url, headers or {})
            self._unresolved.discard(host_of(url))
            with response:
                check_status(url, response, no_such_data)
                yield response

    def pause(self, attempt: int, error: TransientError) -> None:
        """Sleep for the server's Retry-After, or exponentially longer, before the next attempt."""
        if error.unresolved is not None:
            if error.unresolved.host in self._unresolved:
                raise error
            self._unresolved.add(error.unresolved.host)
        seconds = self.backoff_seconds * 2**attempt * random.uniform(0.75, 1.25)
        if error.wait is not None:
            if error.wait > LONGEST_WAIT_SECONDS:
                raise NetworkError(
                    f"{error} It asks to wait {error.wait:.0f} s.",
                    expected=LONGEST_WAIT_SECONDS,
                    found=error.wait,
                    advice="Try again after that. The partial download is kept.",
                ) from error
            seconds = error.wait
        # The error that follows names a host without an address: no warning is needed.
        level = logging.WARNING if error.unresolved is None else logging.INFO
        logger.log(level, "%s; trying again in %.1f s", str(error).rstrip("."), seconds)
        time.sleep(seconds)


def _place_of(url: str) -> str:
    """Return the host and port of a URL; "" without a host."""
    return url.partition("://")[2].partition("/")[0]


def _parse(url: str, chunks: Iterable[bytes]) -> Any:
    """Return the JSON document in the body of a response."""
    body = bytearray()
    try:
        for data in chunks:
            body += data
            check_limit("json_bytes", len(body), url)
        return read_json(bytes(body), url)
    except SourceError as error:  # it may be the page of a proxy
        raise NetworkError(str(error), key=error.key, found=error.found) from error


def _next_page(publisher: str, response: requests.Response) -> str | None:
    """Return the address of the next page of a list; None for the last page."""
    link = response.links.get("next", {}).get("url")
    if link is None:
        return None
    following = urljoin(response.url, link)
    if host_of(following) not in (publisher, host_of(response.url)):
        raise NetworkError(
            f"{response.url} names a next page on another host: {following}. It is not requested.",
            expected=publisher,
            found=host_of(following),
        )
    return following
