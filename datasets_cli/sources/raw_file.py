"""A raw file: a resource on this disk, and which of its facts were checked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from datasets_cli.core.checked_json import JsonForm
from datasets_cli.errors import MIRROR, NO_VERIFY, SOURCE, IntegrityError
from datasets_cli.sources.digests import Digests
from datasets_cli.sources.resource import Resource


@dataclass(frozen=True)
class RawFile(JsonForm):
    """A resource on this disk, with the size and hash that were found."""

    JSON = "filename url bytes=size sha256 validator checked version|null? describes|null?"

    path: Path
    filename: str
    url: str
    size: int
    sha256: str
    validator: str | None = None
    checked: str = "nothing"
    version: str = ""
    describes: bool = False


def verify(
    resource: Resource,
    path: Path,
    url: str,
    digests: Digests,
    *,
    validator: str | None = None,
    accept_any: bool = False,
) -> RawFile:
    """Return the checked file, given the digests of all its bytes."""
    stated = digests.hex()
    version = ""
    try:
        content = resource.identify(digests.size, stated)
        version = content.label
        checked = next(iter(content.checksums), "size" if content.size is not None else "nothing")
    except IntegrityError as error:
        if not accept_any:
            raise IntegrityError(
                f"{error} It is from {url}.",
                path=path,
                expected=error.expected,
                found=error.found,
                advice=f"Download it again, or check {SOURCE} and {MIRROR}; {NO_VERIFY} accepts "
                "the file anyway.",
            ) from error
        checked = f"not verified: {error}"
    return RawFile(
        path,
        resource.filename,
        url,
        digests.size,
        stated["sha256"],
        validator,
        checked,
        version,
        resource.describes,
    )
