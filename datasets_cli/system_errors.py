"""What the system refuses, as errors of this program."""

from __future__ import annotations

import errno
import stat
from pathlib import Path

from datasets_cli.errors import ROOT, DiskFull, RldsError, UsageError

MAX_TEXT_BYTES = 1 << 20
"""Of a file that users write by hand: ``rlds.toml`` and the configuration."""

# EFBIG: a file size limit; EDQUOT: a quota. To a user each is a full disk.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NOT_ALLOWED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})


def is_full(error: OSError) -> bool:
    """Return whether an error means that a disk, or what a user may have of it, is full."""
    return error.errno in _FULL


def system_error(error: OSError) -> RldsError:
    """Return what the system refuses, as an error of ours that names the path."""
    what = f"{error.strerror or error}: {error.filename or ''}".rstrip(": ")
    if is_full(error):
        return DiskFull(f"{what}. Make room and run again.")
    if error.errno not in _NOT_ALLOWED:
        return RldsError(what)
    return RldsError(
        f"{what}. See the permissions of it and of its folder, or choose another cache root with "
        f"{ROOT}."
    )


def read_user_text(path: Path) -> str | None:
    """Return the text of a file that may be anything; None where there is none."""
    # A link is followed, since users lay them. A pipe would be waited for, a device has no end.
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise ValueError("it is not a regular file, and was not opened")
        with path.open("rb") as file:
            data = file.read(MAX_TEXT_BYTES + 1)
        if len(data) > MAX_TEXT_BYTES:
            raise ValueError(f"it has more than {MAX_TEXT_BYTES:,} bytes")
        return data.decode()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{path} cannot be read ({error}). Expected a text in UTF-8 of at most "
            f"{MAX_TEXT_BYTES:,} bytes. Correct it or move it away."
        ) from error
