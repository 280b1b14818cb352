"""Whether the files at ``--source`` are those that a dataset was installed from."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from datasets_cli.catalogue.names import Resolved
from datasets_cli.errors import (
    AccessError,
    NetworkError,
    UsageError,
    argument,
    by_reader,
    public_url,
)
from datasets_cli.install.options import InstallOptions
from datasets_cli.install.raw_files import resources_of
from datasets_cli.install.source_place import Address, Folder
from datasets_cli.sources.digests import CHUNK_BYTES, Digests
from datasets_cli.sources.failures import translated
from datasets_cli.sources.http import Http
from datasets_cli.sources.ranges import content_length
from datasets_cli.store.manifest import Manifest

logger = logging.getLogger(__name__)
Installed = Mapping[str, Any]
"""What the manifest says of a raw file."""


class OtherFiles(UsageError):
    """A dataset was installed from other files than its source has; these may be the older ones."""

    is_same_place = False  # whether the dataset was installed from this source


def check_source(
    manifest: Manifest, resolved: Resolved | None, options: InstallOptions, http: Http
) -> None:
    """Compare the files at ``--source`` with those that an installed dataset was made of."""
    # Names are compared first, then sizes, and the sha256 only where both agree: reading the files
    # of a large dataset takes as long as reading them to install it. Where a file is does not
    # matter. A file below a URL is read over the network, unless the server says by its validator
    # that it is the one that was read there before. A place that does not exist or does not answer
    # is named in a warning.
    folder = options.source_folder
    if folder is not None and not folder.exists():
        logger.warning(
            "The source %s does not exist. %s is installed, and is taken as it is.",
            options.source,
            manifest.id,
        )
        return
    try:
        difference = next(_differences(manifest, resolved, options, http), "")
    except NetworkError as error:
        logger.warning(
            "%s is installed, and is taken without a comparison with the source %s: %s",
            manifest.id,
            public_url(str(options.source)),
            error,
        )
        return
    if difference:
        command = f"rlds download --force {manifest.id} --source {options.source}"
        replaced = ' give force=True, or download="force" to a replay class'
        refusal = OtherFiles(
            f"{manifest.id} is installed from {_origin(manifest)}, and "
            f"{argument('source', str(options.source))} has other files: {difference}. To install "
            f"those instead{by_reader(f': {command}', replaced)}"
        )
        refusal.is_same_place = str(options.source) == _origin(manifest)
        raise refusal


def _differences(
    manifest: Manifest, resolved: Resolved | None, options: InstallOptions, http: Http
) -> Iterator[str]:
    """Yield how the files differ, in the order of what it costs to find out."""
    installed = {str(each["filename"]): each for each in manifest.resources if "sha256" in each}
    if not installed:
        yield "it was not made of any raw files"
    extra = sorted(_offered(resolved, options, http) - installed.keys())
    if extra:
        yield f"{extra[0]} as well{_more(extra)}"
    files = [_File(options, http, name, file) for name, file in sorted(installed.items())]
    lacking = []
    for file in files:
        size = file.size()
        if size is None:
            lacking.append(file.name)
        elif size not in (_UNKNOWN, file.installed["bytes"]):
            yield f"{file.name} has {size:,} bytes, not {file.installed['bytes']:,}"
    if lacking:
        yield f"it does not have {lacking[0]}{_more(lacking)}"
    for file in files:
        digest = file.sha256()
        if digest != file.installed["sha256"]:
            yield f"{file.name} has sha256 {digest}, not {file.installed['sha256']}"


def _offered(resolved: Resolved | None, options: InstallOptions, http: Http) -> set[str]:
    """Return the names of the dataset's files in a folder; nothing where it does not say."""
    if resolved is None or options.source_folder is None:
        return set()
    try:
        return {resource.filename for resource in resources_of(resolved, options, lambda: http)}
    except UsageError:  # a file is missing, and the comparison says which
        if not options.source_folder.is_dir():
            raise
        return set()


_UNKNOWN = -1


@dataclass(frozen=True)
class _File:
    """A raw file by the name that it was installed under, in the place that is given now."""

    options: InstallOptions
    http: Http
    name: str
    installed: Installed

    def size(self) -> int | None:
        """Return its bytes; None where it is not there, ``_UNKNOWN`` where a server is silent."""
        if (path := self._path) is not None:
            return path.stat().st_size if path.is_file() else None
        try:
            with self._opened() as response:
                size = content_length(response, self._url)
                return _UNKNOWN if size is None else size
        except AccessError as error:
            if error.missing:
                return None
            raise NetworkError(str(error)) from error

    def sha256(self) -> str:
        """Return its digest: of its bytes, or the known one where its validator is the known."""
        digests = Digests({"sha256"})
        if (path := self._path) is not None:
            digests.read(path)
            return digests.hex()["sha256"]
        with self._opened() as response:
            if self._is_known(response):
                return str(self.installed["sha256"])
            for chunk in response.iter_content(CHUNK_BYTES):
                digests.update(chunk)
        if digests.size != self.installed["bytes"]:
            raise NetworkError(f"{self._url} stopped at byte {digests.size}.")
        return digests.hex()["sha256"]

    def _is_known(self, response: requests.Response) -> bool:
        """Return whether the server says that the file is the one that was read there before."""
        known = self.installed.get("validator")
        sent = (response.headers.get("ETag"), response.headers.get("Last-Modified"))
        return (
            known is not None and known in sent and public_url(self._url) == self.installed["url"]
        )

    @property
    def _path(self) -> Path | None:
        folder = self.options.source_folder
        return None if folder is None else Path(Folder(folder, "").url(self.name))

    @property
    def _url(self) -> str:
        address = Address(str(self.options.source), self.http)
        return self.http.candidates(address.url(self.name))[0]

    @contextmanager
    def _opened(self) -> Iterator[requests.Response]:
        with self.http.open(self._url) as response, translated(self._url):
            yield response


def _origin(manifest: Manifest) -> str:
    """Return where the files of a dataset came from: the folder or URL that they were below."""
    if not manifest.resources:
        return f"{manifest.parent['id']}, from which it was derived" if manifest.parent else "code"
    first = manifest.resources[0]
    return str(first["url"]).removesuffix(str(first["filename"])).rstrip("/")


def _more(names: list[str]) -> str:
    return f" and {len(names) - 1} more" if names[1:] else ""
