"""One GET request: its headers, redirects, proxy and certificates."""

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

USER_AGENT = "rlds-cli"
MAX_REDIRECTS = 10


class Session:
    """HTTP connections, reused between requests."""

    def __init__(self, timeout_seconds: tuple[float, float], *, allow_http: bool) -> None:
        self._timeout_seconds = timeout_seconds
        self._allow_http = allow_http
        self._session = _NoRedirects()
        # identity: compression on the fly would break lengths and ranges.
        self._session.headers.update({"User-Agent": USER_AGENT, "Accept-Encoding": "identity"})

    def get(self, url: str, headers: Mapping[str, str]) -> requests.Response:
        """Follow redirects and return the response with its body unread."""
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
            # The body of a redirect is not needed, and may be endless.
            response.close()
            self.check_downgrade(url, place, target)
            sent = self._headers_for(target, place, response, sent)
            place = target
        raise NetworkError(
            f"{url} redirects more than {MAX_REDIRECTS} times.", expected=MAX_REDIRECTS
        )

    def check_downgrade(self, url: str, place: str, target: str) -> None:
        """Reject a redirect or a next page that leads from https to http."""
        schemes = urlsplit(place).scheme, urlsplit(target).scheme
        if schemes == ("https", "http") and not self._allow_http:
            raise NetworkError(
                f"{url} leads from https to {public_url(target)}, whose traffic anyone on the way "
                "can read and change; expected an https address.",
                expected="https",
                found=public_url(target),
                advice=f"Try another {MIRROR}; {by_reader('--allow-http, ', '')}RLDS_ALLOW_HTTP=1 "
                "follows it anyway.",
            )

    def _target(self, url: str, place: str, response: requests.Response) -> str | None:
        """Return the target of a redirect; None if the response is not a redirect."""
        try:
            location = self._session.redirect_target(response)
            if location is None:
                return None
            target = urljoin(place, requote_uri(location))
            _check_address(url, target)
            return target
        except (NetworkError, ValueError):  # ValueError: its bytes are not text
            response.close()
            raise not_an_address(url) from None

    def _headers_for(
        self, target: str, place: str, response: requests.Response, headers: Mapping[str, str]
    ) -> dict[str, str]:
        """Return the headers for a redirect's target; another host does not get the token."""
        kept = {name: value for name, value in headers.items() if name != "Authorization"}
        authorization = response.request.headers.get("Authorization")
        if authorization and not self._session.should_strip_auth(place, target):
            kept["Authorization"] = authorization
        return kept


class _NoRedirects(requests.Session):
    """A session that follows no redirects: requests would read the whole body of each."""

    def get_redirect_target(self, resp: Any) -> None:
        return None

    def redirect_target(self, response: requests.Response) -> str | None:
        """Return the Location header of a redirect, unchanged."""
        return super().get_redirect_target(response)


def _check_address(url: str, place: str) -> None:
    """Reject an address with an invalid port before a library fails on it."""
    try:
        _ = urlsplit(place).port
    except ValueError:
        raise not_an_address(url) from None


def _check_certificates(place: str) -> None:
    """Reject a missing file of certificates by its variable, which requests does not name."""
    if not place.startswith("https:"):
        return
    name = next(filter(os.environ.get, CA_VARIABLES), None)
    if name is not None and not Path(os.environ[name]).exists():
        raise UsageError(
            f"{name} names {os.environ[name]}, which does not exist; expected a file or folder of "
            "certificates.",
            argument=name,
            path=os.environ[name],
            advice="Correct it or unset it.",
        )


def _authorization(url: str) -> dict[str, str]:
    """Return the header with the user's Hugging Face token, for that host only."""
    token, parts = os.environ.get("HF_TOKEN"), urlsplit(url)
    is_theirs = parts.scheme == "https" and parts.hostname == "huggingface.co"
    return {"Authorization": f"Bearer {token}"} if token and is_theirs else {}


class _PublicLog(logging.Filter):
    """Removes secrets and tracebacks from urllib3's log messages."""

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
