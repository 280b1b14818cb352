"""A partial download: the bytes on this disk before they are complete and checked.

    FILE.part        bytes so far          FILE.part.json   the state: their URL, validator and size
    FILE             complete and checked  FILE.json        the same state, and the sha256

Two processes may fetch the same file if locks do not work. They do not damage each other's files: a
process that resumes writes the same bytes at the same offsets, a process that restarts writes a new
file, and a process that finishes renames exactly the bytes that it has checked.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO

from datasets_cli.core.checked_json import Check, JsonForm, decode
from datasets_cli.sources.disk import make_folder
from datasets_cli.sources.new_files import replace_file
from datasets_cli.sources.resource import Digests

MAX_STATE_BYTES = 1 << 16


# No other text can be sent: the download would fail each time that it is resumed.
Header = Annotated[
    str,
    Check("a header", lambda text: text.isascii() and text.isprintable() and text == text.strip()),
]


@dataclass(frozen=True)
class DownloadState(JsonForm):
    """The version of a file that its bytes belong to: its URL, validator, size and sha256."""

    CLOSED = True

    url: str
    validator: Header | None
    size: Annotated[int, Check("0 or more", lambda size: size >= 0)] | None
    sha256: str | None = None


def read_state(path: Path) -> DownloadState | None:
    """Return the state in a file; None if the file is missing or unreadable."""
    try:
        with path.open("rb") as file:
            return decode(DownloadState, json.loads(file.read(MAX_STATE_BYTES)))
    # RecursionError: for nested lists. ValueError: also for a number of 5,000 digits.
    except (OSError, ValueError, RecursionError):
        return None


def is_state_file(path: Path) -> bool:
    """Return whether a file is the state of a download beside it."""
    if path.name.endswith(".part.json"):  # even if it is garbled
        return True
    return path.name.endswith(".json") and read_state(path) is not None


class PartialDownload:
    """The bytes of one download so far.

    Use it in a ``with`` statement around one attempt: ``resume`` or ``begin``, then ``write``,
    ``flush`` and ``publish``. The end of the block closes the file.
    """

    def __init__(self, target: Path) -> None:
        self.target = target
        self.path = Path(f"{target}.part")
        self._state_path = Path(f"{target}.part.json")
        self._file: BinaryIO | None = None

    def __enter__(self) -> PartialDownload:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    @property
    def size(self) -> int:
        """The number of bytes so far."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    @property
    def state(self) -> DownloadState | None:
        """The state of the bytes so far; None if it is not known."""
        return read_state(self._state_path)

    def resume(self, digests: Digests) -> bool:
        """Open the bytes so far for appending and hash them; False if there are none."""
        # A file with several hard links, such as a copy of the whole cache, or behind a symbolic
        # link has other users: a new file is started.
        try:
            status = self.path.lstat()
            if status.st_nlink > 1 or not stat.S_ISREG(status.st_mode):
                return False
            self._file = self.path.open("r+b")
        except FileNotFoundError:
            return False
        digests.read_file(self._file)
        return digests.size > 0

    def begin(self, state: DownloadState) -> None:
        """Replace the bytes so far with an empty file."""
        self._close()
        self.discard()
        make_folder(self.path.parent)
        fresh = self._new_path()
        self._file = fresh.open("x+b")
        replace_file(fresh, self.path)
        _write_state(self._state_path, state)

    def write(self, data: bytes) -> None:
        """Append bytes."""
        self._open_file().write(data)

    def flush(self) -> None:
        """Flush all bytes to the disk."""
        file = self._open_file()
        file.flush()
        os.fsync(file.fileno())

    def publish(self, state: DownloadState) -> None:
        """Rename the bytes that this object has read and written to the target."""
        make_folder(self.target.parent)
        _write_state(Path(f"{self.target}.json"), state)
        with suppress(FileNotFoundError):
            replace_file(self.path, self.target)
        if not self._has_file_at(self.target):
            # Another process restarted or finished: the renamed file belonged to it.
            copy = self._new_path()
            with copy.open("xb") as file:
                self._open_file().seek(0)
                shutil.copyfileobj(self._open_file(), file)
            replace_file(copy, self.target)
        self._state_path.unlink(missing_ok=True)

    def discard(self) -> None:
        """Delete the bytes so far."""
        self.path.unlink(missing_ok=True)
        self._state_path.unlink(missing_ok=True)

    def _open_file(self) -> BinaryIO:
        assert self._file is not None, "resume or begin comes first"
        return self._file

    def _has_file_at(self, path: Path) -> bool:
        try:
            return os.path.samestat(path.stat(), os.fstat(self._open_file().fileno()))
        except FileNotFoundError:
            return False

    def _new_path(self) -> Path:
        return Path(f"{self.path}.{uuid.uuid4().hex}")

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _write_state(path: Path, state: DownloadState) -> None:
    path.write_text(json.dumps(state.to_json()), encoding="utf-8")
