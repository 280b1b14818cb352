"""The list of files in a public bucket of Google Cloud Storage, by its JSON API."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
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
"""Maximum pages of a list; a page has up to 1,000 files."""


class BucketObject(NamedTuple):
    """A file in a bucket.

    Args:
        name: its parts are separated by ``/``.
        size: bytes.
        checksums: ``{"md5": hex}``; empty for a composite object.
    """

    name: str
    size: int
    checksums: dict[str, str]


def object_url(bucket: str, name: str) -> str:
    """Return the download address of a file in a public bucket."""
    return f"{HOST}{bucket}/{quote(name)}"


def list_objects(bucket: str, prefix: str, web: Web) -> list[BucketObject]:
    """Return the bucket's files whose names begin with ``prefix``, in the order of their names.

    Raises:
        AccessError: access to the bucket, or to its list, is denied.
        NetworkError: the server does not answer.
        SourceError: the answer is not a list of files, or has more than ``MOST_PAGES`` pages.
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
                f"{url} did not answer like Google Cloud Storage: expected items with name and "
                "size.",
                expected="items with name and size",
                advice=f"Check {MIRROR}.",
            ) from error
        if not token:
            return items
        url = f"{base}&pageToken={token}"
    raise SourceError(
        f"{base} has more than {MOST_PAGES} pages; no more are read.", expected=MOST_PAGES
    )


def count_shards(names: Iterable[str], where: str) -> int:
    """Return the number of files of a set, whose names end in ``-00000-of-00050``.

    Raises:
        AccessError: there are none.
        SourceError: a file is missing.
    """
    found = [match for name in names if (match := re.search(r"-(\d{5})-of-(\d{5})$", name))]
    if not found:
        raise AccessError(
            f"{where}* is not available: the bucket does not have these files.",
            path=where,
            advice="Use --mirror or --source if you have a copy.",
        )
    total = int(found[0][2])
    missing = set(range(total)) - {int(match[1]) for match in found if int(match[2]) == total}
    if missing:
        raise SourceError(
            f"{where}* lacks {len(missing)} of {total} files; the first missing one is number "
            f"{min(missing)}.",
            path=where,
            expected=total,
            found=total - len(missing),
            advice="Try another --mirror or --source.",
        )
    return total


def may_lack_list(error: RldsError, url: str, web: Web) -> bool:
    """Return whether files may be available although their list is not.

    They may be if access to the list is denied, or if its server does not answer and the user has a
    mirror, which may have the files without a list.

    Args:
        error: why the list is not available.
        url: the address of the files, or its beginning.
        web: the client that requested the list.
    """
    if isinstance(error, NetworkError) and not isinstance(error, OfflineError):
        return len(web.candidates(url)) > 1
    return isinstance(error, AccessError)


def _object(item: dict[str, Any]) -> BucketObject:
    checksums = {"md5": base64.b64decode(item["md5Hash"]).hex()} if "md5Hash" in item else {}
    return BucketObject(str(item["name"]), int(item["size"]), checksums)
