"""Changing the layout of an installed dataset; every value stays the same bit for bit."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from datasets_cli.catalogue.selection import InstalledId
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import takes_fields
from datasets_cli.core.progress import ProgressOptions, reporting_to
from datasets_cli.core.progress_bars import shown
from datasets_cli.install.find import installed_id
from datasets_cli.install.options import LAYOUT, check_layout
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.commit import restore
from datasets_cli.store.lock import locked


@dataclass(frozen=True)
class ConvertedDataset(JsonForm):
    """An installed dataset in the layout that was asked for.

    Args:
        id: the full id.
        path: its folder.
        layout: ``"ted"`` or ``"compact"``.
        size_bytes: of all its files.
        state: ``"installed"``, ``"unchecked"`` or ``"unverified"``.
        unverified: why its raw files are not known to be the publisher's; empty where they are.
    """

    JSON = "id path layout bytes=size_bytes state"

    id: str
    path: Path
    layout: str
    size_bytes: int
    state: str = "installed"
    unverified: tuple[str, ...] = ()


@dataclass(frozen=True)
class ConvertCall(ProgressOptions, InstalledId):
    """What ``convert`` takes.

    Args:
        layout: ``"ted"`` or ``"compact"``.
    """

    layout: str = field(metadata={**LAYOUT, "default": ""})


@takes_fields(ConvertCall)
def convert(call: ConvertCall) -> ConvertedDataset:
    """Change the layout of an installed dataset; every value stays the same bit for bit.

    Raises:
        UsageError: there is no such layout.
        SourceError: ``compact``, and a frame's successor is not the following row's frame.
        DiskFull: no room for a second copy; the old one stays until the new one is committed.
    """
    from datasets_cli.install.layout import change_layout  # with torch

    config = call.chosen_config()
    check_layout(call.layout)
    place = CacheRoot(config.root)
    id = installed_id(call.id, config)
    with (
        shown(call.progress) as told,
        locked(place.lock(id), id, config.lock_timeout, told),
    ):
        restore(place, id)
        manifest = change_layout(place, id, call.layout, reporting_to(told))
    return ConvertedDataset(
        manifest.id,
        place.dataset(id),
        manifest.layout,
        manifest.size_bytes,
        manifest.state,
        tuple(manifest.unverified),
    )
