"""One GET: what is told to whom, which redirects are followed, by which proxy and certificates."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from requests.utils import requote_uri

from datasets_cli.errors import MIRROR, NetworkError, UsageError, by_reader, public_url
from datasets_cli.sources.failures import CA_VARIABLES, is_on_this_machine, not_an_address
from datasets_cli.sources.pace import PacedAdapter, PaceLimits

USER_AGENT = "rlds-cli"
MAX_REDIRECTS = 10


class Session:
    """Connections that are kept between requests."""

    def __init__(
        self, limits: PaceLimits, timeout_seconds: tuple[float, float], *, allow_http: bool
    ) -> None:
        self._timeout_seconds = timeout_seconds
        self._allow_http = allow_http
        self._session = _NoRedirects()
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, PacedAdapter(limits))
        # identity: a server that compresses on the fly breaks lengths and ranges.
        self._session.headers.update({"User-Agent": USER_AGENT, "Accept-Encoding": "identity"})

    def get(self, url: str, headers: Mapping[str, str]) -> requests.Response:
        """Return the answer to a GET, its body still to be read, where redirects lead."""
        _check_address(url, url)
        place = url
        sent = {**_authorization(url), **headers}
        for _ in range(MAX_REDIRECTS + 1):
            _check_certificates(place)
            response = self._session.get(
                place,
                proxies={"http": "", "https": ""} if is_on_this_machine(place) else None,
                headers=sent,
                stream=True,
                timeout=self._timeout_seconds,
            )
            target = self._target(url, place, response)
            if target is None:
                return response
            # Its body is not read: nobody needs it, and it may have no end.
            response.close()
            self.check_downgrade(url, place, target)
            sent = self._headers_for(target, place, response, sent)
            place = target
        raise NetworkError(f"{url} redirects more than {MAX_REDIRECTS} times.")

    def check_downgrade(self, url: str, place: str, target: str) -> None:
        """Check that an address of a server is as safe as the one that it was asked by."""
        schemes = urlsplit(place).scheme, urlsplit(target).scheme
        if schemes == ("https", "http") and not self._allow_http:
            raise NetworkError(
                f"{url} leads from https to {public_url(target)}, where anyone on the way can read "
                f"and change what is sent; expected an https address. Try another {MIRROR}; "
                f"{by_reader('--allow-http, ', '')}RLDS_ALLOW_HTTP=1 follows it all the same."
            )

    def _target(self, url: str, place: str, response: requests.Response) -> str | None:
        """Return the address that a redirect leads to; None if the answer is not a redirect."""
        try:
            location = self._session.redirect_target(response)
            if location is None:
                return None
            target = urljoin(place, requote_uri(location))
            _check_address(url, target)
            return target
        except (NetworkError, ValueError):  # ValueError: it is not even text
            response.close()
            raise not_an_address(url) from None

    def _headers_for(
        self, target: str, place: str, response: requests.Response, headers: Mapping[str, str]
    ) -> dict[str, str]:
        """Return the headers for a redirect's target; another host is not told who asks."""
        kept = {name: value for name, value in headers.items() if name != "Authorization"}
        authorization = response.request.headers.get("Authorization")
        if authorization and not self._session.should_strip_auth(place, target):
            kept["Authorization"] = authorization
        return kept


class _NoRedirects(requests.Session):
    """A session that follows no redirect: requests would read the whole body of one."""

    def get_redirect_target(self, resp: Any) -> None:
        return None

    def redirect_target(self, response: requests.Response) -> str | None:
        """Return the location that a redirect states, unchanged."""
        return super().get_redirect_target(response)


def _check_address(url: str, place: str) -> None:
    """Refuse an invalid address before a library fails on it."""
    try:
        _ = urlsplit(place).port
    except ValueError:
        raise not_an_address(url) from None


def _check_certificates(place: str) -> None:
    """Refuse a missing file of certificates by name; requests does not name it."""
    if not place.startswith("https:"):
        return
    name = next(filter(os.environ.get, CA_VARIABLES), None)
    if name is not None and not Path(os.environ[name]).exists():
        raise UsageError(
            f"{name} names {os.environ[name]}, which does not exist. Expected a file, or a folder, "
            "of the certificates that https servers are known by. Correct it or unset it."
        )


def _authorization(url: str) -> dict[str, str]:
    """Return the user's Hugging Face token, for that host only."""
    token, parts = os.environ.get("HF_TOKEN"), urlsplit(url)
    is_theirs = parts.scheme == "https" and parts.hostname == "huggingface.co"
    return {"Authorization": f"Bearer {token}"} if token and is_theirs else {}


class _PublicLog(logging.Filter):
    """Takes secrets and tracebacks out of what urllib3 logs of requests."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.exc_info = None
        if isinstance(record.args, tuple):
            record.args = tuple(
                public_url(each) if isinstance(each, str) and "?" in each else each
                for each in record.args
            )
        return True


for _name in ("urllib3.connection", "urllib3.connectionpool"):
    logging.getLogger(_name).addFilter(_PublicLog())
