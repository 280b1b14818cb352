"""A partial download: bytes so far, on this disk, until they get their name.

    FILE.part        bytes so far          FILE.part.json   the state: what they belong to
    FILE             complete and checked  FILE.json        the same state, and the sha256

Two processes may fetch the same file where locks do not work. Nothing is appended blindly or cut
short under the other one: a process that continues writes the same bytes at the same offsets, one
that starts again does so in a new file, and one that is done names the very bytes that it wrote and
checked.
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
from datasets_cli.sources.digests import Digests
from datasets_cli.sources.disk import make_folder
from datasets_cli.sources.new_files import replace_file

MAX_STATE_BYTES = 1 << 16


# No other text can be sent: the download would fail each time that it is continued.
Header = Annotated[
    str,
    Check("a header", lambda text: text.isascii() and text.isprintable() and text == text.strip()),
]


@dataclass(frozen=True)
class DownloadState(JsonForm):
    """What the bytes of a file belong to."""

    CLOSED = True

    url: str
    validator: Header | None
    size: Annotated[int, Check("0 or more", lambda size: size >= 0)] | None
    sha256: str | None = None


def read_state(path: Path) -> DownloadState | None:
    """Return the state in a file; None if it is missing or cannot be read."""
    try:
        with path.open("rb") as file:
            return decode(DownloadState, json.loads(file.read(MAX_STATE_BYTES)))
    # RecursionError: of lists in lists in lists; ValueError: also of a number of 5,000 digits.
    except (OSError, ValueError, RecursionError):
        return None


def is_note(path: Path) -> bool:
    """Return whether a file is one that says what the bytes of a download beside it belong to."""
    if path.name.endswith(".part.json"):  # also a garbled one
        return True
    return path.name.endswith(".json") and read_state(path) is not None


class PartialDownload:
    """The bytes of one download so far."""

    # Use it in a `with` statement around one attempt: what is there is continued (`resume`) or
    # replaced (`begin`), then come `write` and `publish`; the end of the block closes the file.

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
        """Bytes so far."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    @property
    def state(self) -> DownloadState | None:
        """What the bytes so far belong to; None where nothing tells."""
        return read_state(self._state_path)

    def resume(self, digests: Digests) -> bool:
        """Open the bytes so far for appending and hash them; False if there are none."""
        # A file with another name, or behind a link, is somebody else's as well, such as a copy of
        # the whole cache by hard links: what follows goes into a file of its own.
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
        """Replace the bytes so far by an empty file."""
        self._close()
        self.discard()
        make_folder(self.path.parent)
        fresh = self._new_path()
        self._file = fresh.open("x+b")
        replace_file(fresh, self.path)
        _write_state(self._state_path, state)

    def write(self, data: bytes) -> None:
        """Add bytes at the end."""
        self._open_file().write(data)

    def flush(self) -> None:
        """Bring every byte to the disk."""
        file = self._open_file()
        file.flush()
        os.fsync(file.fileno())

    def publish(self, state: DownloadState) -> None:
        """Give the bytes that this object has read and written their name."""
        make_folder(self.target.parent)
        _write_state(Path(f"{self.target}.json"), state)
        with suppress(FileNotFoundError):
            replace_file(self.path, self.target)
        if not self._has_file_at(self.target):
            # Another process has started again, or is done: its file had the name of ours.
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
