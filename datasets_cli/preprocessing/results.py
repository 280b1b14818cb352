"""What mapping a function over a dataset gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from datasets_cli.json_form import JsonForm

if TYPE_CHECKING:
    from datasets_cli.store.manifest import Manifest


@dataclass(frozen=True)
class DerivedDataset(JsonForm):
    """A dataset that ``preprocess`` wrote.

    Args:
        id: ``derived/<name>``.
        path: its folder.
        num_transitions: rows.
        size_bytes: of all its files.
        state: ``"installed"``, ``"unchecked"`` or ``"unverified"``, as that of its parent.
        unchanged: it was there already, made of the same data by the same function and arguments.
    """

    JSON = "id path num_transitions bytes=size_bytes state unchanged"

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


@dataclass(frozen=True)
class DerivedColumns(JsonForm):
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
