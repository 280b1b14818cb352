"""Changes the layout of an installed dataset; every value stays the same, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from datasets_cli.catalogue.names import InstalledId
from datasets_cli.core.checked_json import JsonForm
from datasets_cli.core.options import takes_fields
from datasets_cli.core.progress import ProgressOptions
from datasets_cli.core.progress_display import displayed
from datasets_cli.install.find import installed_id
from datasets_cli.install.options import LAYOUT, check_layout
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.commit import restore
from datasets_cli.store.lock import locked


@dataclass(frozen=True)
class ConvertedDataset(JsonForm):
    """An installed dataset after its conversion.

    Args:
        id: the full id.
        path: its folder.
        layout: ``"ted"`` or ``"compact"``.
        size_bytes: the size of all its files.
        state: ``"installed"``, ``"unchecked"`` or ``"unverified"``.
        unverified: reasons why its raw files may differ from the publisher's.
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
    """The arguments of ``convert``.

    Args:
        layout: ``"ted"`` or ``"compact"``.
    """

    layout: str = field(metadata={**LAYOUT, "default": ""})


@takes_fields(ConvertCall)
def convert(call: ConvertCall) -> ConvertedDataset:
    """Change the layout of an installed dataset; every value stays the same bit for bit.

    Raises:
        UsageError: the layout is unknown.
        SourceError: a frame below ``next`` differs from the next row, which ``compact`` forbids.
        DiskFull: the disk has too little space for the second copy.
    """
    from datasets_cli.install.layout import change_layout  # with torch

    config = call.chosen_config()
    check_layout(call.layout)
    place = CacheRoot(config.root)
    id = installed_id(call.id, config)
    with (
        displayed(call.progress) as progress,
        locked(place.lock(id), id, config.lock_timeout, progress),
    ):
        restore(place, id)
        manifest = change_layout(place, id, call.layout, progress)
    return ConvertedDataset(
        manifest.id,
        place.dataset(id),
        manifest.layout,
        manifest.size_bytes,
        manifest.state,
        tuple(manifest.unverified),
    )
