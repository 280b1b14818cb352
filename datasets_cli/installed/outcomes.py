"""What the verbs return: plain data, and its JSON form, which ``--json`` prints."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets_cli.errors import DamagedDataset, RldsError
from datasets_cli.store.audit.report import DeepReport
from datasets_cli.store.manifest import Manifest


@dataclass(frozen=True)
class DatasetFolder:
    """Where an installed dataset is; ``open``, ``Path`` and ``str`` take it for its folder.

    Args:
        id: the full id.
        path: the folder.
        state: ``"installed"``, ``"unchecked"``, ``"unverified"`` or ``"damaged"``.
        problem: why it is damaged; empty where it is not.
    """

    id: str
    path: Path
    state: str = "installed"
    problem: str = ""

    @property
    def sound_path(self) -> Path:
        """The folder of a dataset without damage.

        Raises:
            DamagedDataset: it has some.
        """
        if self.problem:
            raise DamagedDataset(self.problem)
        return self.path

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)

    def to_json(self) -> dict[str, Any]:
        """Return the folder as JSON values."""
        return {"id": self.id, "path": str(self.path), "state": self.state}


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


@dataclass(frozen=True)
class VerifiedDataset:
    """What came of comparing an installed dataset with its manifest.

    Args:
        id: the full id.
        num_files: files that were compared; None where one differs.
        unverified: why its raw files are not known to be the publisher's; empty where they are.
        error: names every file that differs, or says that the dataset is not there; None where
            all is well.
        state: ``"installed"``, ``"unchecked"``, ``"unverified"``, ``"newer"``, ``"damaged"`` or
            ``"not installed"``.
        opened: whether it was also opened, and rows of it read.
        report: what reading every value found out; None where that was not asked for.
    """

    id: str
    num_files: int | None = None
    unverified: tuple[str, ...] = ()
    error: RldsError | None = None
    state: str = "installed"
    opened: bool = False
    report: DeepReport | None = None

    @property
    def ok(self) -> bool:
        """Whether every file is as the manifest says."""
        return self.error is None

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        if self.error is not None:
            error = self.error.to_json()
            return {"id": self.id, "ok": False, "state": self.state, "error": error}
        found = {
            "id": self.id,
            "ok": True,
            "state": self.state,
            "files": self.num_files,
            "opened": self.opened,
        }
        return found | ({} if self.report is None else {"deep": self.report.to_json()})


@dataclass(frozen=True)
class DeletedDataset:
    """A dataset that was deleted, or would be.

    Args:
        id: the full id.
        size_bytes: of its files and of what is left of its downloads.
        deleted: False where nothing was done.
        state: that it had: ``"installed"``, ``"unchecked"``, ``"unverified"`` or ``"damaged"``.
    """

    id: str
    size_bytes: int
    deleted: bool
    state: str = "installed"

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "id": self.id,
            "bytes": self.size_bytes,
            "deleted": self.deleted,
            "state": self.state,
        }


@dataclass(frozen=True)
class ConvertedDataset:
    """An installed dataset in the layout that was asked for.

    Args:
        id: the full id.
        path: its folder.
        layout: ``"ted"`` or ``"compact"``.
        size_bytes: of all its files.
        state: ``"installed"``, ``"unchecked"`` or ``"unverified"``.
        unverified: why its raw files are not known to be the publisher's; empty where they are.
    """

    id: str
    path: Path
    layout: str
    size_bytes: int
    state: str = "installed"
    unverified: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the dataset as JSON values."""
        return {
            "id": self.id,
            "path": str(self.path),
            "layout": self.layout,
            "bytes": self.size_bytes,
            "state": self.state,
        }
