"""Downloading one resource: stream to a partial file, resume it, check it, name it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import requests

from datasets_cli.core.progress import Progress
from datasets_cli.errors import MIRROR, NO_VERIFY, IntegrityError, NetworkError, public_url
from datasets_cli.sources.digests import Digests
from datasets_cli.sources.disk import check_free_space, disk_errors, make_folder
from datasets_cli.sources.failures import TransientError, translated
from datasets_cli.sources.http import READ_BYTES, Http
from datasets_cli.sources.partial_download import DownloadState, PartialDownload, read_state
from datasets_cli.sources.ranges import Restart, content_length, continued, is_whole, range_headers
from datasets_cli.sources.raw_file import RawFile, verify
from datasets_cli.sources.resource import Resource

MAX_RESTARTS = 2


def fetch(
    resource: Resource, folder: Path, http: Http, progress: Progress, *, accept_any: bool = False
) -> RawFile:
    """Return the resource as a checked file in ``folder``, downloading what is missing."""
    target = folder / resource.filename
    with disk_errors(target):
        make_folder(target.parent)
    file = _reuse(resource, target, accept_any)
    if file is None:
        file = _fetch(resource, target, http, progress, accept_any)
    progress.fetching(resource.filename, file.size, file.size)
    return file


def _fetch(
    resource: Resource, target: Path, http: Http, progress: Progress, accept_any: bool
) -> RawFile:
    """Download from the first address that has the resource."""
    progress.fetching(resource.filename, PartialDownload(target).size, resource.size)

    def ask(url: str, slow_retries: int) -> RawFile:
        partial = PartialDownload(target)
        return _Download(resource, partial, url, http, progress, accept_any).run(slow_retries)

    urls = chain.from_iterable(map(http.candidates, resource.urls))
    return http.first_answer(resource.filename, urls, ask)


def _reuse(resource: Resource, target: Path, accept_any: bool) -> RawFile | None:
    """Return an earlier complete download if its bytes are still what they were."""
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
class _Download:
    """One resource from one URL."""

    resource: Resource
    partial: PartialDownload
    url: str
    http: Http
    progress: Progress
    accept_any: bool

    @property
    def origin(self) -> str:
        """The URL as it is shown and kept."""
        return public_url(self.url)

    def run(self, slow_retries: int) -> RawFile:
        """Attempt until the file is complete."""
        # An attempt counts as a failure if it brought less than the lowest speed asks for the time
        # since the last one, pause included: else a server could send one byte each time forever.
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
                    raise NetworkError(
                        f"{self.url} cannot be continued or read: {reason}."
                    ) from None
            except TransientError as error:
                began, failed = failed, self.http.clock()
                gained = self.partial.size - before
                least = self.http.config.lowest_speed * (failed - began)
                attempt = 0 if gained > 0 and gained >= least else attempt + 1
                if attempt > (slow_retries if error.slow else self.http.retries):
                    raise
                self.http.pause(attempt, error)

    def _attempt(self) -> RawFile:
        digests = self.resource.new_digests()
        state = self._resume(digests)
        if state and state.size == digests.size:
            return self._complete(state, digests)
        headers = range_headers(state, digests.size)
        with self.http.open(self.url, headers, self.resource.no_such_data) as response:
            if state and response.status_code == 206:
                state = continued(response, digests.size, state, has_checksum=self._has_checksum)
            elif state and is_whole(response, digests.size, state):
                return self._complete(state, digests)
            elif response.status_code != 200:
                raise Restart(f"the server answers with HTTP {response.status_code}")
            else:
                state, digests = self._start(response), self.resource.new_digests()
            return self._complete(state, digests, response)

    def _resume(self, digests: Digests) -> DownloadState | None:
        """Open and hash the part if it may grow: it is this URL's and a change can be told."""
        state = self.partial.state
        if state is None or state.url != self.origin:
            return None
        can_tell = state.validator or self._has_checksum
        return state if can_tell and self.partial.resume(digests) else None

    @property
    def _has_checksum(self) -> bool:
        """Whether a file put together of two versions would be noticed."""
        return bool(self.resource.checksums) and not self.accept_any

    def _start(self, response: requests.Response) -> DownloadState:
        """Check what the headers promise and begin a new partial file."""
        size = content_length(response, self.url)
        if size is not None and not self.accept_any and not self.resource.accepts_size(size):
            kind = response.headers.get("Content-Type", "no content type")
            raise IntegrityError(
                f"{self.url}: expected {self.resource.size} bytes, the server offers {size} "
                f"({kind}). It is not the published file; {NO_VERIFY} accepts it."
            )
        etag = response.headers.get("ETag", "")
        strong = etag if etag.startswith('"') else None
        state = DownloadState(self.origin, strong or response.headers.get("Last-Modified"), size)
        if size is not None:
            check_free_space(
                self.partial.target.parent, size, f"{self.resource.filename} from {self.url}"
            )
        self.partial.begin(state)
        return state

    def _stream(self, response: requests.Response, state: DownloadState, digests: Digests) -> None:
        """Write and hash the body after the ``digests.size`` bytes that are already here."""
        total = state.size
        if total is None and not self.accept_any:
            total = self.resource.largest_size
        head_size = max(1, len(self.resource.magic))
        for data in _chunks(response, self.url):
            is_head = digests.size < head_size
            digests.update(data)
            if is_head and digests.size >= head_size:
                self.resource.check_magic(digests.head, self.url)
            if total is not None and digests.size > total:
                raise IntegrityError(f"{self.url}: expected {total} bytes, the server sends more.")
            self.partial.write(data)
            if digests.size != total:  # the end is told once the file is checked
                self.progress.fetching(self.resource.filename, digests.size, total)
        self.partial.flush()
        if state.size is None:
            is_whole = self.accept_any or self.resource.accepts_size(digests.size)
        else:
            is_whole = digests.size >= state.size
        if not is_whole:
            raise TransientError(f"{self.url} stopped at byte {digests.size} of {total}.")

    def _complete(
        self, state: DownloadState, digests: Digests, response: requests.Response | None = None
    ) -> RawFile:
        """Stream what is missing, check the whole file and give it its name."""
        resumed = digests.size > 0
        try:
            if response is not None:
                self._stream(response, state, digests)
            self.resource.check_magic(digests.head, self.url)
            file = verify(
                self.resource,
                self.partial.target,
                self.origin,
                digests,
                validator=state.validator,
                accept_any=self.accept_any,
            )
        except IntegrityError as error:
            self.partial.discard()  # bytes known to be wrong are never continued
            if resumed:
                raise Restart(str(error)) from error
            if self.origin in str(error):
                raise
            raise IntegrityError(
                f"{error} It came from {self.url}. Try another {MIRROR}; {NO_VERIFY} takes it all "
                "the same."
            ) from error
        self.partial.publish(replace(state, size=digests.size, sha256=file.sha256))
        return file


def _chunks(response: requests.Response, url: str) -> Iterator[bytes]:
    with translated(url):
        yield from response.raw.stream(READ_BYTES, decode_content=False)
