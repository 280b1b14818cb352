"""The network: the only file that opens a connection."""

from __future__ import annotations

import email.utils
import logging
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from typing import Any, TypeVar
from urllib.parse import urlsplit

import requests
import urllib3

from datasets_cli.config import Config
from datasets_cli.errors import (
    AccessError,
    IntegrityError,
    NetworkError,
    OfflineError,
    RldsError,
    UnknownDataset,
)

logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")

USER_AGENT = "rlds-cli"
TIMEOUT_SECONDS = (10.0, 30.0)  # connect, read
MAX_REDIRECTS = 10
LONGEST_WAIT_SECONDS = 120.0
REFUSALS = {
    401: "it needs a login that this program was not given",
    403: "the server refuses it: it is closed, gated or withdrawn",
    404: "the server does not have it (any more)",
    410: "the server says it is gone for good",
    451: "it is withheld for legal reasons",
}
MISSING = frozenset({404, 410})
NO_SUCH_DATA = 412  # OpenML's way to say so; an answer, after which no other mirror is asked
NOT_AN_ADDRESS = (
    requests.exceptions.InvalidURL,
    requests.exceptions.InvalidSchema,
    requests.exceptions.MissingSchema,
)
TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})


class TransientError(NetworkError):
    """A failure worth another try; ``wait`` is the server's Retry-After in seconds, if any."""

    wait: float | None = None


class Http:
    """A client that retries, honours Retry-After, mirrors and offline mode.

    Args:
        config: offline mode and mirrors.
        retries: how often a request that makes no progress is repeated.
        backoff_seconds: first pause; it doubles each time, with jitter.
        timeout_seconds: how long a connection, and then each read, may take.
    """

    def __init__(
        self,
        config: Config,
        *,
        retries: int = 4,
        backoff_seconds: float = 0.5,
        timeout_seconds: tuple[float, float] = TIMEOUT_SECONDS,
    ) -> None:
        self.config = config
        self.retries = retries
        self.backoff_seconds = backoff_seconds
        self.timeout_seconds = timeout_seconds
        self._session = requests.Session()
        self._session.max_redirects = MAX_REDIRECTS
        # identity: a server that compresses on the fly breaks lengths and ranges.
        self._session.headers.update({"User-Agent": USER_AGENT, "Accept-Encoding": "identity"})

    def candidates(self, url: str) -> list[str]:
        """Return the URLs to try for ``url``: mirrors whose prefix fits, then itself."""
        mirrored = [
            replacement + url[len(prefix) :]
            for prefix, replacement in self.config.mirrors
            if url.startswith(prefix)
        ]
        return [*mirrored, url]

    def json(self, url: str) -> Any:
        """Return the JSON document at ``url``, trying mirrors first.

        Raises:
            AccessError: every server refuses it or has none.
            UnknownDataset: a server says that there is no such data.
            NetworkError: no server answers, or the answer is not JSON.
        """
        failures: list[RldsError] = []
        for candidate in self.candidates(url):
            try:
                return self._with_retries(candidate, lambda response: response.json())
            except OfflineError:
                raise
            except (NetworkError, AccessError) as error:
                failures.append(error)
        raise all_failed(url, failures)

    def has(self, url: str) -> bool:
        """Tell whether there is a file at ``url``; the first server that knows decides.

        Raises:
            AccessError: every server refuses to say.
            NetworkError: no server answers.
        """
        failures: list[RldsError] = []
        for candidate in self.candidates(url):
            try:
                return self._with_retries(candidate, lambda response: True)
            except OfflineError:
                raise
            except (NetworkError, AccessError) as error:
                if isinstance(error, AccessError) and error.missing:
                    return False
                failures.append(error)
        raise all_failed(url, failures)

    def _with_retries(self, url: str, read: Callable[[requests.Response], Answer]) -> Answer:
        for attempt in range(self.retries + 1):
            try:
                with self.open(url) as response, translated(url):
                    return read(response)
            except requests.exceptions.JSONDecodeError as error:
                raise NetworkError(f"{url} did not answer with JSON: {error}") from error
            except TransientError as error:
                if attempt == self.retries:
                    raise
                self.pause(attempt, error)
        raise AssertionError("the last attempt returns or raises")

    @contextmanager
    def open(
        self, url: str, headers: Mapping[str, str] | None = None
    ) -> Iterator[requests.Response]:
        """Send one GET and give the response with its body still to be read.

        Raises:
            OfflineError: offline mode is on.
            AccessError: 401, 403, 404, 410 or 451; never worth a retry.
            UnknownDataset: 412.
            TransientError: worth a retry.
            NetworkError: any other answer that is not 200, 206 or 416.
        """
        if self.config.offline:
            raise OfflineError(
                f"{url} is needed, but offline mode is on (RLDS_OFFLINE or --offline). "
                "Give the files with --source DIR, or go online."
            )
        with translated(url):
            response = self._session.get(
                url,
                # A server on this machine is never behind a proxy.
                proxies={"http": "", "https": ""} if _is_loopback(url) else None,
                headers={**_authorization(url), **(headers or {})},
                stream=True,
                timeout=self.timeout_seconds,
            )
        with response:
            check_status(url, response)
            yield response

    def pause(self, attempt: int, error: TransientError) -> None:
        """Sleep before the next attempt: the server's wish, else exponential with jitter.

        Raises:
            NetworkError: the server wishes for longer than two minutes.
        """
        seconds = self.backoff_seconds * 2**attempt * random.uniform(0.75, 1.25)
        if error.wait is not None:
            if error.wait > LONGEST_WAIT_SECONDS:
                raise NetworkError(
                    f"{error} It asks to wait {error.wait:.0f} s; try again after that. "
                    "What has been downloaded is kept."
                ) from error
            seconds = error.wait
        logger.warning("%s; trying again in %.1f s", error, seconds)
        time.sleep(seconds)


def all_failed(what: str, failures: list[RldsError]) -> RldsError:
    """Return one error for all origins: an IntegrityError or of the first's kind, naming each."""
    if len(failures) == 1:
        return failures[0]
    lines = "\n".join(f"  {number}. {error}" for number, error in enumerate(failures, 1))
    worst = max(failures, key=lambda error: isinstance(error, IntegrityError))
    return type(worst)(f"{what} could not be had from any of its origins:\n{lines}")


def check_status(url: str, response: requests.Response) -> None:
    """Raise the error that a status stands for; see ``Http.open``."""
    status = response.status_code
    if status in (200, 206, 416):
        encoding = response.headers.get("Content-Encoding") or "identity"
        if encoding.lower() != "identity":
            raise NetworkError(
                f"{url} was sent with Content-Encoding {encoding} although identity was asked for; "
                "lengths and ranges would be wrong. Try another mirror."
            )
        return
    if status in REFUSALS:
        refusal = AccessError(
            f"{url} cannot be had: HTTP {status}, {REFUSALS[status]}. "
            "Use --mirror PREFIX=REPLACEMENT or --source DIR|URL if you have a copy."
        )
        refusal.missing = status in MISSING
        raise refusal
    if status == NO_SUCH_DATA:
        raise UnknownDataset(f"{url} answered HTTP 412: {_message(response)}.")
    if status in TRANSIENT:
        error = TransientError(f"{url} answered HTTP {status} {response.reason}.")
        error.wait = _retry_after(response.headers.get("Retry-After"))
        raise error
    raise NetworkError(f"{url} answered HTTP {status} {response.reason}, which was not expected.")


@contextmanager
def translated(url: str) -> Iterator[None]:
    """Turn the HTTP libraries' failures into ``TransientError``."""
    try:
        yield
    except requests.exceptions.JSONDecodeError:
        raise
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        if isinstance(error, NOT_AN_ADDRESS):
            raise NetworkError(
                f"{url} is not, or does not lead to, an http or https address."
            ) from error
        if isinstance(error, requests.TooManyRedirects):
            raise NetworkError(f"{url} redirects more than {MAX_REDIRECTS} times.") from error
        raise TransientError(f"{url} cannot be read: {_root_cause(error)}.") from error


def _root_cause(error: BaseException) -> str:
    # No further: what lies below may be an exception that our caller was handling.
    while isinstance(error.__context__, (OSError, urllib3.exceptions.HTTPError, HTTPException)):
        error = error.__context__
    return f"{type(error).__name__}: {error}"


def _message(response: requests.Response) -> str:
    """Return what OpenML's API says went wrong."""
    try:
        return str(response.json()["error"]["message"])
    except (requests.RequestException, ValueError, KeyError, TypeError):
        return response.reason


def _retry_after(text: str | None) -> float | None:
    """Return the seconds that a Retry-After header means, given as a number or as a date."""
    if text is None:
        return None
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except ValueError:
        return None


def _authorization(url: str) -> dict[str, str]:
    """Return the user's Hugging Face token for that host alone; requests drops it on redirects."""
    token = os.environ.get("HF_TOKEN")
    return {"Authorization": f"Bearer {token}"} if token and _is_hugging_face(url) else {}


def _is_loopback(url: str) -> bool:
    return url.startswith(("http://127.0.0.1:", "http://localhost:", "http://[::1]:"))


def _is_hugging_face(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "https" and parts.hostname == "huggingface.co"
