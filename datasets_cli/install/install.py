"""Making a dataset exist: resolve, lock, fetch, convert, commit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from datasets_cli.catalogue.names import Resolved, resolve
from datasets_cli.config import Config
from datasets_cli.errors import AccessError, RldsError, SourceError
from datasets_cli.install.conversion import convert
from datasets_cli.install.installed import (
    installed_folder,
    is_installed,
    remove_raw,
    stand_in,
)
from datasets_cli.install.options import InstallOptions, Plan
from datasets_cli.install.reading import source_errors
from datasets_cli.install.source_place import Address, Folder
from datasets_cli.progress import Progress, Silent
from datasets_cli.recipe import Resource
from datasets_cli.sources.disk import check_free_space
from datasets_cli.sources.resource import RawFile, examine
from datasets_cli.store.cache_root import CacheRoot, check_id
from datasets_cli.store.commit import commit, restore
from datasets_cli.store.lock import locked

if TYPE_CHECKING:
    from datasets_cli.sources.http import Http

# D4RL and Minari files grow to about twice their size when they are unpacked and successors added.
CONVERTED_RATIO = 2


def plan_install(text: str, config: Config, wish: InstallOptions, http: Http) -> Plan:
    """Return what ``install_dataset`` would do; the publisher is asked for sizes where needed."""
    root = CacheRoot(config.root)
    resolved = _resolve(text, root, wish, http)
    if id := _installed(resolved, root, wish):
        return Plan(id, True, (), root.dataset(id))
    try:
        resources = _resources(resolved, wish, http)
    except AccessError as refusal:
        other = _instead(resolved, wish, refusal)
        found = plan_install(other, config, replace(wish, options={}), http)
        return replace(found, instead_of=resolved.id)
    return Plan(resolved.id, False, tuple(resources), root.dataset(resolved.id))


def install_dataset(
    text: str,
    config: Config,
    wish: InstallOptions | None = None,
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

    wish = wish or InstallOptions()
    root = CacheRoot(config.root)
    if is_installed(root, check_id(text)) and not (wish.force or wish.options):
        return installed_folder(root, text, wish.layout)
    http = http or Http(config)
    lock_progress, progress = progress, progress or Silent()
    resolved = _resolve(text, root, wish, http)
    known, asked = resolved.id.partition("~")[0], text.partition("~")[0]
    if known not in (asked, f"{resolved.recipe.family}/{asked}"):
        progress.note(f"{text} is {resolved.id}, its newest version")
    if id := _installed(resolved, root, wish):
        return installed_folder(root, id, wish.layout)
    with locked(root.lock(resolved.id), resolved.id, config.lock_timeout, lock_progress):
        restore(root, resolved.id)
        if is_installed(root, resolved.id) and not wish.force:
            return installed_folder(root, resolved.id, wish.layout)
        try:
            return _install(resolved, config, wish, http, progress)
        except (RldsError, OSError):
            # Where locks do not work another process may be done, and have swept up behind itself.
            if wish.force or not is_installed(root, resolved.id):
                raise
            return installed_folder(root, resolved.id, wish.layout)


def _resolve(text: str, root: CacheRoot, wish: InstallOptions, http: Http) -> Resolved:
    unlisted = wish.source is not None
    return resolve(text, root, unlisted=unlisted, web=http, options=wish.options)


def _installed(resolved: Resolved, root: CacheRoot, wish: InstallOptions) -> str | None:
    """Return the id of what is there already, if that will do."""
    if wish.force:
        return None
    if is_installed(root, resolved.id):
        return resolved.id
    return stand_in(resolved, root, wish.options) if wish.source is None else None


def _instead(resolved: Resolved, wish: InstallOptions, refusal: AccessError) -> str:
    """Return the id to install where the publisher refuses the files, or raise the refusal."""
    name = resolved.recipe.fallback(resolved.name, wish.options)
    if name is None or wish.source is not None:
        raise refusal
    return f"{resolved.recipe.family}/{name}"


def _install(
    resolved: Resolved, config: Config, wish: InstallOptions, http: Http, progress: Progress
) -> Path:
    root = CacheRoot(config.root)
    try:
        resources = _resources(resolved, wish, http)
    except AccessError as refusal:
        other = _instead(resolved, wish, refusal)
        progress.note(f"{resolved.id} is refused by its publisher; {other} is taken instead")
        try:
            wish = replace(wish, options={})
            return install_dataset(other, config, wish, http=http, progress=progress)
        except AccessError as error:
            message = f"{resolved.id} could not be had, and {other} neither:"
            raise AccessError(f"{message}\n  1. {refusal}\n  2. {error}") from error
    _preflight(root, resolved.id, resources, wish)
    files = [_raw_file(resource, root, resolved.id, wish, http, progress) for resource in resources]
    try:
        manifest, staging = convert(resolved, files, root, wish.layout, progress, wish.num_workers)
    except SourceError:
        if wish.source_folder is None:
            _doubt(files)
        raise
    if not commit(root, staging, manifest, replace=wish.force):
        progress.note(f"{resolved.id} was installed by another process meanwhile; its copy is kept")
    if not wish.keep_raw and wish.source_folder is None:
        remove_raw(root, resolved.id)
    return root.dataset(resolved.id)


def _doubt(files: list[RawFile]) -> None:
    """Have the next run fetch anew what no checksum vouches for: it may be the damaged one."""
    for file in files:
        if file.checked in ("size", "nothing"):
            Path(f"{file.path}.json").unlink(missing_ok=True)


def _resources(resolved: Resolved, wish: InstallOptions, http: Http) -> list[Resource]:
    """Return the files to read; with ``--source`` nothing but that place is asked."""
    recipe, name, folder = resolved.recipe, resolved.name, wish.source_folder
    with source_errors(resolved.id):
        if wish.source is None:
            return recipe.resources(name, http)
        place = Address(wish.source, http) if folder is None else Folder(folder, resolved.id)
        look = recipe.resources_at
        resources = look(name, place) if look else recipe.resources(name, None)
    return [replace(each, urls=(place.url(each.filename),)) for each in resources]


def _preflight(root: CacheRoot, id: str, resources: list[Resource], wish: InstallOptions) -> None:
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
    resource: Resource,
    root: CacheRoot,
    id: str,
    wish: InstallOptions,
    http: Http,
    progress: Progress,
) -> RawFile:
    """Return a checked file: downloaded, or read where ``--source DIR`` has it."""
    from datasets_cli.sources.download import fetch

    folder = wish.source_folder
    if folder is None:
        return fetch(resource, root.downloads(id), http, progress, accept_any=wish.accept_any)
    path = Folder(folder, id).file(resource.filename)
    digests = resource.new_digests()
    resource.check_magic(digests.read(path), str(path))
    return examine(resource, path, str(path.absolute()), digests, accept_any=wish.accept_any)
