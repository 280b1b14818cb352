"""The options of an installation, and its results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from datasets_cli.core.checked_json import JsonForm
from datasets_cli.errors import RldsError, public_url, wrong_value
from datasets_cli.parallel.engine import IN_THIS_PROCESS, Workers
from datasets_cli.sources.resource import Resource
from datasets_cli.store.manifest import LAYOUTS, Manifest

LAYOUT = {
    **{"metavar": "ted|compact", "complete": "layouts", "default": "compact for frames, else ted"},
    "help": "How transitions are stored on disk.",
}
"""The option of the command line for a layout."""


@dataclass(frozen=True)
class InstallOptions:
    """The options of an installation."""

    layout: str | None = None
    force: bool = False
    source: str | None = None
    accept_any: bool = False
    keep_raw: bool = False
    options: Mapping[str, str] = field(default_factory=dict)
    workers: Workers = IN_THIS_PROCESS

    def __post_init__(self) -> None:
        check_layout(self.layout)
        if self.source is not None and not _is_place(self.source):
            raise wrong_value(
                "source",
                "a folder, or a URL with http:// or https://, a host, and %20 for each space",
                public_url(self.source),
            )

    @property
    def source_folder(self) -> Path | None:
        """The folder of ``source``; None for a URL and without a source."""
        if self.source is None or "://" in self.source:
            return None
        return Path(self.source).expanduser()


def check_layout(layout: str | None) -> None:
    """Reject an unknown layout; None is the default."""
    if layout not in (None, *LAYOUTS):
        raise wrong_value("layout", [*LAYOUTS], layout)


def _is_place(source: str) -> bool:
    """Return whether a text can be a folder or an http(s) URL."""
    if "://" not in source:
        return bool(source.strip())
    try:
        parts = urlsplit(source)
    except ValueError:  # half an IPv6 address
        return False
    # In messages, a URL ends at its first space.
    has_space = source.split() != [source]
    return parts.scheme.lower() in ("http", "https") and bool(parts.netloc) and not has_space


@dataclass(frozen=True)
class Plan(JsonForm):
    """The plan of an installation.

    Args:
        id: the full id.
        installed: whether the dataset is installed already, so that nothing would be done.
        resources: its raw files.
        folder: its current or future folder.
        fallback_for: the requested id, if its publisher refuses it and this is its fallback.
        state: ``"installed"``, ``"unchecked"``, ``"unverified"`` or ``"damaged"``; or ``"not
            installed"``.
    """

    JSON = "id instead_of=fallback_for installed state folder bytes=size files=resources"

    id: str
    installed: bool
    resources: tuple[Resource, ...]
    folder: Path
    fallback_for: str | None = None
    state: str = "not installed"

    @property
    def size(self) -> int | None:
        """The bytes to download; None if the publisher does not state them."""
        sizes = [resource.size for resource in self.resources]
        return None if None in sizes else sum(size for size in sizes if size is not None)


@dataclass(frozen=True)
class InstalledDataset(JsonForm):
    """A dataset that a download installed, or found installed.

    Args:
        id: the full id.
        path: its folder.
        num_transitions: the number of transitions.
        num_trajectories: the number of trajectories.
        size_bytes: the size of all its files.
        layout: ``"ted"`` or ``"compact"``.
        unverified: why its raw files are not verified as the publisher's; empty if they are.
        state: ``"installed"``, ``"unchecked"`` or ``"unverified"``.
        final_steps: the number of recorded steps that are not transitions, because their next
            observation is unknown.
        final_steps_alone: the number of final steps that are a trajectory of their own.
    """

    JSON = (
        "id path num_transitions num_trajectories final_steps final_steps_alone bytes=size_bytes "
        "layout state"
    )

    id: str
    path: Path
    num_transitions: int
    num_trajectories: int
    size_bytes: int
    layout: str
    unverified: tuple[str, ...] = ()
    state: str = "installed"
    final_steps: int = 0
    final_steps_alone: int = 0

    @classmethod
    def of(cls, folder: Path, manifest: Manifest) -> InstalledDataset:
        """Return the result for the dataset of a manifest in ``folder``."""
        return cls(
            manifest.id,
            folder,
            manifest.num_transitions,
            manifest.num_trajectories,
            manifest.size_bytes,
            manifest.layout,
            tuple(manifest.unverified),
            manifest.state,
            manifest.final_steps,
            manifest.final_steps_alone,
        )


@dataclass(frozen=True)
class FailedDataset(JsonForm):
    """A dataset that could not be downloaded, among others that could.

    Args:
        id: the requested id.
        error: the error.
    """

    id: str
    error: RldsError


@dataclass(frozen=True)
class Downloads(JsonForm):
    """The results of one download of several datasets.

    Args:
        datasets: the installed datasets, in the requested order.
        failures: the failed datasets. Empty in the result of ``download``; it is only filled in the
            ``results`` of a ``PartialFailure``.
    """

    datasets: tuple[InstalledDataset, ...]
    failures: tuple[FailedDataset, ...] = ()
