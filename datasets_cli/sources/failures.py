"""What the answers and failures of servers mean, as errors of this package."""

from __future__ import annotations

import email.utils
import os
import re
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
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
    for_reader,
    public_url,
)
from datasets_cli.sources.pace import TooSlow
from datasets_cli.sources.resource import NoSuchData

REFUSALS = {
    401: "it needs a login that this program was not given",
    403: "the server refuses it: it is closed, gated or withdrawn",
    404: "the server does not have it (any more)",
    410: "the server says it is gone for good",
    451: "it is withheld for legal reasons",
}
MISSING = frozenset({404, 410})
NOT_AN_ADDRESS = (
    requests.exceptions.InvalidURL,
    requests.exceptions.InvalidSchema,
    requests.exceptions.MissingSchema,
)
CA_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")  # as requests reads them
# A connection that was cut while it spoke TLS says nothing of certificates.
CUT_TLS = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
THEIRS = (OSError, urllib3.exceptions.HTTPError, HTTPException)
TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
MAX_WORDS_BYTES = 1 << 16  # of a refusal that is read for its words
MAX_DIGITS = 18  # of a number in a header; no size has more

WORST = (IntegrityError, NetworkError, AccessError)
COPY = by_reader(
    "--mirror PREFIX=REPLACEMENT (RLDS_MIRRORS) or --source DIR|URL", "RLDS_MIRRORS or source="
)
UNREACHABLE = (
    f"Check the connection. Without a network, {SOURCE} reads files that you have, and "
    f"{by_reader('--offline (RLDS_OFFLINE=1)', 'RLDS_OFFLINE=1')} skips the attempt; "
    f"{by_reader('--mirror (RLDS_MIRRORS)', 'RLDS_MIRRORS')} asks another server. What is "
    "downloaded is kept."
)


class TransientError(NetworkError):
    """A failure worth another try."""

    # `wait` is the server's Retry-After in seconds, if any; `unresolved` the host that was asked,
    # where no address could be found for a name; `slow` where it is a time that was too long.

    wait: float | None = None
    unresolved: str | None = None
    slow = False


def all_failed(what: str, failures: list[RldsError]) -> RldsError:
    """Return one error for all origins, naming each."""
    by_weight = (error for kind in WORST for error in failures if isinstance(error, kind))
    worst = next(by_weight, failures[0])
    lines = [f"  {number}. {error}" for number, error in enumerate(failures, 1)]
    if unresolved := _unresolved(failures):
        return _unreachable(f"{what} could not be downloaded: {unresolved} {UNREACHABLE}")
    heading = f"{what} could not be downloaded from any of its origins:"
    is_transient = isinstance(worst, TransientError)
    if len(failures) == 1:
        return _unreachable(f"{worst} {UNREACHABLE}") if is_transient else worst
    text = "\n".join((heading, *lines, *([f"  {UNREACHABLE}"] if is_transient else [])))
    return _unreachable(text) if is_transient else type(worst)(text)


def _unreachable(text: str) -> NetworkError:
    error = NetworkError(text)
    error.advice = for_reader(UNREACHABLE)
    return error


def _unresolved(failures: list[RldsError]) -> str:
    """Return one sentence for all failures where no server has an address, else ""."""
    if any(getattr(error, "unresolved", None) is None for error in failures):
        return ""
    urls = dict.fromkeys(str(error).partition(" cannot be read")[0] for error in failures)
    reason = str(failures[0]).rpartition(" (")[2]
    return f"no address is found for the server of {' and '.join(urls)} ({reason}"


def check_status(
    url: str, response: requests.Response, no_such_data: NoSuchData | None = None
) -> None:
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
    if no_such_data and (words := no_such_data(status, _body(url, response))):
        raise UnknownDataset(f"{url} answered HTTP {status}: {words}.")
    if status in REFUSALS:
        refusal = AccessError(
            f"{url} cannot be downloaded: HTTP {status}, {REFUSALS[status]}. "
            f"Use {COPY} if you have a copy."
        )
        refusal.missing = status in MISSING
        raise refusal
    if status in TRANSIENT:
        error = TransientError(f"{url} answered HTTP {status} {response.reason}.")
        error.wait = _retry_after(response.headers.get("Retry-After"))
        raise error
    raise NetworkError(f"{url} answered HTTP {status} {response.reason}, which was not expected.")


@contextmanager
def translated(url: str) -> Iterator[None]:
    """Turn what HTTP libraries raise into ``TransientError``; NetworkError if no retry helps."""
    # The failures themselves are not shown with it: what they say has whole URLs in it.
    try:
        yield
    except RldsError:
        raise
    except NOT_AN_ADDRESS:
        raise not_an_address(url) from None
    # ValueError: http.client's, of a chunk of a negative size.
    except (requests.RequestException, urllib3.exceptions.HTTPError, ValueError) as error:
        raise _failure(url, _root_cause(error)) from None


def _failure(url: str, cause: BaseException) -> NetworkError:
    if isinstance(cause, socket.gaierror):
        host, reason = host_of(url), cause.strerror or cause
        failure = TransientError(
            f"{url} cannot be read: no address is found for {host} ({reason})."
        )
        failure.unresolved = host
        return failure
    if isinstance(cause, TimeoutError):
        words = "is too slow" if isinstance(cause, TooSlow) else "cannot be read: TimeoutError"
        failure = TransientError(f"{url} {words}: {cause}.")
        failure.slow = True
        return failure
    if isinstance(cause, ssl.SSLError) and not isinstance(cause, CUT_TLS):
        return NetworkError(_tls_advice(url, cause))
    return TransientError(f"{url} cannot be read: {type(cause).__name__}: {cause}.")


def _tls_advice(url: str, cause: ssl.SSLError) -> str:
    """Return what went wrong with TLS, and the settings that decide about it."""
    variable = next(filter(os.environ.get, CA_VARIABLES), None)
    known_by = f"those of {variable}={os.environ[variable]}" if variable else "the built-in ones"
    proxy = None if is_on_this_machine(url) else select_proxy(url, get_environ_proxies(url))
    way = f"through the proxy {public_url(proxy)} (HTTPS_PROXY)" if proxy else "without a proxy"
    return (
        f"{url} cannot be read over TLS: {cause}. It was asked {way}, and its certificate compared "
        f"with {known_by}. Where a proxy or an organisation signs certificates of its own, set "
        f"REQUESTS_CA_BUNDLE to the file of its certificates; else try another {MIRROR}."
    )


def not_an_address(url: str) -> NetworkError:
    """Return the error of a URL that is not, or does not lead to, a web address."""
    return NetworkError(f"{url} is not, or does not lead to, an http or https address.")


def host_of(url: str) -> str:
    """Return the host that a URL names."""
    return urlsplit(url).hostname or ""


def is_on_this_machine(url: str) -> bool:
    """Return whether a URL names a server of this machine, which is never behind a proxy."""
    return host_of(url) in ("127.0.0.1", "localhost", "::1")


def _root_cause(error: BaseException) -> BaseException:
    # No further: what is below may be an exception that our caller was handling.
    below = error.__context__
    while isinstance(below, THEIRS) and not isinstance(below, RldsError):
        error, below = below, below.__context__
    return error


def _body(url: str, response: requests.Response) -> bytes:
    with translated(url):
        return response.raw.read(MAX_WORDS_BYTES, decode_content=True) or b""


def whole_number(text: str) -> int | None:
    """Return a header, or a part of one, as a number; None if it is not one or too long."""
    return int(text) if re.fullmatch(f"[0-9]{{1,{MAX_DIGITS}}}", text) else None


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
    except (ValueError, OverflowError, OSError):
        return None
