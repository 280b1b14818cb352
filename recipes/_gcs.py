"""Google Cloud Storage: what lies in a public bucket, by its JSON API."""

from __future__ import annotations

import base64
import binascii
from typing import Any, NamedTuple
from urllib.parse import quote

from datasets_cli.recipe import SourceError, Web

HOST = "https://storage.googleapis.com/"


class Object(NamedTuple):
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
    """Return where a file of a public bucket can be had."""
    return f"{HOST}{bucket}/{quote(name)}"


def list_objects(bucket: str, prefix: str, web: Web) -> list[Object]:
    """Return the bucket's files whose names begin with ``prefix``, in the order of their names.

    Raises:
        AccessError: the bucket, or its list, is closed.
        NetworkError: no answer.
        SourceError: the answer is not such a list.
    """
    base = f"{HOST}storage/v1/b/{bucket}/o?prefix={quote(prefix)}"
    url, found = base, []
    while True:
        page = web.json(url)
        try:
            found += [_object(item) for item in page.get("items", [])]
            token = page.get("nextPageToken")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise SourceError(f"{url} does not answer as Google Cloud Storage does.") from error
        if not token:
            return found
        url = f"{base}&pageToken={quote(token, safe='')}"


def _object(item: dict[str, Any]) -> Object:
    checksums = {}
    if "md5Hash" in item:
        checksums["md5"] = binascii.hexlify(base64.b64decode(item["md5Hash"])).decode()
    return Object(str(item["name"]), int(item["size"]), checksums)
