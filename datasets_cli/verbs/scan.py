"""Search for local data that is not installed, such as raw files of other programs.

A folder holds the raw files of a dataset if its path ends with the name of the dataset, or a file
has the name of the dataset's one file, and the recipe finds all its files there. Only names, sizes
and the metadata that a recipe needs are read, and the network is not used.
"""

from __future__ import annotations

import logging
import os
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from datasets_cli.catalogue.entries import catalogues
from datasets_cli.config import RootOptions
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import takes_fields
from datasets_cli.errors import RldsError, UsageError
from datasets_cli.install.find import is_installed
from datasets_cli.recipe import Recipe, Resource
from datasets_cli.sources.disk import no_folder
from datasets_cli.store.cache_root import CacheRoot, check_id, has_manifest, is_id
from datasets_cli.store.check import folder_size
from datasets_cli.store.manifest import read_manifest

logger = logging.getLogger(__name__)

PLACES = (
    ("MINARI_DATASETS_PATH", "~/.minari/datasets"),
    ("D4RL_DATASET_DIR", "~/.d4rl/datasets"),
    ("", "~/.cache/torchrl"),
)
"""Where other programs keep datasets: the variable that names the folder, and its default."""

MOST_FOLDERS = 100_000
DEEPEST = 8
TENSORDICT = "meta.json"
DUMP = "buffer_metadata.json"
"""A file of each folder that a buffer was dumped to; the rows are in a folder beside it."""

RAW = "raw files"
COPIED = "a dataset"
CONVERTED = "converted by TorchRL"
BROKEN = "without a manifest"


@dataclass(frozen=True)
class FoundData(JsonForm):
    """A folder with data that is not an installed dataset.

    Args:
        kind: ``"raw files"``, which can be installed; ``"a dataset"`` of another place, which can
            be copied; ``"converted by TorchRL"`` and ``"without a manifest"``, which cannot.
        path: the folder.
        size_bytes: the size of its files.
        id: the id of the dataset or of its raw files; empty for other kinds.
        installed: whether that dataset is installed.
        command: the shell command that installs it without a download; empty if that is
            impossible or not needed.
        reason: the reason why it cannot be installed, or empty.
    """

    JSON = "kind path bytes=size_bytes id|null installed command|null reason|null"

    kind: str
    path: Path
    size_bytes: int
    id: str = ""
    installed: bool = False
    command: str = ""
    reason: str = ""


@dataclass(frozen=True)
class ScanCall(RootOptions):
    """The arguments of ``scan``.

    Args:
        folders: folders to search; by default the caches of Minari, D4RL and TorchRL, and other
            files in the cache root.
    """

    folders: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] = field(
        default=(),
        metadata={
            **{"argument": True, "metavar": "FOLDER"},
            "help": "Folders to search.",
            "default": "the caches of Minari, D4RL and TorchRL, and other files in the cache root",
        },
    )


@takes_fields(ScanCall)
def scan(call: ScanCall) -> list[FoundData]:
    """Return the local data that is not installed, with the commands that install it.

    Raises:
        UsageError: a folder does not exist.
    """
    place = CacheRoot(call.chosen_config().root)
    folders = call.folders
    folders = [folders] if isinstance(folders, str | os.PathLike) else [*folders]
    tops = [Path(folder).expanduser() for folder in folders]
    for folder, top in zip(folders, tops, strict=True):
        if not (os.fspath(folder) and top.is_dir()):
            why = f"{os.fspath(folder)!r} {no_folder(folder)}"
            raise UsageError(
                f"{why}.",
                argument="folders",
                path=folder,
                advice="Pass a folder that contains datasets.",
            )
    names = _Names(place)
    folders_by_key: dict[tuple[Path, str], FoundData] = {}
    for top in (each.absolute() for each in tops or _usual_places(place)):
        for folder in islice(_folders(top, place), MOST_FOLDERS):
            folders_by_key |= {(folder, data.id): data for data in _look(folder, top, names, place)}
    return [folders_by_key[key] for key in sorted(folders_by_key)]


def _usual_places(root: CacheRoot) -> list[Path]:
    places = [Path(os.environ.get(name) or default).expanduser() for name, default in PLACES]
    return [place for place in (*places, root.path / "datasets") if place.is_dir()]


def _folders(top: Path, root: CacheRoot) -> Iterator[Path]:
    """Yield the folders below ``top``, with itself, that are not installed datasets."""
    for path, below, _ in os.walk(top, onerror=_warn):
        folder = Path(path)
        if has_manifest(folder) and root.path / "datasets" in folder.parents:
            below.clear()
            continue
        yield folder
        depth = len(folder.parts) - len(top.parts)
        # A tensordict has folders for nested keys: they are a part of it.
        is_whole = depth >= DEEPEST or has_manifest(folder) or (folder / TENSORDICT).is_file()
        below[:] = [] if is_whole else sorted(name for name in below if name[0] != ".")


def _warn(error: OSError) -> None:
    logger.warning("%s cannot be read (%s) and is left out.", error.filename, error.strerror)


class _Names:
    """The datasets whose raw files a folder may hold, by its path and the names of its files."""

    def __init__(self, root: CacheRoot) -> None:
        self._recipes: dict[str, Recipe] = {}
        self._by_end: dict[str, list[str]] = defaultdict(list)
        self._by_file: dict[str, list[str]] = defaultdict(list)
        for recipe, names in catalogues(root):
            if recipe.folder is None:  # else its files ship with it
                for name in sorted(names):
                    self._add(recipe, name)
        self._open = [recipe for recipe in set(self._recipes.values()) if recipe.unlisted]

    def _add(self, recipe: Recipe, name: str) -> None:
        id = f"{recipe.family}/{name}"
        self._recipes[id] = recipe
        self._by_end[name.rpartition("/")[2]].append(id)
        if recipe.resources_at is None:
            for resource in recipe.resources(name, None):
                self._by_file[resource.filename].append(id)

    def candidates(self, folder: Path, top: Path, files: Iterable[str]) -> Mapping[str, Recipe]:
        """Return the ids that a folder below ``top`` may have the files of, the likeliest first."""
        ids = [id for name in files for id in self._by_file.get(name, ())]
        for end in (folder, folder.parent):
            ids += [id for id in self._by_end.get(end.name, ()) if _ends(end, id)]
        known = {id: self._recipes[id] for id in ids}
        if known:
            return known
        # A user's own dataset has the name that its path below the cache is.
        name = folder.parent.relative_to(top).as_posix() if folder != top else ""
        return {
            f"{recipe.family}/{name}": recipe
            for recipe in self._open
            if name not in ("", ".") and is_id(f"{recipe.family}/{name}")
        }


def _ends(folder: Path, id: str) -> bool:
    """Return whether a path ends in the name of an id, without its family."""
    name = Path(id.partition("/")[2])
    return folder.parts[-len(name.parts) :] == name.parts


def _look(folder: Path, top: Path, names: _Names, root: CacheRoot) -> list[FoundData]:
    """Return the data in a folder; empty if it is unknown to rlds."""
    files = sorted(path.name for path in folder.iterdir() if path.is_file())
    raw = [*_raw_files(folder, top, names, root, files)]
    if raw or not files:
        return raw
    if root.path / "datasets" in folder.parents:  # including folders with the files of a tensordict
        reason = "no command of rlds opens it; move it elsewhere, or delete it"
        # Hidden folders are work under way, such as a run of preprocess.
        is_hidden = any(part.startswith(".") for part in folder.relative_to(root.path).parts)
        return [] if is_hidden else [FoundData(BROKEN, folder, folder_size(folder), reason=reason)]
    if has_manifest(folder):
        return [_dataset(folder, root)]
    if (folder.parent / DUMP).is_file():
        return []  # the rows of a buffer
    if TENSORDICT in files and any(name.endswith(".memmap") for name in files):
        reason = (
            "TorchRL made it from raw files that are not kept, and some of its conversions change "
            "values; download the dataset"
        )
        return [FoundData(CONVERTED, folder, folder_size(folder), reason=reason)]
    return []


def _dataset(folder: Path, root: CacheRoot) -> FoundData:
    """Return a dataset of another root, or that was copied here, and what copies it into place."""
    size = folder_size(folder)
    try:
        id = check_id(read_manifest(folder).id)
    except RldsError as error:
        return FoundData(COPIED, folder, size, reason=str(error))
    is_there = is_installed(root, id)
    command = "" if is_there else _copying(folder, root.dataset(id), id)
    return FoundData(COPIED, folder, size, id, is_there, command)


def _copying(folder: Path, place: Path, id: str) -> str:
    """Return the shell's command that copies a dataset's folder to its place and checks it."""
    words = ["mkdir -p", place.parent], ["&& cp -R", folder, place], ["&& rlds verify", id]
    return " ".join(f"{word} {shlex.join(map(str, paths))}" for word, *paths in words)


def _raw_files(
    folder: Path, top: Path, names: _Names, root: CacheRoot, files: list[str]
) -> Iterator[FoundData]:
    """Yield the datasets whose raw files are in a folder. Each file belongs to one dataset."""
    free, wrong = set(files), dict[str, FoundData]()
    for id, recipe in names.candidates(folder, top, files).items():
        resources = _resources(recipe, id, folder)
        needed = [resource.filename for resource in resources]
        if not needed or not free.issuperset(name for name in needed if "/" not in name):
            continue
        other = [each for each in resources if not each.accepts_size(_size(folder, each))]
        if other:
            reason = f"{id} has another size ({other[0].size:,} bytes): it is cut off, or changed"
            path, size = folder / other[0].filename, _size(folder, other[0])
            wrong.setdefault(other[0].filename, FoundData(RAW, path, size, id, reason=reason))
            continue
        free -= set(needed)
        is_there = is_installed(root, id)
        size = sum((folder / name).stat().st_size for name in needed)
        command = "" if is_there else f"rlds download {id} --source {shlex.quote(str(folder))}"
        yield FoundData(RAW, folder, size, id, is_there, command)
    yield from (found for name, found in wrong.items() if name in free)


def _size(folder: Path, resource: Resource) -> int:
    return (folder / resource.filename).stat().st_size


def _resources(recipe: Recipe, id: str, folder: Path) -> list[Resource]:
    """Return the files that a dataset needs, if all are in a folder, else []."""
    from datasets_cli.install.fetch import Folder  # with requests

    name, place = id.partition("/")[2], Folder(folder, id)
    try:
        look = recipe.resources_at
        resources = look(name, place) if look else recipe.resources(name, None)
        if all(place.has(each.filename) for each in resources):
            return resources
    except (RldsError, OSError, ValueError, AssertionError) as error:
        logger.debug("%s does not have the files of %s: %s", folder, id, error)
    return []
