"""Documents: answers that are JSON, and lists of them in pages."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urljoin

import requests

from datasets_cli.errors import NetworkError
from datasets_cli.formats.limits import beyond, limit
from datasets_cli.sources.failures import host_of

# A connection that stalls loses less than this; larger reads are not faster.
READ_BYTES = 1 << 16


def read_document(url: str, response: requests.Response) -> Any:
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


def next_page(publisher: str, response: requests.Response) -> str | None:
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
