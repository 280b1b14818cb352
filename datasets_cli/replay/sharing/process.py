"""Processes: which one this is, and what learns that it was forked."""

from __future__ import annotations

import os
import secrets
import weakref
from typing import Protocol

_names: dict[int, str] = {}  # by the number of the process; a forked one has its parent's too


class Forked(Protocol):
    """What keeps something that a forked process must not take over, such as a lock."""

    def after_fork(self) -> None:
        """Begin as the part of a new process."""


_parts: weakref.WeakSet[Forked] = weakref.WeakSet()


def this_process() -> str:
    """Return a name of this process that no other one has, whatever starts it."""
    number = os.getpid()
    if number not in _names:
        _names[number] = f"{number}-{secrets.token_hex(8)}"
    return _names[number]


def tell_after_fork(part: Forked) -> None:
    """Call ``after_fork`` of a part in every process that is forked from this one."""
    _parts.add(part)


def _tell_parts() -> None:
    for part in list(_parts):
        part.after_fork()


os.register_at_fork(after_in_child=_tell_parts)
