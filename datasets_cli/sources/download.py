"""Downloading one resource: resume or begin a partial file, stream, check and publish it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import requests

from datasets_cli.core.progress import File, Progress
from datasets_cli.errors import NO_VERIFY, IntegrityError, NetworkError, public_url
from datasets_cli.sources.disk import check_free_space, disk_errors, make_folder
from datasets_cli.sources.failures import TransientError, translated, whole_number
from datasets_cli.sources.http import Http
from datasets_cli.sources.pace import read_body
from datasets_cli.sources.partial_download import DownloadState, PartialDownload, read_state
from datasets_cli.sources.resource import Digests, RawFile, Resource, verify

MAX_RESTARTS = 2


class Restart(Exception):
    """The partial file cannot be resumed. The message says why."""


def fetch(
    resource: Resource,
    folder: Path,
    http: Http,
    progress: Progress,
    *,
    id: str = "",
    accept_any: bool = False,
) -> RawFile:
    """Return the resource of a dataset as a checked file; download the missing bytes."""
    target = folder / resource.filename
    with disk_errors(target):
        make_folder(target.parent)
    file = _reuse(resource, target, accept_any)
    if file is None:
        file = _fetch(resource, target, http, progress, id, accept_any)
    progress(File(id, resource.filename, file.size, file.size))
    return file


def _fetch(
    resource: Resource, target: Path, http: Http, progress: Progress, id: str, accept_any: bool
) -> RawFile:
    """Download from the first address that has the resource."""
    progress(File(id, resource.filename, PartialDownload(target).size, resource.size))

    def ask(url: str, slow_retries: int) -> RawFile:
        partial = PartialDownload(target)
        return _Download(resource, partial, url, http, progress, id, accept_any).run(slow_retries)

    urls = chain.from_iterable(map(http.candidates, resource.urls))
    return http.first_answer(resource.filename, urls, ask)


def _reuse(resource: Resource, target: Path, accept_any: bool) -> RawFile | None:
    """Return an earlier complete download if its bytes have not changed."""
    state = read_state(Path(f"{target}.json"))
    if state is None or not target.is_file():
        return None
    digests = resource.new_digests()
    digests.read(target)
    if digests.hex()["sha256"] != state.sha256:
        return None
    try:
        return verify(
            resource, target, state.url, digests, validator=state.validator, accept_any=accept_any
        )
    except IntegrityError:
        return None


@dataclass(frozen=True)
class _Part:
    """The bytes on this disk: which file they belong to, their hashes, and whether resumed."""

    state: DownloadState
    digests: Digests
    is_resumed: bool

    @property
    def size(self) -> int:
        return self.digests.size

    @property
    def is_complete(self) -> bool:
        return self.state.size == self.size


@dataclass(frozen=True)
class _Download:
    """One resource from one URL."""

    resource: Resource
    partial: PartialDownload
    url: str
    http: Http
    progress: Progress
    id: str
    accept_any: bool

    @property
    def origin(self) -> str:
        """The URL for messages and files, without its secrets."""
        return public_url(self.url)

    def run(self, slow_retries: int) -> RawFile:
        """Repeat attempts until the file is complete."""
        # An attempt counts as a failure if it brought less than the lowest speed requires for the
        # time since the last one, pause included. Otherwise a server that sends one byte a
        # connection would be asked forever.
        attempt = restarts = 0
        failed = self.http.clock()
        while True:
            before = self.partial.size
            try:
                with disk_errors(self.partial.path), self.partial:
                    return self._attempt()
            except Restart as reason:
                restarts += 1
                self.partial.discard()
                if restarts > MAX_RESTARTS:
                    raise NetworkError(f"{self.url} cannot be resumed or read: {reason}.") from None
            except TransientError as error:
                began, failed = failed, self.http.clock()
                gained = self.partial.size - before
                least = self.http.config.lowest_speed * (failed - began)
                attempt = 0 if gained > 0 and gained >= least else attempt + 1
                if attempt > (slow_retries if error.slow else self.http.retries):
                    raise
                self.http.pause(attempt, error)

    def _attempt(self) -> RawFile:
        part = self._resume()
        if part is None or not part.is_complete:
            headers = range_headers(part.state, part.size) if part else {}
            with self.http.open(self.url, headers, self.resource.no_such_data) as response:
                part = self._continue_or_begin(part, response)
                with self._wrong_bytes_discarded(part):
                    self._stream(response, part)
        with self._wrong_bytes_discarded(part):
            file = self._check(part)
        self.partial.publish(replace(part.state, size=part.size, sha256=file.sha256))
        return file

    def _resume(self) -> _Part | None:
        """Hash the partial file if it belongs to this URL and a change would be noticed."""
        state = self.partial.state
        if state is None or state.url != self.origin:
            return None
        digests = self.resource.new_digests()
        is_safe = state.validator or self._has_checksum
        is_open = is_safe and self.partial.resume(digests)
        return _Part(state, digests, is_resumed=True) if is_open else None

    @property
    def _has_checksum(self) -> bool:
        """Whether a file joined from two versions would be noticed."""
        return bool(self.resource.checksums) and not self.accept_any

    def _continue_or_begin(self, part: _Part | None, response: requests.Response) -> _Part:
        """Return the part that the response continues, or a new one."""
        if part and response.status_code == 206:
            state = continued(response, part.size, part.state, has_checksum=self._has_checksum)
            return replace(part, state=state)
        if part and is_whole(response, part.size, part.state):
            return replace(part, state=replace(part.state, size=part.size))
        if response.status_code != 200:
            raise Restart(f"the server answers with HTTP {response.status_code}")
        return self._begin(response)

    def _begin(self, response: requests.Response) -> _Part:
        """Check the size in the headers and begin a new partial file."""
        size = content_length(response, self.url)
        if size is not None and not self.accept_any and not self.resource.accepts_size(size):
            kind = response.headers.get("Content-Type", "no content type")
            raise IntegrityError(
                f"{self.url}: expected {self.resource.size} bytes, the server offers {size} "
                f"({kind}). It is not the published file.",
                expected=self.resource.size,
                found=size,
                advice=f"{NO_VERIFY} accepts it.",
            )
        etag = response.headers.get("ETag", "")
        strong = etag if etag.startswith('"') else None
        state = DownloadState(self.origin, strong or response.headers.get("Last-Modified"), size)
        if size is not None:
            check_free_space(
                self.partial.target.parent, size, f"{self.resource.filename} from {self.url}"
            )
        self.partial.begin(state)
        return _Part(state, self.resource.new_digests(), is_resumed=False)

    def _stream(self, response: requests.Response, part: _Part) -> None:
        """Append the body to the part and hash it."""
        if part.is_complete:
            return
        digests, total = part.digests, part.state.size
        if total is None and not self.accept_any:
            total = self.resource.largest_size
        head_size = max(1, len(self.resource.magic))
        for data in self._body(response):
            is_head = digests.size < head_size
            digests.update(data)
            if is_head and digests.size >= head_size:
                self.resource.check_magic(digests.head, self.url)
            if total is not None and digests.size > total:
                raise IntegrityError(
                    f"{self.url}: expected {total} bytes, the server sends more.", expected=total
                )
            self.partial.write(data)
            if digests.size != total:  # the last bytes are reported once the file is checked
                self.progress(File(self.id, self.resource.filename, digests.size, total))
        self.partial.flush()
        if part.state.size is None:
            is_whole = self.accept_any or self.resource.accepts_size(digests.size)
        else:
            is_whole = digests.size >= part.state.size
        if not is_whole:
            raise TransientError(
                f"{self.url} stopped at byte {digests.size} of {total}.",
                expected=total,
                found=digests.size,
            )

    def _body(self, response: requests.Response) -> Iterator[bytes]:
        with translated(self.url):
            yield from read_body(response, self.http.limits)

    def _check(self, part: _Part) -> RawFile:
        """Return the file after checking its first bytes, size and checksums."""
        self.resource.check_magic(part.digests.head, self.url)
        return verify(
            *(self.resource, self.partial.target, self.origin, part.digests),
            validator=part.state.validator,
            accept_any=self.accept_any,
        )

    @contextmanager
    def _wrong_bytes_discarded(self, part: _Part) -> Iterator[None]:
        """Discard the part if its bytes are wrong, and start again if it was resumed."""
        try:
            yield
        except IntegrityError as error:
            self.partial.discard()
            if part.is_resumed:
                raise Restart(str(error)) from error
            raise


# Range requests


def range_headers(state: DownloadState, offset: int) -> dict[str, str]:
    """Return the headers of a request for the bytes after the first ``offset``."""
    condition = {"If-Range": state.validator} if state.validator else {}
    return {"Range": f"bytes={offset}-", **condition}


def content_length(response: requests.Response, url: str) -> int | None:
    """Return the Content-Length of a response; None if the header is missing."""
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
