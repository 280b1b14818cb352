"""What mapping a function over a dataset gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from datasets_cli.store.manifest import Manifest


@dataclass(frozen=True)
class DerivedDataset:
    """A dataset that ``preprocess`` wrote.

    Args:
        id: ``derived/<name>``.
        path: its folder.
        num_transitions: rows.
        size_bytes: of all its files.
        state: ``"installed"``, ``"unchecked"`` or ``"unverified"``, as that of its parent.
        unchanged: it was there already, made of the same data by the same function and arguments.
    """

    id: str
    path: Path
    num_transitions: int
    size_bytes: int
    state: str = "installed"
    unchanged: bool = False

    @classmethod
    def of(cls, id: str, folder: Path, manifest: Manifest, *, unchanged: bool) -> Self:
        """Return what a manifest describes."""
        size, state = manifest.size_bytes, manifest.state
        return cls(id, folder, manifest.num_transitions, size, state, unchanged)

    def to_json(self) -> dict[str, Any]:
        """Return the dataset as JSON values."""
        return {
            "id": self.id,
            "path": str(self.path),
            "num_transitions": self.num_transitions,
            "bytes": self.size_bytes,
            "state": self.state,
            "unchanged": self.unchanged,
        }


@dataclass(frozen=True)
class DerivedColumns:
    """The columns that ``preprocess`` would write.

    Args:
        id: ``derived/<name>``.
        columns: ``{key joined by dots: (element type, shape of a row)}``.
        num_transitions: rows that would be read.
        num_trajectories: of these rows.
    """

    id: str
    columns: Mapping[str, tuple[str, tuple[int, ...]]]
    num_transitions: int
    num_trajectories: int

    def to_json(self) -> dict[str, Any]:
        """Return the columns as JSON values."""
        columns = {key: [dtype, list(shape)] for key, (dtype, shape) in self.columns.items()}
        return {
            "id": self.id,
            "columns": columns,
            "num_transitions": self.num_transitions,
            "num_trajectories": self.num_trajectories,
        }
