"""The failures of servers and HTTP libraries, translated into errors of this package."""

from __future__ import annotations

import email.utils
import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import requests
import urllib3
from requests.utils import get_environ_proxies, select_proxy

from datasets_cli.errors import (
    MIRROR,
    SOURCE,
    AccessError,
    IntegrityError,
    NetworkError,
    RldsError,
    UnknownDataset,
    by_reader,
    public_url,
)
from datasets_cli.sources.pace import TooSlow
from datasets_cli.sources.resource import NoSuchData

REFUSALS = {
    401: "it requires a login",
    403: "the server denies access: it is closed, gated or withdrawn",
    404: "the server does not have it",
    410: "the server has deleted it",
    451: "it is withheld for legal reasons",
}
MISSING = frozenset({404, 410})
CA_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")  # as requests reads them
FOREIGN = (OSError, urllib3.exceptions.HTTPError, HTTPException)
TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
MAX_REFUSAL_BYTES = 1 << 16
"""Bytes of the body of an error response, which may explain that the data do not exist."""
MAX_DIGITS = 18
"""Maximum digits of a number in a header, more than any size has."""

WORST_FIRST = (IntegrityError, NetworkError, AccessError)
"""The errors after which the next origin is tried. The first of these decides the exit code."""
COPY = by_reader(
    "--mirror PREFIX=REPLACEMENT (RLDS_MIRRORS) or --source DIR|URL", "RLDS_MIRRORS or source="
)
UNREACHABLE = (
    f"Check the connection. Without a network, {SOURCE} reads files that you have, and "
    f"{by_reader('--offline (RLDS_OFFLINE=1)', 'RLDS_OFFLINE=1')} skips the attempt; "
    f"{by_reader('--mirror (RLDS_MIRRORS)', 'RLDS_MIRRORS')} asks another server. Partial "
    "downloads are kept."
)


class Unresolved(NamedTuple):
    """A host name without an address, and the system's reason."""

    url: str
    host: str
    reason: str


class TransientError(NetworkError):
    """A failure worth another attempt.

    ``wait`` is the server's Retry-After in seconds; ``slow`` whether a time limit was exceeded.
    """

    wait: float | None = None
    unresolved: Unresolved | None = None
    slow = False


def all_failed(what: str, failures: list[RldsError]) -> RldsError:
    """Return one error for all origins, naming each."""
    by_weight = (error for kind in WORST_FIRST for error in failures if isinstance(error, kind))
    worst = next(by_weight, failures[0])
    if unresolved := _unresolved(failures):
        return NetworkError(
            f"{what} could not be downloaded: {unresolved}", found=worst.found, advice=UNREACHABLE
        )
    is_transient = isinstance(worst, TransientError)
    if len(failures) == 1 and not is_transient:
        return worst
    details: dict[str, Any] = {"expected": worst.expected, "found": worst.found}
    if len(failures) == 1:
        return NetworkError(str(worst), **details, advice=UNREACHABLE)
    lines = [f"  {number}. {error}" for number, error in enumerate(failures, 1)]
    text = "\n".join((f"{what} could not be downloaded from any of its origins:", *lines))
    if is_transient:
        return NetworkError(f"{text}\n ", **details, advice=UNREACHABLE)
    return type(worst)(text, **details)


def _unresolved(failures: list[RldsError]) -> str:
    """Return one sentence for all failures if no server has an address, else ""."""
    found = [
        error.unresolved
        for error in failures
        if isinstance(error, TransientError) and error.unresolved
    ]
    if len(found) < len(failures):
        return ""
    urls = dict.fromkeys(public_url(each.url) for each in found)
    return f"no address is found for the server of {' and '.join(urls)} ({found[0].reason})."


def check_status(
    url: str, response: requests.Response, no_such_data: NoSuchData | None = None
) -> None:
    """Raise the error of a status other than 200, 206 and 416; see ``Http.open``."""
    status = response.status_code
    if status in (200, 206, 416):
        encoding = response.headers.get("Content-Encoding") or "identity"
        if encoding.lower() != "identity":
            raise NetworkError(
                f"{url} was sent with Content-Encoding {encoding}; lengths and ranges would be "
                "wrong.",
                expected="identity",
                found=encoding,
                advice=f"Try another {MIRROR}.",
            )
        return
    if no_such_data and (words := no_such_data(status, _body(url, response))):
        raise UnknownDataset(f"{url} answered HTTP {status}: {words}.", found=status)
    if status in REFUSALS:
        refusal = AccessError(
            f"{url} cannot be downloaded: HTTP {status}, {REFUSALS[status]}.",
            found=status,
            advice=f"Use {COPY} if you have a copy.",
        )
        refusal.missing = status in MISSING
        raise refusal
    if status in TRANSIENT:
        error = TransientError(f"{url} answered HTTP {status} {response.reason}.", found=status)
        error.wait = _retry_after(response.headers.get("Retry-After"))
        raise error
    raise NetworkError(
        f"{url} answered HTTP {status} {response.reason}, which was not expected.", found=status
    )


@contextmanager
def translated(url: str) -> Iterator[None]:
    """Translate what HTTP libraries raise for a URL by ``TRANSLATIONS``."""
    try:
        yield
    except RldsError:
        raise
    # ValueError: http.client's, for a chunk size that is not a number.
    except (requests.RequestException, urllib3.exceptions.HTTPError, TooSlow, ValueError) as error:
        cause = _root_cause(error)
        ours = next(TRANSLATIONS[kind] for kind in type(cause).__mro__ if kind in TRANSLATIONS)
        raise ours(url, cause) from None  # their messages contain whole URLs


def _unreadable(url: str, cause: Exception) -> NetworkError:
    kind = type(cause).__name__
    return TransientError(f"{url} cannot be read: {kind}: {cause}.", found=kind)


def _no_address(url: str, cause: socket.gaierror) -> NetworkError:
    unresolved = Unresolved(url, host_of(url), str(cause.strerror or cause))
    failure = TransientError(
        f"{url} cannot be read: no address is found for {unresolved.host} ({unresolved.reason}).",
        found=unresolved.reason,
    )
    failure.unresolved = unresolved
    return failure


def _timed_out(url: str, cause: TimeoutError) -> NetworkError:
    failure = TransientError(f"{url} cannot be read: TimeoutError: {cause}.", found="TimeoutError")
    failure.slow = True
    return failure


def _too_slow(url: str, cause: TooSlow) -> NetworkError:
    failure = TransientError(f"{url} is too slow: {cause}.", found="TooSlow")
    failure.slow = True
    return failure


def _tls_failed(url: str, cause: ssl.SSLError) -> NetworkError:
    variable = next(filter(os.environ.get, CA_VARIABLES), None)
    certificates = f"{variable}={os.environ[variable]}" if variable else "the built-in list"
    proxy = None if is_on_this_machine(url) else select_proxy(url, get_environ_proxies(url))
    way = f"through the proxy {public_url(proxy)} (HTTPS_PROXY)" if proxy else "without a proxy"
    return NetworkError(
        f"{url} cannot be read over TLS: {cause}. It was requested {way}, and its certificate "
        f"checked against {certificates}.",
        expected=certificates,
        found=str(cause.reason),
        advice="If a proxy or an organisation signs certificates, set REQUESTS_CA_BUNDLE to the "
        f"file of its certificates; otherwise try another {MIRROR}.",
    )


def not_an_address(url: str, cause: Exception | None = None) -> NetworkError:
    """Return the error of a URL that is not, or does not lead to, a web address."""
    return NetworkError(f"{url} is not, or does not lead to, an http or https address.")


TRANSLATIONS: dict[type[BaseException], Callable[[str, Any], NetworkError]] = {
    Exception: _unreadable,
    requests.exceptions.InvalidURL: not_an_address,
    requests.exceptions.InvalidSchema: not_an_address,
    requests.exceptions.MissingSchema: not_an_address,
    urllib3.exceptions.LocationValueError: not_an_address,
    socket.gaierror: _no_address,
    TimeoutError: _timed_out,
    TooSlow: _too_slow,
    ssl.SSLError: _tls_failed,
    # A TLS connection that is cut reveals nothing about certificates.
    ssl.SSLEOFError: _unreadable,
    ssl.SSLZeroReturnError: _unreadable,
    ssl.SSLSyscallError: _unreadable,
}
"""From their exceptions to ours. The most specific class wins."""


def host_of(url: str) -> str:
    """Return the host name of a URL; "" without one."""
    return urlsplit(url).hostname or ""


def is_on_this_machine(url: str) -> bool:
    """Return whether the host of a URL is this machine, which is never behind a proxy."""
    return host_of(url) in ("127.0.0.1", "localhost", "::1")


def _root_cause(error: BaseException) -> BaseException:
    # Any other exception below may be one that our caller was handling.
    below = error.__context__
    while isinstance(below, FOREIGN) and not isinstance(below, RldsError):
        error, below = below, below.__context__
    return error


def _body(url: str, response: requests.Response) -> bytes:
    with translated(url):
        return response.raw.read(MAX_REFUSAL_BYTES, decode_content=True) or b""


def whole_number(text: str) -> int | None:
    """Return a header, or a part of one, as a number; None if it is not a number or too long."""
    return int(text) if re.fullmatch(f"[0-9]{{1,{MAX_DIGITS}}}", text) else None


def _retry_after(text: str | None) -> float | None:
    """Return the seconds of a Retry-After header, a number or a date."""
    if text is None:
        return None
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError, OSError):
        return None
