"""The raw files of a dataset: which they are, and each checked on this disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from datasets_cli.catalogue.names import Resolved
from datasets_cli.errors import UsageError, argument
from datasets_cli.install.options import InstallOptions
from datasets_cli.install.reading import source_errors
from datasets_cli.install.source_place import Address, Folder
from datasets_cli.progress import Progress
from datasets_cli.recipe import Resource
from datasets_cli.sources.raw_file import RawFile, verify
from datasets_cli.store.cache_root import CacheRoot

if TYPE_CHECKING:
    from datasets_cli.sources.http import Http

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
