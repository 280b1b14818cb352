"""Progress of long work: one function that receives three kinds of events."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class File:
    """The transfer of a raw file.

    Args:
        id: the dataset of the file.
        name: name of the file; empty for all files of the dataset whose transfer has not begun.
        done: bytes on the disk; None before the transfer begins.
        total: size in bytes; None if unknown.
    """

    id: str
    name: str
    done: int | None
    total: int | None


@dataclass(frozen=True)
class Rows:
    """The rows of a dataset that are written, or read to be checked.

    Args:
        id: the dataset.
        done: number of rows so far; equal to ``total`` in the last event of a piece of work.
        total: number of all rows; None while unknown.
    """

    id: str
    done: int
    total: int | None = None


@dataclass(frozen=True)
class Note:
    """A sentence for people: a choice, a skipped field, a known defect."""

    text: str


Progress = Callable[[File | Rows | Note], None]
"""Receives the events of a piece of work, one at a time."""


@dataclass(frozen=True, kw_only=True)
class ProgressOptions:
    """Who receives the events of long work.

    Args:
        progress: called with each event, a ``File``, ``Rows`` or ``Note`` of
            ``datasets_cli.results``; None draws bars on a terminal, prints lines on any
            other stderr when a file begins and ends, and prints notes on both.
    """

    progress: Progress | None = None


def silent(event: File | Rows | Note) -> None:
    """Ignore an event."""


def log_notes(event: File | Rows | Note) -> None:
    """Log a note as a warning, for work without a display."""
    if isinstance(event, Note):
        logger.warning("%s", event.text)
