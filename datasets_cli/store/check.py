"""Checks an installed dataset against its manifest, without opening its data.

The manifest is untrusted, too: its entries are checked against each other before files are mapped
by its numbers. Files that it does not list are never opened.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from datasets_cli.core.checked_json import WrongValue, decode
from datasets_cli.core.system_errors import damaged
from datasets_cli.schema.columns import FINAL_FOLDER, final_columns
from datasets_cli.schema.texts import OFFSETS_FILENAME, VALUES_FILENAME
from datasets_cli.schema.trajectory_file import FILENAME as TRAJECTORIES
from datasets_cli.schema.trajectory_file import table_bytes
from datasets_cli.sources.disk import paths_below
from datasets_cli.sources.new_files import stem_of
from datasets_cli.sources.regular_file import digest_of, kind_of, open_regular
from datasets_cli.store.layouts.records import RECORDS, ROW_MAP, Record, check_record, row_map_dtype
from datasets_cli.store.manifest import Manifest

# Errors of paths that cannot exist on this file system.
_NO_SUCH = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL})
OUTSIDE = "the manifest names a file outside the folder"
NO_RECORD = Record(size=0, num_records=0, fields=(), constants=(), made=(), frames=())
"""The record of a dataset in the ``ted`` layout."""
_VOCABULARY = (VALUES_FILENAME, OFFSETS_FILENAME)


def check_sizes(folder: Path, manifest: Manifest, *, final: bool = True) -> Record:
    """Check that every file is a regular file inside the folder, of exactly the right size."""
    # final: with the files of final steps, which are not opened before they are asked for.
    # A size must match the manifest and the columns. One `lstat` for each file. (tensordict's
    # loader skips missing leaves, pads short ones with zeros and follows symbolic links.)
    record = check_entries(folder, manifest)
    needed = _sizes_needed(manifest, record)
    needed |= _final_sizes(manifest) if final else {}
    problems = [*_differences(str(folder), manifest, () if final else f"{FINAL_FOLDER}/")]
    problems += [
        f"{name}: its columns need {size} bytes, the manifest has {listed}"
        for name, size in needed.items()
        if (listed := manifest.files.get(name, {"bytes": 0})["bytes"]) != size
    ]
    problems += _unlisted(folder, manifest, record)
    problems += _problems_of_text(manifest)
    _raise_problems(folder, manifest, problems)
    return record


def check_digests(folder: Path, manifest: Manifest) -> Record:
    """Check every file's size and sha256; return the record as ``check_sizes`` does."""
    record = check_sizes(folder, manifest)
    problems = []
    for name, entry in manifest.files.items():
        try:
            with open_regular(folder / name) as file:
                digest = digest_of(file)
        except FileNotFoundError:  # deleted after its size was compared
            raise
        except OSError as error:
            problems.append(f"{name}: cannot be read ({error.strerror or error})")
            continue
        if digest != entry["sha256"]:
            problems.append(f"{name}: expected sha256 {entry['sha256']}, found {digest}")
    _raise_problems(folder, manifest, problems)
    return record


def check_entries(folder: Path, manifest: Manifest) -> Record:
    """Check the entries of a manifest against each other; return its record, empty for ``ted``."""
    # `read_manifest` has checked the types.
    try:
        if not 1 <= manifest.num_trajectories <= manifest.num_transitions:
            expected = f"1 to {manifest.num_transitions}, the number of transitions"
            raise WrongValue("num_trajectories", expected, manifest.num_trajectories)
        if manifest.layout == "ted":
            return NO_RECORD
        record = decode(Record, manifest.record, "record")
        check_record(record, manifest.columns, manifest.num_transitions, manifest.num_trajectories)
    except WrongValue as error:
        problem = f"The manifest of {manifest.id} contradicts itself: {error}"
        raise damaged(folder, problem, id=manifest.id, **error.details) from error
    return record


def _sizes_needed(manifest: Manifest, record: Record) -> dict[str, int]:
    num_rows = manifest.num_transitions
    known = {TRAJECTORIES: table_bytes(manifest.num_trajectories)}
    known |= {text.filename: text.codes.row_bytes * num_rows for text in manifest.texts}
    if manifest.layout == "ted":
        return known | {c.filename: c.row_bytes * num_rows for c in manifest.columns}
    row_bytes = 4 if row_map_dtype(record.num_records) == "int32" else 8
    sizes = {RECORDS: record.size * record.num_records, ROW_MAP: row_bytes * num_rows}
    return sizes | known | {field.offsets: 8 * (record.num_records + 1) for field in record.frames}


def _final_sizes(manifest: Manifest) -> dict[str, int]:
    sizes = {each.filename: each.row_bytes for each in final_columns(manifest.columns)}
    sizes |= {text.filename: text.codes.row_bytes for text in manifest.final_texts}
    num_steps = manifest.final_steps
    return {f"{FINAL_FOLDER}/{name}": num_steps * size for name, size in sizes.items() if num_steps}


def _unlisted(folder: Path, manifest: Manifest, record: Record) -> Iterator[str]:
    """Yield the problems of frame files that the manifest does not list."""
    # They are not opened. A regular file is ignored; any other kind is an attack.
    for field in record.frames:
        if field.filename not in manifest.files:
            yield f"{field.filename}: is not listed, but contains the frames"
        if field.dictionary not in manifest.files:
            status = _look_at(folder / field.dictionary)
            if status and not stat.S_ISREG(status.st_mode):
                yield f"{field.dictionary}: is {kind_of(status.st_mode)}"


def _problems_of_text(manifest: Manifest) -> list[str]:
    """Return the problems of the vocabulary, whose number of values is not in the manifest."""
    if not manifest.texts:
        return []
    has_final = manifest.final_steps and manifest.final_texts
    folders = ("", f"{FINAL_FOLDER}/") if has_final else ("",)
    needed = [folder + name for folder in folders for name in _VOCABULARY]
    problems = [f"{name}: is not listed" for name in needed if name not in manifest.files]
    for name in (folder + OFFSETS_FILENAME for folder in folders):
        size = manifest.files.get(name, {"bytes": 8})["bytes"]
        if size < 8 or size % 8:
            problems.append(f"{name}: expected a multiple of 8 bytes, found {size}")
    return problems


def _differences(folder: str, manifest: Manifest, without: str | tuple[()]) -> Iterator[str]:
    # without: how names of files begin that are not looked at.
    above: dict[str, str] = {}
    for name, entry in manifest.files.items():
        if name.startswith(without):
            continue
        parent, _, own = name.rpartition("/")
        if parent not in above:
            above[parent] = _link_above(folder, parent)
        if not own or own == ".." or "\\" in own or name[0] == "/":
            yield f"{name}: {OUTSIDE}"
        elif above[parent]:
            yield f"{name}: {above[parent]}"
        elif (status := _look_at(f"{folder}/{name}")) is None:
            yield f"{name}: is missing"
        elif not stat.S_ISREG(status.st_mode):
            yield f"{name}: is {kind_of(status.st_mode)}"
        elif status.st_size != entry["bytes"]:
            yield f"{name}: expected {entry['bytes']} bytes, found {status.st_size}"


def _link_above(folder: str, parent: str) -> str:
    """Return the problem of a folder within the dataset: ``..`` or a link leads outside it."""
    parts = parent.split("/") if parent else []
    if not all(parts) or ".." in parts or "\\" in parent:
        return OUTSIDE
    for depth in range(1, len(parts) + 1):
        path = "/".join(parts[:depth])
        status = _look_at(f"{folder}/{path}")
        if status and stat.S_ISLNK(status.st_mode):
            return f"{path} is a symbolic link"
    return ""


def _look_at(path: Path | str) -> os.stat_result | None:
    """Return the status of a path, without following a link; None if it does not exist."""
    try:
        return os.lstat(path)
    except OSError as error:
        if error.errno not in _NO_SUCH:
            raise
    except ValueError:  # a file name cannot have a null byte or half of a surrogate pair
        pass
    return None


def _raise_problems(folder: Path, manifest: Manifest, problems: list[str]) -> None:
    if problems:
        what = f"{manifest.id} under {folder} differs from its manifest"
        listed = "; ".join(problems)
        raise damaged(folder, f"{what}: {listed}", id=manifest.id, found=listed)


def folder_size(folder: Path, *, with_unfinished: bool = True) -> int:
    """Return the size in bytes of a file or of all files below a folder; 0 if it is missing."""
    size = 0
    for path in (folder, *paths_below(folder)):
        if with_unfinished or not stem_of(path):
            with suppress(FileNotFoundError):  # other processes may be writing there
                entry = path.lstat()
                size += 0 if stat.S_ISDIR(entry.st_mode) else entry.st_size
    return size
