"""What installing datasets comes to, as verbs return it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from datasets_cli.errors import RldsError
from datasets_cli.json_form import JsonForm
from datasets_cli.store.manifest import Manifest


@dataclass(frozen=True)
class InstalledDataset(JsonForm):
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

    JSON = "id path num_transitions num_trajectories bytes=size_bytes layout state"

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


@dataclass(frozen=True)
class FailedDataset(JsonForm):
    """A dataset that could not be downloaded, among others that could.

    Args:
        id: what was asked for.
        error: why.
    """

    id: str
    error: RldsError


@dataclass(frozen=True)
class Downloads(JsonForm):
    """What became of the datasets of one call.

    Args:
        datasets: those that are installed now, in the order they were asked for.
        failures: the others; empty in what ``download`` returns, and not in the ``results`` of the
            ``PartialFailure`` that it raises.
    """

    datasets: tuple[InstalledDataset, ...]
    failures: tuple[FailedDataset, ...] = ()
