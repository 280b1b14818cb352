"""Lists of what a publisher has: a public bucket of Google Cloud Storage, by its JSON API."""

from __future__ import annotations

import base64
from typing import Any, NamedTuple
from urllib.parse import quote

from datasets_cli.errors import (
    MIRROR,
    AccessError,
    NetworkError,
    OfflineError,
    RldsError,
    SourceError,
)
from datasets_cli.sources.resource import Web

HOST = "https://storage.googleapis.com/"
MOST_PAGES = 100
"""Of one list; a page has up to 1,000 files."""


class BucketObject(NamedTuple):
    """A file in a bucket.

    Args:
        name: with ``/`` between its parts.
        size: bytes.
        checksums: ``{"md5": hex}``; empty for a composite object, which has none.
    """

    name: str
    size: int
    checksums: dict[str, str]


def object_url(bucket: str, name: str) -> str:
    """Return where a file of a public bucket can be downloaded from."""
    return f"{HOST}{bucket}/{quote(name)}"


def list_objects(bucket: str, prefix: str, web: Web) -> list[BucketObject]:
    """Return the bucket's files whose names begin with ``prefix``, in the order of their names.

    Raises:
        AccessError: the bucket, or its list, is closed.
        NetworkError: no answer.
        SourceError: the answer is not such a list, or one of more than ``MOST_PAGES``.
    """
    base = f"{HOST}storage/v1/b/{bucket}/o?prefix={quote(prefix)}"
    url, items = base, []
    for _ in range(MOST_PAGES):
        page = web.json(url)
        try:
            items += [_object(item) for item in page.get("items", [])]
            token = quote(page.get("nextPageToken", ""), safe="")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise SourceError(
                f"{url} does not answer as Google Cloud Storage does: expected an object whose "
                f"items have name and size. Check {MIRROR}."
            ) from error
        if not token:
            return items
        url = f"{base}&pageToken={token}"
    raise SourceError(f"{base} has more than {MOST_PAGES} pages, which is more than is read.")


def may_lack_list(error: RldsError, url: str, web: Web) -> bool:
    """Return whether files may be available although their list is not.

    Args:
        error: why the list is not available.
        url: of the files, or the beginning of it.
        web: who was asked for the list.

    Returns:
        True where the list is refused, or where its server does not answer but the user has a
        mirror of the files, which need not have any list.
    """
    if isinstance(error, NetworkError) and not isinstance(error, OfflineError):
        return len(web.candidates(url)) > 1
    return isinstance(error, AccessError)


def _object(item: dict[str, Any]) -> BucketObject:
    checksums = {"md5": base64.b64decode(item["md5Hash"]).hex()} if "md5Hash" in item else {}
    return BucketObject(str(item["name"]), int(item["size"]), checksums)
