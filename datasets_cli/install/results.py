"""What installing datasets comes to, as verbs return it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets_cli.errors import RldsError
from datasets_cli.store.manifest import Manifest


@dataclass(frozen=True)
class InstalledDataset:
    """A dataset that a download installed, or found installed.

    Args:
        id: the full id.
        path: its folder.
        num_transitions: rows.
        num_trajectories: trajectories.
        size_bytes: of all its files.
        layout: ``"ted"`` or ``"compact"``.
        unverified: why its raw files are not known to be the publisher's; empty where they are.
        state: ``"installed"``, ``"unchecked"`` or ``"unverified"``.
    """

    id: str
    path: Path
    num_transitions: int
    num_trajectories: int
    size_bytes: int
    layout: str
    unverified: tuple[str, ...] = ()
    state: str = "installed"

    @classmethod
    def of(cls, folder: Path, manifest: Manifest) -> InstalledDataset:
        """Return what the manifest in ``folder`` says."""
        return cls(
            manifest.id,
            folder,
            manifest.num_transitions,
            manifest.num_trajectories,
            manifest.size_bytes,
            manifest.layout,
            tuple(manifest.unverified),
            manifest.state,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the dataset as JSON values."""
        return {
            "id": self.id,
            "path": str(self.path),
            "num_transitions": self.num_transitions,
            "num_trajectories": self.num_trajectories,
            "bytes": self.size_bytes,
            "layout": self.layout,
            "state": self.state,
        }


@dataclass(frozen=True)
class FailedDataset:
    """A dataset that could not be downloaded, among others that could.

    Args:
        id: what was asked for.
        error: why.
    """

    id: str
    error: RldsError

    def to_json(self) -> dict[str, Any]:
        """Return the failure as JSON values."""
        return {"id": self.id, "error": self.error.to_json()}


@dataclass(frozen=True)
class Downloads:
    """What became of the datasets of one call.

    Args:
        datasets: those that are installed now, in the order they were asked for.
        failures: the others; empty in what ``download`` returns, and not in the ``results`` of the
            ``PartialFailure`` that it raises.
    """

    datasets: tuple[InstalledDataset, ...]
    failures: tuple[FailedDataset, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the results as JSON values."""
        return {
            "datasets": [dataset.to_json() for dataset in self.datasets],
            "failures": [failure.to_json() for failure in self.failures],
        }
