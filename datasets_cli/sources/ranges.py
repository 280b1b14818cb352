"""Range requests: the headers for the rest of a file, and whether a response continues it."""

from __future__ import annotations

import re
from dataclasses import replace

import requests

from datasets_cli.sources.failures import TransientError, whole_number
from datasets_cli.sources.partial_download import DownloadState


class Restart(Exception):
    """The partial file cannot be resumed. The message says why."""


def range_headers(state: DownloadState, offset: int) -> dict[str, str]:
    """Return the headers of a request for the bytes after the first ``offset``."""
    condition = {"If-Range": state.validator} if state.validator else {}
    return {"Range": f"bytes={offset}-", **condition}


def content_length(response: requests.Response, url: str) -> int | None:
    """Return the Content-Length of a response; None if it has none."""
    text = response.headers.get("Content-Length")
    if text is None:
        return None
    size = whole_number(text)
    if size is None:
        # Without a length, a connection that is cut looks like the end of the file.
        raise TransientError(
            f"{url} sent a Content-Length that is not a size: {text[:40]!r}.", found=text[:40]
        )
    return size


def continued(
    response: requests.Response, offset: int, state: DownloadState, *, has_checksum: bool
) -> DownloadState:
    """Return the state of a partial file that a response with status 206 continues."""
    content_range = response.headers.get("Content-Range", "")
    match = re.fullmatch("bytes ([0-9]{1,18})-[0-9]+/([0-9]{1,18}|[*])", content_range)
    if match is None or int(match[1]) != offset:
        raise Restart(f"the server does not answer with the range bytes {offset}-")
    size = state.size if match[2] == "*" else int(match[2])
    if state.size not in (None, size):
        raise Restart("the file on the server has changed its size")
    is_etag = state.validator is not None and state.validator.startswith('"')
    validator = response.headers.get("ETag" if is_etag else "Last-Modified")
    if state.validator and validator and validator != state.validator:
        raise Restart("the file on the server has changed")
    # A server without support for If-Range also answers 206 for a file that has changed.
    if not validator and not has_checksum:
        raise Restart("the server sends neither ETag nor Last-Modified")
    return replace(state, size=size)


def is_whole(response: requests.Response, offset: int, state: DownloadState) -> bool:
    """Return whether a 416 reveals that a file of unknown size is complete."""
    is_at_end = response.headers.get("Content-Range") == f"bytes */{offset}"
    return response.status_code == 416 and state.size is None and is_at_end
