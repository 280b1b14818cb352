"""Downloading one resource: stream to a part file, resume it, check it, name it.

    FILE.part        bytes so far          FILE.part.json   url, validator and size they belong to
    FILE             complete and checked  FILE.json        the same, and the sha256

Bytes are written at their own offsets, never appended, so that two processes that fetch the same
file without working locks write the same bytes in the same places.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import requests

from datasets_cli.errors import AccessError, IntegrityError, NetworkError, RldsError, SourceError
from datasets_cli.progress import Progress
from datasets_cli.sources.disk import check_free_space, disk_errors
from datasets_cli.sources.http import Http, TransientError, translated
from datasets_cli.sources.resource import CHUNK_BYTES, Digests, RawFile, Resource, examine


def fetch(
    resource: Resource, folder: Path, http: Http, progress: Progress, *, accept_any: bool = False
) -> RawFile:
    """Return the resource as a checked file in ``folder``, downloading what is missing.

    Args:
        resource: what to fetch; its URLs, each behind its mirrors, are tried in order.
        folder: where the file, or the part of it that is there, lies.
        http: the client.
        progress: told of every chunk.
        accept_any: take content whose size or checksum is not the catalogue's.

    Raises:
        IntegrityError: every server that answered sent something else.
        AccessError: every server refuses.
        NetworkError: no server answers.
        DiskFull: no room.
    """
    target = folder / resource.filename
    with disk_errors(target):
        target.parent.mkdir(parents=True, exist_ok=True)
    done = _reuse(resource, target, accept_any)
    if done is not None:
        progress.fetching(resource.filename, done.size, done.size)
        return done
    failures: list[RldsError] = []
    for url in [candidate for url in resource.urls for candidate in http.candidates(url)]:
        try:
            return _Download(resource, target, url, http, progress, accept_any).run()
        except (NetworkError, AccessError, IntegrityError) as error:
            failures.append(error)
    raise _summary(resource, failures)


def _reuse(resource: Resource, target: Path, accept_any: bool) -> RawFile | None:
    """Return an earlier complete download if its bytes are still what they were."""
    note = _read_json(Path(f"{target}.json"))
    if not target.is_file() or not note:
        return None
    digests = resource.new_digests()
    digests.read(target)
    if digests.hex()["sha256"] != note.get("sha256"):
        return None
    try:
        return examine(
            resource,
            target,
            note["url"],
            digests,
            validator=note["validator"],
            accept_any=accept_any,
        )
    except IntegrityError:
        return None


def _summary(resource: Resource, failures: list[RldsError]) -> RldsError:
    """Return one error for all mirrors: of the first one's kind, naming every failure."""
    if len(failures) == 1:
        return failures[0]
    lines = "\n".join(f"  {number}. {error}" for number, error in enumerate(failures, 1))
    worst = max(failures, key=lambda error: isinstance(error, IntegrityError))
    return type(worst)(f"{resource.filename} could not be had from any of its origins:\n{lines}")


class _Restart(Exception):
    """What lies in the part file cannot be continued."""


class _Download:
    """One resource from one URL."""

    def __init__(
        self,
        resource: Resource,
        target: Path,
        url: str,
        http: Http,
        progress: Progress,
        accept_any: bool,
    ) -> None:
        self.resource = resource
        self.target = target
        self.url = url
        self.http = http
        self.progress = progress
        self.accept_any = accept_any
        self.part = Path(f"{target}.part")
        self.part_note = Path(f"{target}.part.json")

    def run(self) -> RawFile:
        """Attempt until the file is complete; only attempts without progress count as failures."""
        attempt = 0
        restarts = 0
        while True:
            before = self._part_size()
            try:
                return self._attempt(before)
            except _Restart as reason:
                restarts += 1
                self._discard()
                if restarts > 2:
                    raise NetworkError(f"{self.url} cannot be continued or read: {reason}.") from None
            except TransientError as error:
                attempt = 0 if self._part_size() > before else attempt + 1
                if attempt > self.http.retries:
                    raise
                self.http.pause(attempt, error)

    def _attempt(self, offset: int) -> RawFile:
        note = _read_json(self.part_note) if offset else None
        if offset and not (note and self._may_resume(note)):
            self._discard()
            offset, note = 0, None
        digests = self.resource.new_digests()
        if note:
            digests.read(self.part)
        if note and offset == note["size"]:
            return self._finish(note, digests, resumed=True)
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        if note and note["validator"]:
            headers["If-Range"] = note["validator"]
        with self.http.open(self.url, headers) as response:
            if response.status_code == 416:
                raise _Restart("the server has no bytes after the part that is here")
            if response.status_code == 206 and note:
                _check_continues(response, offset, note)
            else:
                offset, note, digests = 0, self._start(response), self.resource.new_digests()
            self._stream(response, note, digests)
        return self._finish(note, digests, resumed=offset > 0)

    def _may_resume(self, note: dict[str, Any]) -> bool:
        """A part may grow only if it is this URL's and something can tell a changed file."""
        return note.get("url") == self.url and bool(
            note.get("validator") or self.resource.checksums
        )

    def _start(self, response: requests.Response) -> dict[str, Any]:
        """Check what the headers promise and note which bytes the new part file will hold."""
        length = response.headers.get("Content-Length")
        size = int(length) if length is not None else None
        if size is not None and not self.accept_any and not self.resource.accepts_size(size):
            raise IntegrityError(
                f"{self.url}: expected {self.resource.size} bytes, the server offers {size}. "
                "It is not the published file; --no-verify takes it all the same."
            )
        etag = response.headers.get("ETag", "")
        strong = etag if etag and not etag.startswith("W/") else None
        note = {
            "url": self.url,
            "validator": strong or response.headers.get("Last-Modified"),
            "size": size,
        }
        if size is not None:
            check_free_space(self.target.parent, size, f"{self.resource.filename} from {self.url}")
        with disk_errors(self.part):
            self._discard()
            self.part_note.write_text(json.dumps(note), encoding="utf-8")
        return note

    def _stream(self, response: requests.Response, note: dict[str, Any], digests: Digests) -> None:
        """Write and hash the body behind the ``digests.size`` bytes that are already here."""
        total = self._largest_size() if note["size"] is None else note["size"]
        with disk_errors(self.part), self.part.open("r+b" if digests.size else "wb") as file:
            file.seek(digests.size)
            for data in _chunks(response, self.url):
                if digests.size == 0:
                    self._check_head(data)
                digests.update(data)
                if total is not None and digests.size > total:
                    raise IntegrityError(
                        f"{self.url}: expected {total} bytes, but the server sends more."
                    )
                file.write(data)
                self.progress.fetching(self.resource.filename, digests.size, total)
            _sync(file)
        if note["size"] is not None and digests.size < note["size"]:
            raise TransientError(f"{self.url} stopped at byte {digests.size} of {note['size']}.")

    def _largest_size(self) -> int | None:
        sizes = [content.size for content in self.resource.contents]
        known = [size for size in sizes if size is not None]
        return None if self.accept_any or len(known) < len(sizes) else max(known)

    def _check_head(self, data: bytes) -> None:
        try:
            self.resource.check_magic(data, self.url)
        except SourceError:
            self._discard()
            raise

    def _finish(self, note: dict[str, Any], digests: Digests, *, resumed: bool) -> RawFile:
        """Check the complete part file and give it its name."""
        try:
            file = examine(
                self.resource,
                self.target,
                self.url,
                digests,
                validator=note["validator"],
                accept_any=self.accept_any,
            )
        except IntegrityError as error:
            self._discard()  # bytes known to be wrong are never continued
            if resumed:
                raise _Restart(str(error)) from error
            raise IntegrityError(
                f"{error} It came from {self.url}. Try another --mirror; --no-verify takes it all "
                "the same."
            ) from error
        with disk_errors(self.target):
            complete = {**note, "size": digests.size, "sha256": file.sha256}
            Path(f"{self.target}.json").write_text(json.dumps(complete), encoding="utf-8")
            os.replace(self.part, self.target)
            self.part_note.unlink(missing_ok=True)
        return file

    def _part_size(self) -> int:
        try:
            return self.part.stat().st_size
        except FileNotFoundError:
            return 0

    def _discard(self) -> None:
        self.part.unlink(missing_ok=True)
        self.part_note.unlink(missing_ok=True)


def _chunks(response: requests.Response, url: str) -> Iterator[bytes]:
    with translated(url):
        yield from response.raw.stream(CHUNK_BYTES, decode_content=False)


def _check_continues(response: requests.Response, offset: int, note: dict[str, Any]) -> None:
    """Check that a 206 continues exactly the bytes that are here."""
    match = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
    if match is None or int(match[1]) != offset:
        raise _Restart(f"the server answers with another range than bytes {offset}-")
    if match[2] != "*" and note["size"] not in (None, int(match[2])):
        raise _Restart("the file on the server has another size now")
    etag = response.headers.get("ETag")
    if etag and (note["validator"] or "").startswith('"') and etag != note["validator"]:
        raise _Restart("the file on the server has changed")


def _sync(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return None
    return value if isinstance(value, dict) else None
