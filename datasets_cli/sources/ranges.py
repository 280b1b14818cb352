"""Ranges: how the rest of a file is asked for, and whether an answer continues what is here."""

from __future__ import annotations

import re
from dataclasses import replace

import requests

from datasets_cli.sources.failures import TransientError, whole_number
from datasets_cli.sources.partial_download import DownloadState


class Restart(Exception):
    """What is in the partial file cannot be continued."""


def range_headers(state: DownloadState | None, offset: int) -> dict[str, str]:
    """Return the headers that ask for the bytes from ``offset`` on; none where nothing is here."""
    if state is None:
        return {}
    condition = {"If-Range": state.validator} if state.validator else {}
    return {"Range": f"bytes={offset}-", **condition}


def content_length(response: requests.Response, url: str) -> int | None:
    """Return how many bytes an answer promises; None where it does not say."""
    text = response.headers.get("Content-Length")
    if text is None:
        return None
    size = whole_number(text)
    if size is None:
        # Without it the end of a connection that is cut would be taken for the end of the file.
        raise TransientError(f"{url} sent a Content-Length that is not a size: {text[:40]!r}.")
    return size


def continued(
    response: requests.Response, offset: int, state: DownloadState, *, has_checksum: bool
) -> DownloadState:
    """Check that a 206 continues exactly the bytes that are here; return their state."""
    content_range = response.headers.get("Content-Range", "")
    match = re.fullmatch("bytes ([0-9]{1,18})-[0-9]+/([0-9]{1,18}|[*])", content_range)
    if match is None or int(match[1]) != offset:
        raise Restart(f"the server answers with another range than bytes {offset}-")
    size = state.size if match[2] == "*" else int(match[2])
    if state.size not in (None, size):
        raise Restart("the file on the server has changed its size")
    is_etag = state.validator is not None and state.validator.startswith('"')
    validator = response.headers.get("ETag" if is_etag else "Last-Modified")
    if state.validator and validator and validator != state.validator:
        raise Restart("the file on the server has changed")
    # A server that does not know If-Range answers 206 for a file that has changed, too.
    if not validator and not has_checksum:
        raise Restart("the server does not say whether the file is still the same")
    return replace(state, size=size)


def is_whole(response: requests.Response, offset: int, state: DownloadState) -> bool:
    """Return whether a 416 says that nothing is missing, where the size was not known before."""
    is_at_end = response.headers.get("Content-Range") == f"bytes */{offset}"
    return response.status_code == 416 and state.size is None and is_at_end
