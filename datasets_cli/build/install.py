"""Making a dataset exist: resolve, lock, fetch, convert, commit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets_cli.build.convert import convert
from datasets_cli.build.installed import installed_folder, is_installed, locked, remove_raw
from datasets_cli.build.reading import source_errors
from datasets_cli.config import Config
from datasets_cli.errors import RldsError, UsageError
from datasets_cli.progress import Progress, Silent
from datasets_cli.recipe import Resource
from datasets_cli.registry import Resolved, resolve
from datasets_cli.sources.disk import check_free_space
from datasets_cli.sources.resource import RawFile, examine
from datasets_cli.store.commit import commit, restore
from datasets_cli.store.layout import CacheRoot, check_id
from datasets_cli.store.manifest import LAYOUTS

if TYPE_CHECKING:
    from datasets_cli.sources.http import Http

# D4RL and Minari files grow to about twice their size when they are unpacked and successors added.
CONVERTED_RATIO = 2


@dataclass(frozen=True)
class Wish:
    """How a dataset is to be installed.

    Args:
        layout: ``"ted"`` or ``"compact"``; None takes compact for frames and ted for all else.
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

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return {
            "id": self.id,
            "installed": self.installed,
            "folder": str(self.folder),
            "bytes": self.size,
            "files": [
                {"filename": resource.filename, "bytes": resource.size, "urls": list(resource.urls)}
                for resource in self.resources
            ],
        }


def plan(text: str, config: Config, wish: Wish, http: Http) -> Plan:
    """Return what ``get`` would do, asking the publisher for file sizes where needed."""
    root = CacheRoot(config.root)
    resolved = resolve(text, root, unlisted=wish.source is not None, web=http)
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
        return installed_folder(root, text, wish.layout)
    http = http or Http(config)
    resolved = resolve(text, root, unlisted=wish.source is not None, web=http)
    if resolved.id not in (text, f"{resolved.recipe.family}/{text}"):
        progress.note(f"{text} is {resolved.id}, its newest version")
    if is_installed(root, resolved.id) and not wish.force:
        return installed_folder(root, resolved.id, wish.layout)
    with locked(root, resolved.id, config.lock_timeout):
        restore(root, resolved.id)
        if is_installed(root, resolved.id) and not wish.force:
            return installed_folder(root, resolved.id, wish.layout)
        try:
            return _install(resolved, root, wish, http, progress)
        except (RldsError, OSError):
            # Where locks do not work another process may be done, and have swept up behind itself.
            if wish.force or not is_installed(root, resolved.id):
                raise
            return installed_folder(root, resolved.id, wish.layout)


def _install(
    resolved: Resolved, root: CacheRoot, wish: Wish, http: Http, progress: Progress
) -> Path:
    resources = _resources(resolved, wish, http)
    _preflight(root, resolved.id, resources, wish)
    files = [_raw_file(resource, root, resolved.id, wish, http, progress) for resource in resources]
    manifest, staging = convert(resolved, files, root, wish.layout, progress)
    if not commit(root, staging, manifest, replace=wish.force):
        progress.note(f"{resolved.id} was installed by another process meanwhile; its copy is kept")
    if not wish.keep_raw and wish.source_folder is None:
        remove_raw(root, resolved.id)
    return root.dataset(resolved.id)


def _resources(resolved: Resolved, wish: Wish, http: Http) -> list[Resource]:
    """Return the files to read; with ``--source`` nothing but that place is asked."""
    with source_errors(resolved.id):
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
