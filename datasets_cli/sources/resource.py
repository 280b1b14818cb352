"""A resource: one remote file, the size and checksums of its bytes, and its copy on this disk."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from datasets_cli.core.checked_json import JsonForm
from datasets_cli.errors import MIRROR, NO_VERIFY, SOURCE, IntegrityError, SourceError, public_text
from datasets_cli.sources.disk import MAX_NAME_BYTES

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
ZIP_MAGIC = b"PK\x03\x04"
KINDS = {HDF5_MAGIC: "an HDF5 file", ZIP_MAGIC: "a zip archive"}
HTML = (b"<!doctype", b"<html")
CHUNK_BYTES = 1 << 20
HEAD_BYTES = 512
_SURROGATE = re.compile("[\ud800-\udfff]")


NoSuchData = Callable[[int, bytes], str | None]
"""Returns the publisher's words for unknown data from a status and a body, or None."""


class Web(Protocol):
    """The part of the network client that recipes use."""

    def json(self, url: str, no_such_data: NoSuchData | None = None) -> Any:
        """Return the JSON document at ``url``.

        Raises:
            UnknownDataset: ``no_such_data`` recognises the refusal.
        """

    def pages(self, url: str) -> Iterator[Any]:
        """Yield the JSON documents of a list in pages. Each page names the next one."""

    def has(self, url: str) -> bool:
        """Return whether there is a file at ``url``."""

    def candidates(self, url: str) -> list[str]:
        """Return the addresses to try for ``url``: the user's mirrors of it, then itself."""


class Place(Protocol):
    """The folder or address of ``--source`` with the raw files of one dataset."""

    def names(self) -> list[str] | None:
        """Return the names of its files; None if they cannot be listed."""

    def has(self, filename: str) -> bool:
        """Return whether it has a file of that name."""

    def json(self, filename: str) -> Any:
        """Return the JSON document in a file."""


class Digests:
    """Several running hashes of one stream of bytes."""

    def __init__(self, algorithms: Iterable[str]) -> None:
        self._hashes = {name: hashlib.new(name) for name in sorted(algorithms)}
        self.size = 0
        self.head = b""

    def update(self, data: bytes) -> None:
        """Add the next bytes."""
        if self.size < HEAD_BYTES:
            self.head += data[: HEAD_BYTES - self.size]
        self.size += len(data)
        for running in self._hashes.values():
            running.update(data)

    def hex(self) -> dict[str, str]:
        """Return the hexadecimal digests of the bytes so far."""
        return {name: running.hexdigest() for name, running in self._hashes.items()}

    def read(self, path: Path) -> bytes:
        """Add a whole file and return its first bytes."""
        with path.open("rb") as file:
            self.read_file(file)
        return self.head

    def read_file(self, file: BinaryIO) -> None:
        """Add the rest of an open file."""
        while data := file.read(CHUNK_BYTES):
            self.update(data)


@dataclass(frozen=True)
class Content:
    """The size and checksums of one published version of a file.

    Args:
        size: bytes, or None if the publisher does not state it.
        checksums: ``{"sha256": hex, …}``; empty if unknown.
        label: the name of this version; empty for the current one.
    """

    size: int | None = None
    checksums: Mapping[str, str] = field(default_factory=dict)
    label: str = ""

    def difference(self, size: int, digests: Mapping[str, str]) -> tuple[str, str] | None:
        """Return an expected value and the different one that was found, if any."""
        if self.size is not None and size != self.size:
            return f"{self.size} bytes", str(size)
        for algorithm, expected in self.checksums.items():
            if digests[algorithm] != expected:
                return f"{algorithm} {expected}", digests[algorithm]
        return None


@dataclass(frozen=True)
class Resource(JsonForm):
    """One remote file.

    Args:
        urls: the addresses, tried in order.
        filename: its name, also under a ``--source`` folder; may contain ``/``.
        size: bytes, or None.
        checksums: ``{algorithm: hex}`` of the current version.
        older: earlier published versions, accepted and named in the manifest.
        magic: the bytes that the file must begin with.
        no_such_data: recognises the publisher's refusal of unknown data.
        describes: whether it is metadata, such as an answer of the publisher's API. Its bytes may
            change while the data stay the same, so its sha256 does not identify the data.
    """

    JSON = "filename bytes=size urls=public_urls"

    urls: tuple[str, ...]
    filename: str
    size: int | None = None
    checksums: Mapping[str, str] = field(default_factory=dict)
    older: tuple[Content, ...] = ()
    magic: bytes = b""
    no_such_data: NoSuchData | None = None
    describes: bool = False

    def __post_init__(self) -> None:
        parts = self.filename.split("/")
        if any(part in ("", ".", "..") or "\\" in part or "\0" in part for part in parts):
            raise IntegrityError(
                f"The file name {self.filename!r} would leave its folder.", found=self.filename
            )
        # JSON can contain half of a surrogate pair, which cannot be encoded.
        size = max(len(part.encode("utf-8", "surrogatepass")) for part in parts)
        if size > MAX_NAME_BYTES or _SURROGATE.search(self.filename):
            raise IntegrityError(
                f"The file name {self.filename!r} is not valid: expected up to {MAX_NAME_BYTES} "
                f"bytes between two slashes, found {size}.",
                expected=MAX_NAME_BYTES,
                found=size,
            )

    @property
    def public_urls(self) -> list[str]:
        """The addresses without their secrets."""
        return [public_text(url) for url in self.urls]

    @property
    def contents(self) -> tuple[Content, ...]:
        """Every accepted content, the current one first."""
        return (Content(self.size, self.checksums), *self.older)

    def accepts_size(self, size: int) -> bool:
        """Return whether some accepted content may have this size in bytes."""
        return any(content.size in (None, size) for content in self.contents)

    @property
    def largest_size(self) -> int | None:
        """The largest size of an accepted content; None if the size of one is unknown."""
        sizes = [content.size for content in self.contents]
        known = [size for size in sizes if size is not None]
        return max(known) if len(known) == len(sizes) else None

    def new_digests(self) -> Digests:
        """Return running hashes: sha256 and every algorithm of the checksums."""
        return Digests({"sha256", *(name for c in self.contents for name in c.checksums)})

    def identify(self, size: int, digests: Mapping[str, str]) -> Content:
        """Return the accepted content that a file has.

        Raises:
            IntegrityError: its content is not an accepted one.
        """
        differences = []
        for content in self.contents:
            difference = content.difference(size, digests)
            if difference is None:
                return content
            differences.append(difference)
        expected, found = differences[0]
        raise IntegrityError(
            f"{self.filename} is not the published file: expected {expected}, found {found}.",
            expected=expected,
            found=found,
        )

    def check_magic(self, first_bytes: bytes, origin: str) -> None:
        """Check the first bytes of a file before its checksum: the message is clearer.

        Raises:
            SourceError: they are not ``magic``; without one, the file is a web page.
        """
        start = first_bytes[:200].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
        fits = first_bytes.startswith(self.magic) if self.magic else not start.startswith(HTML)
        if fits:
            return
        found = repr(first_bytes[:16])
        if start.startswith((*HTML, b"<?xml")):
            found = "a web page"
        elif start.startswith(b"version https://git-lfs"):
            found = "a Git LFS pointer instead of the file"
        kind = f"a file that begins {self.magic!r}" if self.magic else "the published file"
        kind = KINDS.get(self.magic, kind)
        raise SourceError(
            f"{self.filename} from {origin}: expected {kind}, found {found}.",
            path=self.filename,
            expected=kind,
            found=found,
            advice=f"Try another {MIRROR} or {SOURCE}.",
        )


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
