"""Making a dataset exist: resolve, lock, fetch, convert, commit; and verify, remove."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets_cli.config import Config
from datasets_cli.errors import (
    DatasetNotInstalled,
    LockedError,
    RldsError,
    SourceError,
    UsageError,
)
from datasets_cli.progress import Progress, Silent
from datasets_cli.recipe import Block, Resource, Source
from datasets_cli.registry import Resolved, resolve
from datasets_cli.sources.disk import check_free_space
from datasets_cli.sources.resource import RawFile, examine
from datasets_cli.store.check import check_digests, check_sizes
from datasets_cli.store.columns import Key
from datasets_cli.store.commit import commit, remove_empty_parents, restore
from datasets_cli.store.commit import remove as remove_dataset
from datasets_cli.store.layout import MANIFEST_FILENAME, CacheRoot, check_id
from datasets_cli.store.manifest import Manifest, read_manifest
from datasets_cli.version import TOOL

if TYPE_CHECKING:
    import numpy as np

    from datasets_cli.sources.http import Http

LAYOUTS = ("ted",)
# D4RL and Minari files grow to about twice their size when they are unpacked and successors added.
CONVERTED_RATIO = 2


@dataclass(frozen=True)
class Wish:
    """How a dataset is to be installed.

    Args:
        layout: ``"ted"``, or None for the family's default.
        force: install anew; the good copy stays until the new one is committed.
        source: a folder or URL that holds this dataset's raw files under their own names.
        accept_any: take files whose size or checksum is not the catalogue's; the manifest says so.
        keep_raw: keep the downloaded files after the commit.
    """

    layout: str | None = None
    force: bool = False
    source: str | None = None
    accept_any: bool = False
    keep_raw: bool = False

    def __post_init__(self) -> None:
        if self.layout not in (None, *LAYOUTS):
            raise UsageError(
                f"The layout {self.layout!r} does not exist. Expected one of: {', '.join(LAYOUTS)}."
            )

    @property
    def source_folder(self) -> Path | None:
        """The folder that ``source`` names, or None when it is a URL or absent."""
        if self.source is None or "://" in self.source:
            return None
        return Path(self.source).expanduser()


@dataclass(frozen=True)
class Plan:
    """What installing a dataset would do.

    Args:
        id: the full id.
        installed: whether it is there already, so that nothing would be done.
        resources: the files it is made of.
        folder: where it lies, or will lie.
    """

    id: str
    installed: bool
    resources: tuple[Resource, ...]
    folder: Path

    @property
    def size(self) -> int | None:
        """Bytes to download; None where a publisher does not say."""
        sizes = [resource.size for resource in self.resources]
        return None if None in sizes else sum(size for size in sizes if size is not None)


def find(text: str, config: Config, *, unlisted: bool = False) -> Resolved:
    """Return the dataset that a user means; see ``registry.resolve``."""
    return resolve(text, CacheRoot(config.root), unlisted=unlisted)


def installed_id(text: str, config: Config) -> str:
    """Return the id of an installed dataset that a user means; its recipe may be gone.

    Raises:
        DatasetNotInstalled: it is known, but not under this root.
        UnknownDataset: no recipe and no folder has that name.
    """
    root = CacheRoot(config.root)
    if is_installed(root, check_id(text)):
        return text
    id = resolve(text, root, unlisted=True).id
    if not is_installed(root, id):
        raise DatasetNotInstalled(
            f"{id} is not installed under {config.root}. Run: rlds download {id}"
        )
    return id


def is_installed(root: CacheRoot, id: str) -> bool:
    """Tell whether a committed dataset has this id."""
    return (root.dataset(id) / MANIFEST_FILENAME).is_file()


def plan(text: str, config: Config, wish: Wish, http: Http) -> Plan:
    """Return what ``get`` would do, asking the publisher for file sizes where needed."""
    resolved = find(text, config, unlisted=wish.source is not None)
    root = CacheRoot(config.root)
    folder = root.dataset(resolved.id)
    if is_installed(root, resolved.id) and not wish.force:
        return Plan(resolved.id, True, (), folder)
    return Plan(resolved.id, False, tuple(_resources(resolved, wish, http)), folder)


def get(
    text: str,
    config: Config,
    wish: Wish | None = None,
    *,
    http: Http | None = None,
    progress: Progress | None = None,
) -> Path:
    """Return the folder of an installed dataset, installing it first if needed.

    Args:
        text: an id, or a name that resolves to one.
        config: root, mirrors, offline mode.
        wish: how to install it.
        http: the client; one of this configuration by default.
        progress: told of what happens.

    Raises:
        RldsError: any of ``errors``. Nothing half-made is ever listed; a repeated run goes on.
    """
    from datasets_cli.sources.http import Http

    wish = wish or Wish()
    progress = progress or Silent()
    root = CacheRoot(config.root)
    if is_installed(root, check_id(text)) and not wish.force:
        return _already(root, text, wish)
    resolved = find(text, config, unlisted=wish.source is not None)
    if resolved.id not in (text, f"{resolved.recipe.family}/{text}"):
        progress.note(f"{text} is {resolved.id}, its newest version")
    with locked(root, resolved.id, config.lock_timeout):
        restore(root, resolved.id)
        if is_installed(root, resolved.id) and not wish.force:
            return _already(root, resolved.id, wish)
        return _install(resolved, root, wish, http or Http(config), progress)


def _install(
    resolved: Resolved, root: CacheRoot, wish: Wish, http: Http, progress: Progress
) -> Path:
    resources = _resources(resolved, wish, http)
    _preflight(root, resolved.id, resources, wish)
    files = [_raw_file(resource, root, resolved.id, wish, http, progress) for resource in resources]
    manifest, staging = convert(resolved, files, root, wish, progress)
    if not commit(root, staging, manifest, replace=wish.force):
        progress.note(f"{resolved.id} was installed by another process meanwhile; its copy is kept")
    if not wish.keep_raw:
        remove_raw(root, resolved.id)
    return root.dataset(resolved.id)


def _already(root: CacheRoot, id: str, wish: Wish) -> Path:
    manifest = read_manifest(root.dataset(id))
    if wish.layout not in (None, manifest.layout):
        raise UsageError(
            f"{id} is installed in the layout {manifest.layout}, and {wish.layout} was asked for. "
            f"Install it anew: rlds download --force --layout {wish.layout} {id}"
        )
    return root.dataset(id)


def _resources(resolved: Resolved, wish: Wish, http: Http) -> list[Resource]:
    """Return the files to read; with ``--source`` nothing but that place is asked."""
    with _source_errors(resolved.id):
        resources = resolved.recipe.resources(resolved.name, http if wish.source is None else None)
    if wish.source is None:
        return resources
    base = wish.source.rstrip("/")
    return [replace(resource, urls=(f"{base}/{resource.filename}",)) for resource in resources]


def _preflight(root: CacheRoot, id: str, resources: list[Resource], wish: Wish) -> None:
    """Check free space for the files that are still to come and for what they become."""
    total = sum(resource.size or 0 for resource in resources)
    folder = root.downloads(id)
    to_download = 0
    if wish.source_folder is None:
        present = sum(_size_on_disk(folder / resource.filename) for resource in resources)
        to_download = max(0, total - present)
    check_free_space(root.path, to_download + CONVERTED_RATIO * total, id)


def _size_on_disk(path: Path) -> int:
    for candidate in (path, Path(f"{path}.part")):
        if candidate.is_file():
            return candidate.stat().st_size
    return 0


def _raw_file(
    resource: Resource, root: CacheRoot, id: str, wish: Wish, http: Http, progress: Progress
) -> RawFile:
    """Return a checked file: downloaded, or read where ``--source DIR`` has it."""
    from datasets_cli.sources.download import fetch

    folder = wish.source_folder
    if folder is None:
        return fetch(resource, root.downloads(id), http, progress, accept_any=wish.accept_any)
    path = folder / resource.filename
    if not path.is_file():
        raise UsageError(
            f"{id} needs the file {resource.filename}, which is not in --source {folder}. "
            "Give the folder that holds the publisher's files under their own names."
        )
    digests = resource.new_digests()
    resource.check_magic(digests.read(path), str(path))
    return examine(resource, path, str(path.absolute()), digests, accept_any=wish.accept_any)


def convert(
    resolved: Resolved, files: list[RawFile], root: CacheRoot, wish: Wish, progress: Progress
) -> tuple[Manifest, Path]:
    """Convert raw files into a staging folder; return its manifest and the folder.

    Raises:
        SourceError: the files are damaged or break an invariant of the format.
        DiskFull: no room.
    """
    from datasets_cli.store.ted import Transitions, iterate_rows
    from datasets_cli.store.writer import TedWriter

    source = Source(resolved.name, {file.filename: file.path for file in files}, resolved.row)
    staging = root.new_staging(resolved.id)
    transitions = Transitions(resolved.id)
    writer = TedWriter(staging, resolved.id)
    try:
        with _source_errors(resolved.id):
            description = resolved.recipe.describe(source)
        for note in description.notes:
            progress.note(f"{resolved.id}: {note}")
        for rows, start in iterate_rows(transitions, _read_blocks(resolved, source)):
            writer.write(rows, start)
            progress.converting(writer.num_rows)
        written = writer.finish(description.files)
    except BaseException:
        writer.close()
        shutil.rmtree(staging, ignore_errors=True)
        raise
    for file in files:
        if file.version:
            progress.note(f"{resolved.id}: {file.filename} is the version {file.version}")
        if file.checked.startswith("not verified"):
            progress.note(f"{resolved.id}: {file.checked}")
    manifest = Manifest(
        id=resolved.id,
        layout=wish.layout or LAYOUTS[0],
        num_transitions=written.num_transitions,
        num_trajectories=written.num_trajectories,
        columns=written.columns,
        files=written.files,
        resources=tuple(file.to_json() for file in files),
        recipe=resolved.recipe.to_json(),
        successors=transitions.rule,
        metadata={**description.metadata, "notes": list(description.notes)},
        statistics=written.statistics,
        tool=TOOL,
    )
    return manifest, staging


def _read_blocks(
    resolved: Resolved, source: Source
) -> Iterator[tuple[Mapping[Key, np.ndarray], int | None]]:
    blocks = resolved.recipe.blocks(source)
    while True:
        with _source_errors(resolved.id):
            block: Block | None = next(blocks, None)
        if block is None:
            return
        yield block.columns, block.start


@contextmanager
def _source_errors(id: str) -> Iterator[None]:
    """Turn what a reader raises over a damaged file into ``SourceError`` naming the dataset."""
    try:
        yield
    except SourceError as error:
        message = str(error)
        raise (error if message.startswith(id) else SourceError(f"{id}: {message}")) from error
    except RldsError:
        raise
    except (OSError, ValueError, KeyError, RuntimeError, EOFError) as error:
        raise SourceError(
            f"{id}: its files cannot be read ({type(error).__name__}: {error}). They are damaged, "
            f"or not what the recipe expects. Download them again: rlds download --force {id}"
        ) from error


@contextmanager
def locked(root: CacheRoot, id: str, timeout: float) -> Iterator[None]:
    """Hold the lock of an id. It saves double work; a file system without locks stays correct.

    Raises:
        LockedError: another process holds it for longer than ``timeout`` seconds.
    """
    import filelock

    path = root.lock(id)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(path, timeout=timeout)
    try:
        lock.acquire()
    except filelock.Timeout as error:
        raise LockedError(
            f"Another process has worked on {id} for over {timeout:.0f} s (lock {path}). Wait for "
            "it, or set RLDS_LOCK_TIMEOUT to wait longer."
        ) from error
    try:
        yield
    finally:
        lock.release()


def verify(text: str, config: Config, *, quick: bool = False) -> Manifest:
    """Check an installed dataset against its manifest and return the manifest.

    Args:
        text: an id.
        config: the root.
        quick: compare sizes only, not the sha256 of every file.

    Raises:
        DatasetNotInstalled: it is not there.
        DamagedDataset: names every file that differs.
    """
    folder = CacheRoot(config.root).dataset(installed_id(text, config))
    manifest = read_manifest(folder)
    (check_sizes if quick else check_digests)(folder, manifest)
    return manifest


def remove(text: str, config: Config) -> str:
    """Delete an installed dataset and what is left of its downloads; return its id."""
    root = CacheRoot(config.root)
    id = installed_id(text, config)
    with locked(root, id, config.lock_timeout):
        remove_dataset(root, id)
        remove_raw(root, id)
    return id


def remove_raw(root: CacheRoot, id: str) -> None:
    """Delete the downloaded files of an id."""
    shutil.rmtree(root.downloads(id), ignore_errors=True)
    remove_empty_parents(root.downloads(id), root.path / "downloads")


def read_installed(root: CacheRoot, id: str) -> Manifest:
    """Return the manifest of an installed dataset."""
    return read_manifest(root.dataset(id))


def json_plan(plan: Plan) -> dict[str, Any]:
    """Return a plan as JSON values."""
    return {
        "id": plan.id,
        "installed": plan.installed,
        "folder": str(plan.folder),
        "bytes": plan.size,
        "files": [
            {"filename": resource.filename, "bytes": resource.size, "urls": list(resource.urls)}
            for resource in plan.resources
        ],
    }
