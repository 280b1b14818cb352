"""New files and folders: written under a temporary name and renamed when they are complete.

<stem>-<host>-<process>-<token>          in a folder of temporaries, such as <root>/tmp
.<name>-<host>-<process>-<token>         beside <name>, which is its name when it is complete
.<name>-<host>-<process>-<token>.old     the complete older <name> while its successor is renamed

A killed process leaves them behind. ``rlds prune`` and the next call that writes to <name> delete
them, or rename an older copy back to <name> if that is free.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import re
import secrets
import shutil
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from datasets_cli.errors import DiskFull, NotWritable, UsageError, argument, wrong_value
from datasets_cli.sources.disk import (
    MAX_NAME_BYTES,
    disk_errors,
    flush_all,
    make_folder,
    path_errors,
)

OLD = ".old"
TEMPORARY = "rlds-"
"""The prefix of names in the system's temporary folders."""
IN_MEMORY = Path("/dev/shm")  # Linux: files in memory
SECONDS_A_DAY = 86_400

_NAME = re.compile(r"(?P<stem>.+)-(?P<host>[0-9a-f]{8})-(?P<process>\d+)-[0-9a-f]{16}(\.old)?")
_TRIES = 10
_made: set[str] = set()  # names: a killed process may have had our process number


def temporary_name(stem: str) -> str:
    """Return a new name that states which process uses the temporary."""
    name = f"{stem}-{_host()}-{os.getpid()}-{secrets.token_hex(8)}"
    _made.add(name)
    return name


def stem_of(path: Path) -> str:
    """Return the stem of a temporary's name; "" for a path that is not a temporary."""
    named = _NAME.fullmatch(path.name)
    return named["stem"] if named else ""


def is_abandoned(path: Path) -> bool:
    """Return whether a path is a temporary whose process has ended."""
    named = _NAME.fullmatch(path.name)
    if named is None:
        return False
    if named["host"] != _host():  # the processes of another machine are not known
        with suppress(OSError):
            return time.time() - path.lstat().st_mtime > SECONDS_A_DAY
        return False
    process = int(named["process"])
    if process == os.getpid():
        return path.name.removesuffix(OLD) not in _made
    return not _is_running(process)


@cache
def _host() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


@contextmanager
def temporary_folder(stem: str) -> Iterator[Path]:
    """Yield a new folder; delete it at the end."""
    folder = new_temporary_folder(stem, Path(tempfile.gettempdir()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def new_temporary_folder(stem: str, place: Path) -> Path:
    """Create a temporary folder that only this user can read."""
    folder = place / temporary_name(f"{TEMPORARY}{stem}")
    folder.mkdir(mode=0o700)
    return folder


@contextmanager
def beside(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside another one; delete it at the end if it exists."""
    new = path.with_name(temporary_name(f".{path.name}"))
    with disk_errors(path):
        make_folder(path.parent)
        try:
            yield new
        finally:
            delete(new)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the path of a new file or folder, which replaces ``path`` when the block ends.

    If the process is killed, the older or the new one is complete: at ``path``, or as a temporary
    that the next call renames back.
    """
    with beside(path) as new:
        yield new
        if new.is_dir() or path.is_dir():
            _replace_folder(new, path)
        else:
            replace_file(new, path)


def replace_file(new: Path, path: Path) -> None:
    """Rename a new file over an older one."""
    # The name always exists, except on a file system that cannot rename over a file.
    try:
        os.replace(new, path)
    except FileExistsError:
        path.unlink(missing_ok=True)
        os.replace(new, path)


def _replace_folder(new: Path, path: Path) -> None:
    flush_all(new)  # before the older one is deleted
    for _ in range(_TRIES):
        old = path.with_name(temporary_name(f".{path.name}") + OLD)
        try:
            if put_in_place(new, path, old):
                return
        finally:
            if path.exists():
                delete(old)
    raise NotWritable(
        f"Other processes replaced {path} {_TRIES} times.", path=path, advice="Wait for them."
    )


def put_in_place(new: Path, path: Path, old: Path | None = None) -> bool:
    """Rename a new folder to ``path`` if that is free; return whether it was.

    With ``old``, an existing ``path`` is renamed to ``old`` first, and back after an error.
    """
    if old is None:
        return _move_if_free(new, path)
    try:
        with suppress(FileNotFoundError):
            path.rename(old)
        return _move_if_free(new, path)
    except BaseException:
        if os.path.lexists(old):
            _move_if_free(old, path)
        raise


def _move_if_free(folder: Path, path: Path) -> bool:
    for retries in reversed(range(_TRIES)):
        make_folder(path.parent)
        try:
            folder.rename(path)
            return True
        except FileNotFoundError:  # another process has removed the empty parent
            if not retries:
                raise
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise
            # Not every file system renames over an empty folder; rmdir removes no other.
            try:
                path.rmdir()
            except OSError:
                return False
    raise AssertionError("the last try returns or raises")


def recover(path: Path) -> None:
    """Delete the temporaries of killed processes beside a path; restore an older copy first."""
    for leftover in sorted(path.parent.glob(f".{glob.escape(path.name)}-*")):
        if stem_of(leftover) != f".{path.name}" or not is_abandoned(leftover):
            continue
        if restored_path(leftover) is None or not _move_if_free(leftover, path):
            delete(leftover)


def restored_path(temporary: Path) -> Path | None:
    """Return the path to which an older copy can be renamed back; None if it exists."""
    path = temporary.with_name(stem_of(temporary)[1:] or temporary.name)
    return path if temporary.suffix == OLD and not os.path.lexists(path) else None


def delete(path: Path) -> None:
    """Delete a temporary file or folder if it exists."""
    if path.suffix == OLD:  # a partly deleted older copy must never be restored
        whole, path = path, path.with_name(temporary_name(stem_of(path)))
        with suppress(FileNotFoundError):
            whole.rename(path)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def write_text(path: Path, text: str, *, private: bool = False) -> None:
    """Replace the text of a user's file atomically."""
    path = path.resolve()  # it may be a link
    exists = path.exists()
    try:
        with path_errors(path), replacing(path) as new:
            recover(path)
            new.touch(0o600 if private or exists else 0o666)
            new.write_text(text, encoding="utf-8")
            if exists and not private:
                shutil.copymode(path, new)
    except DiskFull as error:
        raise DiskFull(
            f"The disk is full: {path} is unchanged.", path=path, advice="Make room."
        ) from error


def file_to_make(out: str | os.PathLike[str], endings: Sequence[str], force: bool) -> Path:
    """Return the path of a new file of the user; check it before the work begins."""
    path = Path(out)
    if len(os.fsencode(path.name)) > MAX_NAME_BYTES:
        raise UsageError(
            f"{path.name} is too long: a name may have {MAX_NAME_BYTES} bytes.",
            argument="out",
            expected=MAX_NAME_BYTES,
            found=len(os.fsencode(path.name)),
        )
    if path.suffix.lower() not in endings or path.is_dir():
        expected = f"{', '.join(endings[:-1])} or {endings[-1]}"
        raise wrong_value("out", expected, str(out))
    if os.path.lexists(path) and not force:
        raise UsageError(
            f"{path} exists already.",
            argument="out",
            path=path,
            advice=f"Add {argument('force')} to replace it, or choose another {argument('out')}.",
        )
    with suppress(DiskFull), path_errors(path):
        recover(path)
        # A full disk is reported when the file is written.
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    return path
