"""The folders of the cache root.

<root>/datasets/<family>/<name…>/    committed datasets; one exists exactly when its manifest does
<root>/downloads/<family>/<name…>/   raw files, deleted after the commit by default
<root>/downloads/recorded/<name…>/   recorded episodes, until the commit
<root>/downloads/recorded/.<name>.recorded/    recorded episodes after it, until they are deleted
<root>/tmp/<slug>-<owner>/           a dataset that is being written (``sources/new_files.py``)
<root>/tmp/trash-<slug>-<owner>/     a dataset that is being replaced or deleted
<root>/locks/<slug>.lock             one lock per id, while it is held (optional: it saves work)
<root>/catalogue/                    cached remote catalogues
<root>/tables/<content>/             tables computed of a committed dataset

<folder>/.<name>.<plan>.partial/     an unfinished run of preprocess into <folder>/<name>
<folder>/.<name>.lock                the lock of that folder, while it is held

A committed dataset is never modified. Its tables are named by its content, so all layouts share
them; for a read-only root they are in the user's cache.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NoReturn

import platformdirs

from datasets_cli.core.system_errors import MANIFEST_FILENAME
from datasets_cli.errors import UsageError, argument, wrong_value
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
"""The description of a recording, in its folder."""
_STEM = re.compile(rf"({_TRASH})?(.+\.[0-9a-f]{{8}})")


@dataclass(frozen=True)
class CacheRoot:
    """The folders below one cache root. No method creates them."""

    path: Path
    apart: Path | None = None  # a separate folder of tables, for a root that is only read

    def dataset(self, id: str) -> Path:
        """Return the folder of a committed dataset."""
        return self.path / "datasets" / check_id(id)

    def downloads(self, id: str) -> Path:
        """Return the folder of a dataset's raw files."""
        return self.path / "downloads" / check_id(id)

    def recorded(self, id: str) -> Path:
        """Return the folder of committed episodes that are not yet deleted."""
        work = self.downloads(id)
        return work.with_name(f".{work.name}{_RECORDED}")

    def recordings(self) -> list[tuple[str, Path]]:
        """Return the id and the folder of each unfinished recording."""
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
        """Return the folder for new tables of data with this identity."""
        return self.tables_to_read(content)[0]

    def tables_to_read(self, content: str) -> tuple[Path, ...]:
        """Return the folders with tables of data with this identity; the first is for new ones."""
        # Both are read: the root may have been writable earlier, or for another user.
        shared = self.path / "tables" / content
        private = platformdirs.user_cache_path("rlds") / "tables" / content
        existing = next(folder for folder in (shared, *shared.parents) if folder.exists())
        folders = (shared, private) if os.access(existing, os.W_OK) else (private, shared)
        return folders if self.apart is None else (self.apart / content, *folders)

    def new_staging(self, id: str) -> Path:
        """Return a new folder name, on the same disk, for writing a copy of this id."""
        return self.path / "tmp" / temporary_name(_slug(id))

    def new_trash(self, id: str) -> Path:
        """Return a new folder name, on the same disk, for deleting a copy of this id."""
        return self.path / "tmp" / temporary_name(f"{_TRASH}{_slug(id)}")

    def staged(self, id: str = "") -> list[Path]:
        """Return the unfinished copies of this id, or of any id, whose process has ended."""
        return [folder for folder, is_used in self.staging(id) if not is_used]

    def staging(self, id: str = "") -> list[tuple[Path, bool]]:
        """Return the unfinished copies of this id, or of any id, and whether each is in use."""
        # The lock of the id proves nothing: locks do not work on some file systems.
        return [(folder, not is_abandoned(folder)) for folder in self._temporary(None, id)]

    def ids_of_work(self, known: Iterable[str]) -> dict[str, str]:
        """Return the ids by the slugs in the names of their locks and temporary folders."""
        return {_slug(id): id for id in known}

    def trashed(self, id: str = "") -> list[Path]:
        """Return the copies of this id, or of any id, that a killed run left in the trash."""
        return self._temporary(_TRASH, id)

    def partial_runs(self) -> list[tuple[str, Path]]:
        """Return the id of the result and the folder of each unfinished run of ``preprocess``."""
        # Links, and folders with other names, do not belong to `preprocess`.
        top = self.path / "datasets"
        runs = []
        for folder in sorted(paths_below(top)):
            dest = dest_of(folder)
            id = dest.relative_to(top).as_posix() if dest else ""
            if is_id(id) and folder.is_dir() and not folder.is_symlink():
                runs.append((id, folder))
        return runs

    def _temporary(self, prefix: str | None, id: str) -> list[Path]:
        # The root may be a folder whose tmp belongs to others, such as /.
        named = ((path, _STEM.fullmatch(stem_of(path))) for path in (self.path / "tmp").glob("*"))
        slug = _slug(id) if id else ""
        return sorted(
            path for path, stem in named if stem and stem[1] == prefix and slug in ("", stem[2])
        )

    def check_apart(self, id: str) -> None:
        """Check that no installed dataset is inside the folder of an id, or contains it."""
        folder, top = self.dataset(id), self.path / "datasets"
        around = [each for each in folder.parents if top in each.parents and has_manifest(each)]
        within = [] if has_manifest(folder) else _dataset_folders(folder)
        for other in (*around, *within):
            raise UsageError(
                f"{id} and the installed {other.relative_to(top).as_posix()} cannot be nested: "
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
                logger.warning("%s has a manifest, but its name is not a dataset id.", folder)


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
    """Return the lock file of a destination, the same for all processes that write there."""
    return dest.parent / f".{dest.name}.lock"


def refuse_id(id: object) -> NoReturn:
    """Reject an id, or a glob of ids, that is not text."""
    raise wrong_value("id", "text, such as 'd4rl/door-human-v0'", id)


def check_id(id: str) -> str:
    """Return ``id`` if it is a relative path of plain names."""
    if not isinstance(id, str):
        refuse_id(id)
    if _GLOB.search(id):
        raise UsageError(
            f"{id!r} is a glob. Expected one id.",
            argument="id",
            expected="one id",
            found=id,
            advice=f"Run: rlds list {id!r}",
        )
    if not _ID.fullmatch(id) or len(id) > 600:
        raise UsageError(
            f"{id!r} is not a dataset id. Expected family/name, with letters, digits and "
            ". _ - + = @ ~ in each part, and a letter, a digit or _ as its first character.",
            argument="id",
            expected="family/name",
            found=id,
            advice=folder_advice(id),
        )
    return id


def folder_advice(id: str) -> str:
    """Return advice if an id is the path of a folder; otherwise an empty text."""
    if not os.path.isdir(id):  # noqa: PTH112 - Path.is_dir raises for a name that is too long
        return ""
    if has_manifest(Path(id)):
        shown = id if id[0] in "/." else f"./{id}"
        return (
            f"That folder is a dataset: ExperienceReplay({shown!r}) opens it in Python. To "
            "install it, copy it to ROOT/datasets/ID."
        )
    if Path(id, "datasets").is_dir():
        return (
            f"Pass {argument('root', repr(id))} to find the datasets in that folder by their ids."
        )
    return (
        f"{argument('root')} is for the folder of installed datasets, {argument('source')} for a "
        "folder of a publisher's raw files. loads() reads the files of dumps()."
    )


def is_id(text: str) -> bool:
    """Return whether a text is a valid dataset id."""
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
    """Return whether a folder is a dataset: it has an entry ``manifest.json`` of any kind."""
    # If that entry is a folder, a pipe or a broken link, the dataset is damaged.
    return os.path.lexists(folder / MANIFEST_FILENAME)


def _dataset_folders(folder: Path) -> Iterator[Path]:
    if has_manifest(folder):
        yield folder
        return  # datasets do not nest
    try:
        # Hidden folders are unfinished work.
        entries = sorted(entry for entry in folder.iterdir() if entry.name[0] != ".")
    except (FileNotFoundError, NotADirectoryError):
        if link := broken_link(folder):
            logger.warning("%s and is skipped.", link)
        return
    except OSError as error:  # the rest is still listed
        logger.warning("%s cannot be read (%s) and is skipped.", folder, error.strerror)
        return
    for entry in entries:
        yield from _dataset_folders(entry)
