"""How long work reports what it is doing; the command line draws it, a library user may too."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives what happens while a dataset is fetched and converted."""

    def fetching(self, filename: str, done: int, total: int | None) -> None:
        """``done`` of ``total`` bytes of one file are on disk; total is None where unknown."""

    def converting(self, num_transitions: int) -> None:
        """So many transitions are written."""

    def note(self, text: str) -> None:
        """One line that a person should see: a choice made, a field skipped, a known trap."""


class Silent:
    """A ``Progress`` that ignores everything."""

    def fetching(self, filename: str, done: int, total: int | None) -> None:
        """Ignore."""

    def converting(self, num_transitions: int) -> None:
        """Ignore."""

    def note(self, text: str) -> None:
        """Ignore."""
