"""What a user asks for when datasets are installed, and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from datasets_cli.core.checked_json import JsonForm
from datasets_cli.errors import RldsError, UsageError, argument, public_url
from datasets_cli.parallel.engine import IN_THIS_PROCESS, Workers
from datasets_cli.sources.resource import Resource
from datasets_cli.store.manifest import LAYOUTS, Manifest

LAYOUT = {
    **{"metavar": "ted|compact", "complete": "layouts", "default": "compact for frames, else ted"},
    "help": "How rows are stored on disk.",
}
"""How the command line takes a layout."""


@dataclass(frozen=True)
class InstallOptions:
    """How a dataset is to be installed."""

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
            raise UsageError(
                f"{argument('source')} {public_url(self.source)!r} is neither a folder nor an "
                "address that begins with http:// or https:// and a host, and has %20 for a space. "
                "Give one of these, or leave it out."
            )

    @property
    def source_folder(self) -> Path | None:
        """The folder that ``source`` names, or None when it is a URL or absent."""
        if self.source is None or "://" in self.source:
            return None
        return Path(self.source).expanduser()


def check_layout(layout: str | None) -> None:
    """Refuse a layout that does not exist; None leaves the choice."""
    if layout not in (None, *LAYOUTS):
        known = ", ".join(LAYOUTS)
        raise UsageError(f"The layout {layout!r} does not exist. Expected one of: {known}.")


def _is_place(source: str) -> bool:
    """Return whether a text can be a folder, or is a URL of a kind that is fetched."""
    if "://" not in source:
        return bool(source.strip())
    try:
        parts = urlsplit(source)
    except ValueError:  # half an IPv6 address
        return False
    # What follows a space in an address would not be taken for a part of it in messages.
    has_space = source.split() != [source]
    return parts.scheme.lower() in ("http", "https") and bool(parts.netloc) and not has_space


@dataclass(frozen=True)
class Plan(JsonForm):
    """What installing a dataset would do.

    Args:
        id: the full id.
        installed: whether it is there already, so that nothing would be done.
        resources: the files it is made of.
        folder: where it is, or will be.
        fallback_for: the id that was asked for, where its publisher refuses it and this dataset is
            its fallback.
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
        """Bytes to download; None where a publisher does not say."""
        sizes = [resource.size for resource in self.resources]
        return None if None in sizes else sum(size for size in sizes if size is not None)


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
        dropped_steps: steps of its files that are no rows, because nothing follows them there.
    """

    JSON = "id path num_transitions num_trajectories dropped_steps bytes=size_bytes layout state"

    id: str
    path: Path
    num_transitions: int
    num_trajectories: int
    size_bytes: int
    layout: str
    unverified: tuple[str, ...] = ()
    state: str = "installed"
    dropped_steps: int = 0

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
            manifest.dropped_steps,
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
