"""What the system refuses, as errors of this program."""

from __future__ import annotations

import errno

from datasets_cli.errors import ROOT, DiskFull, RldsError

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
