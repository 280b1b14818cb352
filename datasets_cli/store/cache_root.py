"""The folders of the cache root.

<root>/datasets/<family>/<name…>/    committed datasets; one exists exactly when its manifest does
<root>/downloads/<family>/<name…>/   raw files, removed after the commit unless asked otherwise
<root>/downloads/recorded/<name…>/   episodes that are recorded, until the commit
<root>/downloads/recorded/.<name>.recorded/    the same after it, until they are deleted
<root>/tmp/<slug>-<owner>/           a dataset that is being written (``sources/new_files.py``)
<root>/tmp/trash-<slug>-<owner>/     a dataset that is being replaced or deleted
<root>/locks/<slug>.lock             one lock per id, while it is held (saves work; not needed)
<root>/catalogue/                    cached remote catalogues
<root>/tables/<content>/             tables computed of a committed dataset

<folder>/.<name>.<plan>.partial/     an unfinished run of preprocess into <folder>/<name>
<folder>/.<name>.lock                the lock of that folder, while it is held

A committed dataset is never written again. Its tables are found by its content, so that every
layout shares them; if the root is read-only, they are in the user's cache.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import reprlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NoReturn

import platformdirs

from datasets_cli.core.system_errors import MANIFEST_FILENAME
from datasets_cli.errors import UsageError, argument
from datasets_cli.sources.disk import broken_link, paths_below
from datasets_cli.sources.new_files import is_abandoned, stem_of, temporary_name

logger = logging.getLogger(__name__)

# Letters, digits and the punctuation that publishers use; no part may look like an option or a
# hidden file, or leave the folder.
_PART = r"[A-Za-z0-9_][A-Za-z0-9_.@+~=-]{0,199}"
_ID = re.compile(rf"{_PART}(?:/{_PART})*")
_GLOB = re.compile(r"[*?[]")
_RUN = re.compile(r"\.(.+)\.[0-9a-f]{16}\.partial")
_TRASH = "trash-"
_RECORDED = ".recorded"
RECORDING = "recording.json"
"""The file in the folder of a recording that describes it."""
_STEM = re.compile(rf"({_TRASH})?(.+\.[0-9a-f]{{8}})")


@dataclass(frozen=True)
class CacheRoot:
    """The folders below one cache root. No method creates them."""

    path: Path
    apart: Path | None = None  # the folder of tables for a user who only reads the root

    def dataset(self, id: str) -> Path:
        """Return the folder of a committed dataset."""
        return self.path / "datasets" / check_id(id)

    def downloads(self, id: str) -> Path:
        """Return the folder of a dataset's raw files."""
        return self.path / "downloads" / check_id(id)

    def recorded(self, id: str) -> Path:
        """Return the folder of episodes that are committed, until it is deleted."""
        work = self.downloads(id)
        return work.with_name(f".{work.name}{_RECORDED}")

    def recordings(self) -> list[tuple[str, Path]]:
        """Return the recordings that have not ended: the id of each, its folder."""
        top = self.path / "downloads"
        plans = (plan.parent for plan in (top / "recorded").rglob(RECORDING))
        done = (top / "recorded").rglob(f".*{_RECORDED}")
        names = {path: path.name.removeprefix(".").removesuffix(_RECORDED) for path in done}
        names |= {path: path.name for path in plans if path not in names}
        ids = {path: path.with_name(name).relative_to(top) for path, name in names.items()}
        return sorted((id.as_posix(), path) for path, id in ids.items() if is_id(id.as_posix()))

    def lock(self, id: str) -> Path:
        """Return the lock file of an id."""
        return self.path / "locks" / f"{_slug(id)}.lock"

    def catalogue(self, family: str) -> Path:
        """Return the file of a family's cached remote catalogue."""
        return self.path / "catalogue" / f"{check_id(family)}.json"

    def tables(self, content: str) -> Path:
        """Return the folder that tables and statistics of data with this identity go to."""
        return self.tables_to_read(content)[0]

    def tables_to_read(self, content: str) -> tuple[Path, ...]:
        """Return the folders of tables of data with this identity; new tables go to the first."""
        # Both are read: the root may have been writable at another time, or for another user.
        own = self.path / "tables" / content
        users = platformdirs.user_cache_path("rlds") / "tables" / content
        existing = next(folder for folder in (own, *own.parents) if folder.exists())
        kept = (own, users) if os.access(existing, os.W_OK) else (users, own)
        return kept if self.apart is None else (self.apart / content, *kept)

    def new_staging(self, id: str) -> Path:
        """Return a new folder name, on the same disk, for a copy of this id to be written."""
        return self.path / "tmp" / temporary_name(_slug(id))

    def new_trash(self, id: str) -> Path:
        """Return a new folder name, on the same disk, for a dataset that is to go."""
        return self.path / "tmp" / temporary_name(f"{_TRASH}{_slug(id)}")

    def staged(self, id: str = "") -> list[Path]:
        """Return what processes that have ended left of copies of this id, or of any."""
        return [folder for folder, is_used in self.staging(id) if not is_used]

    def staging(self, id: str = "") -> list[tuple[Path, bool]]:
        """Return the copies of this id, or of any, that are not committed; each may be in use."""
        # The lock of the id proves nothing: on some file systems locks do not work.
        return [(folder, not is_abandoned(folder)) for folder in self._temporary(None, id)]

    def ids_of_work(self, known: Iterable[str]) -> dict[str, str]:
        """Return ids by the prefix of the names of their locks and temporary folders."""
        return {_slug(id): id for id in known}

    def trashed(self, id: str = "") -> list[Path]:
        """Return earlier copies of this id, or of any, that a killed run left in the trash."""
        return self._temporary(_TRASH, id)

    def partial_runs(self) -> list[tuple[str, Path]]:
        """Return the unfinished runs of ``preprocess``: the id of the result, and the folder."""
        # Folders with other names, and links, do not belong to `preprocess`.
        top = self.path / "datasets"
        runs = []
        for folder in sorted(paths_below(top)):
            dest = dest_of(folder)
            id = dest.relative_to(top).as_posix() if dest else ""
            if is_id(id) and folder.is_dir() and not folder.is_symlink():
                runs.append((id, folder))
        return runs

    def _temporary(self, prefix: str | None, id: str) -> list[Path]:
        # The root may be a folder that has a tmp of somebody else's, as / has.
        named = ((path, _STEM.fullmatch(stem_of(path))) for path in (self.path / "tmp").glob("*"))
        slug = _slug(id) if id else ""
        return sorted(
            path for path, stem in named if stem and stem[1] == prefix and slug in ("", stem[2])
        )

    def check_apart(self, id: str) -> None:
        """Check that no installed dataset is within the folder of an id, or around it."""
        folder, top = self.dataset(id), self.path / "datasets"
        around = [each for each in folder.parents if top in each.parents and has_manifest(each)]
        within = [] if has_manifest(folder) else _dataset_folders(folder)
        for other in (*around, *within):
            raise UsageError(
                f"{id} and the installed {other.relative_to(top).as_posix()} would be nested: "
                "deleting or replacing one would affect both.",
                id=id,
                found=other.relative_to(top).as_posix(),
                advice="Choose another name.",
            )

    def installed(self) -> Iterator[str]:
        """Yield the ids of all committed datasets, sorted; their manifests are not read."""
        top = self.path / "datasets"
        for folder in _dataset_folders(top):
            id = folder.relative_to(top).as_posix()
            try:
                yield check_id(id)
            except UsageError:
                logger.warning("%s has a manifest, but its name cannot be a dataset's.", folder)


def dest_of(folder: Path) -> Path | None:
    """Return the destination of the run that a folder belongs to, or None."""
    named = _RUN.fullmatch(folder.name)
    return folder.with_name(named[1]) if named else None


def runs_to(dest: Path) -> list[Path]:
    """Return the folders of all unfinished runs to a destination."""
    if not dest.parent.is_dir():
        return []
    return [folder for folder in dest.parent.iterdir() if dest_of(folder) == dest]


def lock_of(dest: Path) -> Path:
    """Return the lock file of a destination, the same for all processes that can write there."""
    return dest.parent / f".{dest.name}.lock"


def refuse_id(id: object) -> NoReturn:
    """Reject an id, or a glob of ids, that is not text."""
    raise UsageError(
        f"A dataset's id is text, such as 'd4rl/door-human-v0', not {reprlib.repr(id)}.",
        argument="id",
        expected="text",
        found=id,
    )


def check_id(id: str) -> str:
    """Return ``id`` if it is a relative path of plain names."""
    if not isinstance(id, str):
        refuse_id(id)
    if _GLOB.search(id):
        raise UsageError(
            f"{id!r} is a glob, and one id is needed here.",
            argument="id",
            found=id,
            advice=f"Give one id; rlds list {id!r} shows them.",
        )
    if not _ID.fullmatch(id) or len(id) > 600:
        raise UsageError(
            f"{id!r} cannot be a dataset id. An id is family/name, each part made of letters, "
            "digits and . _ - + = @ ~, and starting with a letter, a digit or _."
            f"{folder_advice(id)}",
            argument="id",
            found=id,
        )
    return id


def folder_advice(id: str) -> str:
    """Return advice if an id is the path of a folder; otherwise an empty text."""
    if not os.path.isdir(id):  # noqa: PTH112 - Path.is_dir raises for a name that is too long
        return ""
    if has_manifest(Path(id)):
        shown = id if id[0] in "/." else f"./{id}"
        return (
            f" That folder is a dataset: in Python, ExperienceReplay({shown!r}) opens it, and "
            "a copy of it at ROOT/datasets/ID is installed."
        )
    if Path(id, "datasets").is_dir():
        return f" Datasets in that folder are found by their id and {argument('root', repr(id))}."
    return (
        f" {argument('root')} names the folder that datasets are installed in, "
        f"{argument('source')} one with a publisher's raw files; what dumps() wrote, loads() reads."
    )


def is_id(text: str) -> bool:
    """Return whether a text can be a dataset's id."""
    try:
        return bool(check_id(text))
    except UsageError:
        return False


@cache
def _slug(id: str) -> str:
    """Return a flat, unique file name for an id.

    >>> _slug("d4rl/hopper-medium-v2")
    'd4rl.hopper-medium-v2.cef29b57'
    """
    digest = hashlib.sha256(check_id(id).encode()).hexdigest()[:8]
    return f"{id.replace('/', '.')[:120]}.{digest}"


def has_manifest(folder: Path) -> bool:
    """Return whether a folder is a dataset: it contains an entry of a manifest's name."""
    # If that is a folder, a pipe or a broken link, the dataset is damaged.
    return os.path.lexists(folder / MANIFEST_FILENAME)


def _dataset_folders(folder: Path) -> Iterator[Path]:
    if has_manifest(folder):
        yield folder
        return  # datasets do not nest
    try:
        # Hidden folders are work under way.
        entries = sorted(entry for entry in folder.iterdir() if entry.name[0] != ".")
    except (FileNotFoundError, NotADirectoryError):
        if link := broken_link(folder):
            logger.warning("%s; what was there is left out.", link)
        return
    except OSError as error:  # it must not hide the others
        logger.warning("%s cannot be read (%s) and is left out.", folder, error.strerror)
        return
    for entry in entries:
        yield from _dataset_folders(entry)
