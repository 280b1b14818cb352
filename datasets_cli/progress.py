"""How long work reports what it does; the command line draws it, and a Python user may too."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Progress(Protocol):
    """Receives what happens while a dataset is fetched and written."""

    def fetching(self, filename: str, done: int, total: int | None) -> None:
        """``done`` of ``total`` bytes of one file are on disk; total is None where unknown."""

    def writing(self, num_transitions: int) -> None:
        """``num_transitions`` rows are written, or read to be checked, so far."""

    def note(self, text: str) -> None:
        """One line that a person should see: a choice made, a field skipped, a known trap."""


@dataclass(frozen=True, kw_only=True)
class ProgressOptions:
    """Who is told of the work.

    Args:
        progress: told of what happens; None draws bars on a terminal, prints lines on any other
            stderr as files begin and end, and notes on both.
    """

    progress: Progress | None = None


class Silent:
    """A ``Progress`` that ignores everything."""

    def fetching(self, filename: str, done: int, total: int | None) -> None:
        """Ignore."""

    def writing(self, num_transitions: int) -> None:
        """Ignore."""

    def note(self, text: str) -> None:
        """Ignore."""


def reporting_to(progress: Progress | None) -> Progress:
    """Return where to report: ``progress``, or nowhere where it is None."""
    return Silent() if progress is None else progress


def expect_files(progress: Progress, sizes: Mapping[str, int | None]) -> None:
    """Tell which files will be fetched to a ``Progress`` that has ``expecting``."""
    expecting = getattr(progress, "expecting", None)
    if expecting is not None:
        expecting(sizes)


def expect_rows(progress: Progress, id: str, done: int, total: int) -> None:
    """Tell how many rows there are to write to a ``Progress`` that has ``expecting_rows``."""
    expecting = getattr(progress, "expecting_rows", None)
    if expecting is not None:
        expecting(id, done, total)


def of_dataset(progress: Progress, id: str) -> AbstractContextManager[Progress]:
    """Return what is told of one dataset, by a ``Progress`` that has ``of_dataset``."""
    part: Any = getattr(progress, "of_dataset", None)
    return nullcontext(progress) if part is None else part(id)
