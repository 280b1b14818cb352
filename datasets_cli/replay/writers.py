"""Writers: they place rows."""

from __future__ import annotations

from typing import Any, NoReturn

from datasets_cli.errors import ImmutableError


class ImmutableDatasetWriter:
    """The writer of a dataset: it refuses."""

    def add(self, data: Any) -> NoReturn:
        """Refuse one row."""
        raise ImmutableError(
            "A dataset cannot be written to. Copy rows into a buffer of your own, or make a new "
            "dataset with preprocess()."
        )

    def extend(self, data: Any) -> NoReturn:
        """Refuse several rows."""
        self.add(data)

    def __repr__(self) -> str:
        return "ImmutableDatasetWriter()"
