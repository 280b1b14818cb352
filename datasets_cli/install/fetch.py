"""The raw files of a dataset: which they are, and each checked on this disk."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import requests

from datasets_cli.catalogue.names import Resolved
from datasets_cli.core.progress import Progress
from datasets_cli.errors import (
    AccessError,
    NetworkError,
    RldsError,
    SourceError,
    UsageError,
    argument,
    by_reader,
    public_url,
)
from datasets_cli.install.options import InstallOptions
from datasets_cli.recipe import Block, Resource
from datasets_cli.sources.disk import check_free_space, free_bytes
from datasets_cli.sources.download import content_length
from datasets_cli.sources.failures import translated
from datasets_cli.sources.http import Http
from datasets_cli.sources.resource import CHUNK_BYTES, Digests, RawFile, verify
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.manifest import Manifest

READERS_RAISE = (
    OSError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    RuntimeError,
    EOFError,
    MemoryError,
)
"""What a reader may raise over bytes that it does not expect."""


def read_blocks(id: str, blocks: Iterator[Block]) -> Iterator[Block]:
    """Yield the blocks that a recipe yields."""
    while True:
        with source_errors(id):
            block = next(blocks, None)
        if block is None:
            return
        yield block


@contextmanager
def source_errors(id: str) -> Iterator[None]:
    """Turn what a reader raises over a damaged file into ``SourceError`` naming the dataset."""
    try:
        yield
    except SourceError as error:
        if not str(error).startswith(id):
            error.prepend(f"{id}: ")
        error.id = id
        raise
    except RldsError:
        raise
    except READERS_RAISE as error:
        raise SourceError(
            f"{id}: its files cannot be read ({type(error).__name__}: {error}). They are damaged, "
            "or not what the recipe expects."
        ) from error


# D4RL and Minari files grow to about twice their size when they are unpacked and successors added.
WRITTEN_RATIO = 2
_SECONDS_A_LOOK = 1.0  # for what has been deleted meanwhile


def needed_room(
    root: CacheRoot, id: str, resources: list[Resource], install_options: InstallOptions
) -> int:
    """Return the bytes of the files that are still to come and of the rows made of them."""
    total = sum(resource.size or 0 for resource in resources)
    folder = root.downloads(id)
    to_download = 0
    if install_options.source_folder is None:
        present = sum(_size_on_disk(folder / resource.filename) for resource in resources)
        to_download = max(0, total - present)
    return to_download + WRITTEN_RATIO * total


class Room:
    """The room for datasets that threads of this process install at the same time."""

    # One that has no room beside the others waits for them: what they need is there until they are
    # done, and their raw files are gone then.

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._needed: list[int] = []

    @contextmanager
    def reserved(
        self, root: CacheRoot, id: str, size_bytes: int, progress: Progress
    ) -> Iterator[None]:
        """Have room for one dataset."""
        self._wait(root, id, size_bytes, progress)
        try:
            yield
        finally:
            with self._changed:
                self._needed.remove(size_bytes)
                self._changed.notify_all()

    def _wait(self, root: CacheRoot, id: str, size_bytes: int, progress: Progress) -> None:
        has_told = False
        with self._changed:
            while self._needed and free_bytes(root.path) < size_bytes + sum(self._needed):
                if not has_told:
                    progress.note(f"{id} waits for room on the disk until others are done")
                    has_told = True
                progress.writing(0)  # ends the wait where the whole run ends
                self._changed.wait(_SECONDS_A_LOOK)
            check_free_space(root.path, size_bytes, id)
            self._needed.append(size_bytes)


def _size_on_disk(path: Path) -> int:
    for candidate in (path, Path(f"{path}.part")):
        if candidate.is_file():
            return candidate.stat().st_size
    return 0


@dataclass(frozen=True)
class Folder:
    """A folder of this machine, or a dataset's one file; nothing here opens a connection."""

    path: Path
    id: str

    def __str__(self) -> str:
        return argument("source", str(self.path))

    def names(self) -> list[str]:
        """Return the names of the files in the folder; what is in folders below it is left out."""
        return sorted(path.name for path in self.path.glob("*") if path.is_file())

    def has(self, filename: str) -> bool:
        """Return whether a file of that name is there."""
        return self._at(filename).is_file()

    def file(self, filename: str) -> Path:
        """Return where a file is."""
        if not self.has(filename):
            raise UsageError(
                f"{self.id} needs the file {filename}, which is not in {self}. Give the folder "
                "that holds the publisher's files under their own names."
            )
        return self._at(filename)

    def json(self, filename: str) -> Any:
        """Return the JSON document in a file."""
        try:
            return json.loads(self.file(filename).read_bytes())
        except (ValueError, RecursionError) as error:
            if isinstance(error, UsageError):
                raise
            raise SourceError(
                f"{self.id}: {filename} is not JSON ({error}). Check {self}."
            ) from error

    def url(self, filename: str) -> str:
        """Return where a file is."""
        return str(self._at(filename))

    def _at(self, filename: str) -> Path:
        """Return the path of a file; where the place is a file, that has whatever name."""
        return self.path if self.path.is_file() else self.path / filename


@dataclass(frozen=True)
class Address:
    """A URL that files are below."""

    base: str
    http: Http

    def __str__(self) -> str:
        return argument("source", public_url(self.base))

    def names(self) -> None:
        """Return None: what is below a URL cannot be listed."""

    def has(self, filename: str) -> bool:
        """Return whether a file of that name is there."""
        return self.http.has(self.url(filename))

    def json(self, filename: str) -> Any:
        """Return the JSON document in a file."""
        return self.http.json(self.url(filename))

    def url(self, filename: str) -> str:
        """Return where a file is."""
        folder, question_mark, query = self.base.partition("?")
        return f"{folder.rstrip('/')}/{quote(filename)}{question_mark}{query}"


GetHttp = Callable[[], "Http"]
"""Returns the network, which is imported when it is first needed."""


def resources_of(
    resolved: Resolved, install_options: InstallOptions, web: GetHttp
) -> list[Resource]:
    """Return the files to read; with ``--source`` nothing but that place is asked."""
    recipe, name, folder = resolved.recipe, resolved.name, install_options.source_folder
    look = recipe.resources_at
    is_one_file = look is None and folder is not None and folder.is_file()
    has_one_file = is_one_file and len(recipe.resources(name, None)) == 1
    if folder is not None and not (folder.is_dir() or has_one_file):
        problem = "is a file" if folder.exists() else "does not exist"
        raise UsageError(
            f"{resolved.id} cannot be read from {argument('source')} {install_options.source}, "
            f"which {problem}. Give the folder that holds the publisher's files under their own "
            "names."
        )
    with source_errors(resolved.id):
        if install_options.source is None:
            return recipe.resources(name, web())
        if folder is None:
            place: Address | Folder = Address(install_options.source, web())
        else:
            place = Folder(folder, resolved.id)
        resources = look(name, place) if look else recipe.resources(name, None)
    return [replace(each, urls=(place.url(each.filename),)) for each in resources]


def raw_file(
    resource: Resource,
    root: CacheRoot,
    id: str,
    install_options: InstallOptions,
    web: GetHttp,
    progress: Progress,
) -> RawFile:
    """Return a checked file: downloaded, or read where ``--source DIR`` has it."""
    folder, accept_any = install_options.source_folder, install_options.accept_any
    if folder is None:
        from datasets_cli.sources.download import fetch

        return fetch(resource, root.downloads(id), web(), progress, accept_any=accept_any)
    path = Folder(folder, id).file(resource.filename)
    digests = resource.new_digests()
    resource.check_magic(digests.read(path), str(path))
    return verify(resource, path, str(path.absolute()), digests, accept_any=accept_any)


def distrust(files: Iterable[RawFile]) -> None:
    """Have the next run download again what no checksum vouches for: it may be damaged."""
    for file in files:
        if file.checked in ("size", "nothing"):
            Path(f"{file.path}.json").unlink(missing_ok=True)


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
