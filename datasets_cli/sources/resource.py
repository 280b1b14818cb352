"""A resource: one remote file, and what its bytes must be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from datasets_cli.core.checked_json import JsonForm
from datasets_cli.errors import MIRROR, SOURCE, IntegrityError, SourceError, public_text
from datasets_cli.sources.digests import Digests
from datasets_cli.sources.disk import MAX_NAME_BYTES

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
HTML = (b"<!doctype", b"<html")


NoSuchData = Callable[[int, bytes], str | None]
"""Returns, of a refusal's status and body, the publisher's words for unknown data, or None."""


class Web(Protocol):
    """What a recipe may ask of the network."""

    def json(self, url: str, no_such_data: NoSuchData | None = None) -> Any:
        """Return the JSON document at ``url``; UnknownDataset where ``no_such_data`` says so."""

    def pages(self, url: str) -> Iterator[Any]:
        """Yield the JSON documents of a list in pages, of which each names the next."""

    def has(self, url: str) -> bool:
        """Return whether there is a file at ``url``."""

    def candidates(self, url: str) -> list[str]:
        """Return what is tried for ``url``: the user's mirrors of it, then itself."""


class Place(Protocol):
    """Where ``--source`` says that one dataset's raw files are; as text, what the user gave."""

    def names(self) -> list[str] | None:
        """Return the names of the files there; None where they cannot be listed."""

    def has(self, filename: str) -> bool:
        """Return whether a file of that name is there."""

    def json(self, filename: str) -> Any:
        """Return the JSON document in a file."""


@dataclass(frozen=True)
class Content:
    """The size and checksums of one published version of a file.

    Args:
        size: bytes, or None where the publisher does not say.
        checksums: ``{"sha256": hex, …}``; empty where none is known.
        label: what to call this version; empty for the current one.
    """

    size: int | None = None
    checksums: Mapping[str, str] = field(default_factory=dict)
    label: str = ""

    def difference(self, size: int, digests: Mapping[str, str]) -> str:
        """Return how a file differs from this content; empty when it does not."""
        if self.size is not None and size != self.size:
            return f"expected {self.size} bytes, found {size}"
        for algorithm, expected in self.checksums.items():
            if digests[algorithm] != expected:
                return f"expected {algorithm} {expected}, found {digests[algorithm]}"
        return ""


@dataclass(frozen=True)
class Resource(JsonForm):
    """One remote file.

    Args:
        urls: where it can be downloaded, tried in order.
        filename: its own name, also under a ``--source`` folder; may hold ``/``.
        size: bytes, or None.
        checksums: ``{algorithm: hex}`` of the current version.
        older: earlier published versions, accepted and named in the manifest.
        magic: the bytes that the file must begin with.
        no_such_data: recognises the publisher's refusal of data that it does not have.
        describes: whether it is a page about the data, whose bytes change without them, such as an
            answer of the publisher's API; the data are then not known by its sha256.
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
            raise IntegrityError(f"The file name {self.filename!r} would leave its folder.")
        # Half of a surrogate pair, which JSON may have, has no bytes.
        size = max(len(part.encode("utf-8", "surrogatepass")) for part in parts)
        if size > MAX_NAME_BYTES or any("\ud800" <= letter <= "\udfff" for letter in self.filename):
            raise IntegrityError(
                f"The file name {self.filename!r} cannot be that of a file: expected text of up to "
                f"{MAX_NAME_BYTES} bytes between two slashes, found {size}."
            )

    @property
    def public_urls(self) -> list[str]:
        """Where it can be downloaded, without the secrets of addresses."""
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
        """The most bytes that an accepted content has; None where one's size is unknown."""
        sizes = [content.size for content in self.contents]
        known = [size for size in sizes if size is not None]
        return max(known) if len(known) == len(sizes) else None

    def new_digests(self) -> Digests:
        """Return running hashes: sha256 and every algorithm the checksums need."""
        return Digests({"sha256", *(name for c in self.contents for name in c.checksums)})

    def identify(self, size: int, digests: Mapping[str, str]) -> Content:
        """Return the accepted content that a file has.

        Raises:
            IntegrityError: it has none of them.
        """
        differences = []
        for content in self.contents:
            difference = content.difference(size, digests)
            if not difference:
                return content
            differences.append(difference)
        raise IntegrityError(f"{self.filename} is not the published file: {differences[0]}.")

    def check_magic(self, first_bytes: bytes, origin: str) -> None:
        """Check how a file begins, before its checksum, for a clearer message.

        Raises:
            SourceError: it begins with other bytes; the message names a web page or LFS pointer.
                Without a magic anything but a web page is accepted.
        """
        start = first_bytes[:200].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
        fits = first_bytes.startswith(self.magic) if self.magic else not start.startswith(HTML)
        if fits:
            return
        found = repr(first_bytes[:16])
        if start.startswith((*HTML, b"<?xml")):
            found = "a web page"
        elif start.startswith(b"version https://git-lfs"):
            found = "a Git LFS pointer, not the file it stands for"
        kind = f"a file that begins {self.magic!r}" if self.magic else "the published file"
        kind = "an HDF5 file" if self.magic == HDF5_MAGIC else kind
        raise SourceError(
            f"{self.filename} from {origin}: expected {kind}, found {found}. "
            f"Try another {MIRROR} or {SOURCE}."
        )
