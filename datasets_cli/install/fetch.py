"""Lists the raw files of a dataset, fetches and checks them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from datasets_cli.catalogue.names import Resolved
from datasets_cli.core.progress import Note, Progress, Rows
from datasets_cli.errors import (
    RldsError,
    SourceError,
    UsageError,
    argument,
    public_url,
)
from datasets_cli.install.options import InstallOptions
from datasets_cli.recipe import Block, Resource
from datasets_cli.sources.disk import check_free_space, free_bytes
from datasets_cli.sources.resource import RawFile, verify
from datasets_cli.store.cache_root import CacheRoot

if TYPE_CHECKING:
    from datasets_cli.sources.http import Http

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
"""The errors that a reader may raise for unexpected bytes."""


def read_blocks(id: str, blocks: Iterator[Block]) -> Iterator[Block]:
    """Yield the blocks of a recipe; the errors of its readers become ``SourceError``."""
    while True:
        with source_errors(id):
            block = next(blocks, None)
        if block is None:
            return
        yield block


@contextmanager
def source_errors(id: str) -> Iterator[None]:
    """Turn the errors of readers into ``SourceError``, with the id of the dataset."""
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
            "or not as the recipe expects.",
            id=id,
            found=f"{type(error).__name__}: {error}",
        ) from error


# Unpacked, and with successors, D4RL and Minari files take about twice their size.
WRITTEN_RATIO = 2
_SECONDS_A_LOOK = 1.0  # between two checks of the free space


def needed_room(
    root: CacheRoot, id: str, resources: list[Resource], install_options: InstallOptions
) -> int:
    """Return the bytes of the files that are not downloaded yet and of the rows of all files."""
    total = sum(resource.size or 0 for resource in resources)
    folder = root.downloads(id)
    to_download = 0
    if install_options.source_folder is None:
        present = sum(_size_on_disk(folder / resource.filename) for resource in resources)
        to_download = max(0, total - present)
    return to_download + WRITTEN_RATIO * total


class Room:
    """Reserves disk space for datasets that threads of this process install at the same time."""

    # Without enough space, a dataset waits until others are done and their raw files deleted.

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._needed: list[int] = []

    @contextmanager
    def reserved(
        self, root: CacheRoot, id: str, size_bytes: int, progress: Progress
    ) -> Iterator[None]:
        """Reserve the space of one dataset; wait for others if needed."""
        self._wait(root, id, size_bytes, progress)
        try:
            yield
        finally:
            with self._changed:
                self._needed.remove(size_bytes)
                self._changed.notify_all()

    def _wait(self, root: CacheRoot, id: str, size_bytes: int, progress: Progress) -> None:
        has_noted = False
        with self._changed:
            while self._needed and free_bytes(root.path) < size_bytes + sum(self._needed):
                if not has_noted:
                    progress(Note(f"{id} waits for room on the disk until others are done"))
                    has_noted = True
                progress(Rows(id, 0))  # raises an error at the end of the run, which ends the wait
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
    """A local folder with raw files, or the only raw file of a dataset."""

    path: Path
    id: str

    def __str__(self) -> str:
        return argument("source", str(self.path))

    def names(self) -> list[str]:
        """Return the names of the files in the folder, without subfolders."""
        return sorted(path.name for path in self.path.glob("*") if path.is_file())

    def has(self, filename: str) -> bool:
        """Return whether a file of that name is there."""
        return self._at(filename).is_file()

    def file(self, filename: str) -> Path:
        """Return the path of a file, which must exist."""
        if not self.has(filename):
            raise UsageError(
                f"{self.id} needs the file {filename}, which is not in {self}.",
                argument="source",
                id=self.id,
                path=self._at(filename),
                advice="Pass the folder with the publisher's files under their original names.",
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
                f"{self.id}: {filename} is not JSON ({error}).",
                id=self.id,
                path=self._at(filename),
                expected="JSON",
                advice=f"Check {self}.",
            ) from error

    def url(self, filename: str) -> str:
        """Return where a file is."""
        return str(self._at(filename))

    def _at(self, filename: str) -> Path:
        """Return the path of a file; if the source is one file, its own path under any name."""
        return self.path if self.path.is_file() else self.path / filename


@dataclass(frozen=True)
class Address:
    """A URL with raw files below it."""

    base: str
    http: Http

    def __str__(self) -> str:
        return argument("source", public_url(self.base))

    def names(self) -> None:
        """Return None: the files below a URL cannot be listed."""

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
"""Returns the HTTP client, which is imported on the first call."""


def resources_of(
    resolved: Resolved, install_options: InstallOptions, web: GetHttp
) -> list[Resource]:
    """Return the raw files of a dataset; with ``--source`` no other place is contacted."""
    recipe, name, folder = resolved.recipe, resolved.name, install_options.source_folder
    look = recipe.resources_at
    is_one_file = look is None and folder is not None and folder.is_file()
    has_one_file = is_one_file and len(recipe.resources(name, None)) == 1
    if folder is not None and not (folder.is_dir() or has_one_file):
        problem = "is a file" if folder.exists() else "does not exist"
        raise UsageError(
            f"{resolved.id} cannot be read from {argument('source')} {install_options.source}, "
            f"which {problem}.",
            argument="source",
            id=resolved.id,
            path=folder,
            expected="a folder",
            found=problem,
            advice="Pass the folder with the publisher's files under their original names.",
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
    """Return a checked raw file: downloaded, or in the folder of ``--source``."""
    folder, accept_any = install_options.source_folder, install_options.accept_any
    if folder is None:
        from datasets_cli.sources.download import fetch

        folder = root.downloads(id)
        return fetch(resource, folder, web(), progress, id=id, accept_any=accept_any)
    path = Folder(folder, id).file(resource.filename)
    digests = resource.new_digests()
    resource.check_magic(digests.read(path), str(path))
    return verify(resource, path, str(path.absolute()), digests, accept_any=accept_any)


def distrust(files: Iterable[RawFile]) -> None:
    """Mark the files without a checksum for download in the next run: they may be damaged."""
    for file in files:
        if file.checked in ("size", "nothing"):
            Path(f"{file.path}.json").unlink(missing_ok=True)
