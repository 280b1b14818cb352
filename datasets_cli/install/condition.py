"""The condition of an installed copy: its manifest and its state, without opening its data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from datasets_cli.damage import repair_advice
from datasets_cli.errors import DamagedDataset
from datasets_cli.store.check import check_sizes
from datasets_cli.store.manifest import Manifest, read_manifest
from datasets_cli.store.replaced import read_one_copy


@dataclass(frozen=True)
class Condition:
    """What can be told of an installed copy without opening its data."""

    manifest: Manifest | None
    problem: str = ""
    newer: bool = False

    @property
    def state(self) -> str:
        """``"installed"``, ``"unchecked"``, ``"unverified"``, ``"newer"`` or ``"damaged"``."""
        if self.newer:
            return "newer"
        return "damaged" if self.problem or self.manifest is None else self.manifest.state

    @property
    def sound_manifest(self) -> Manifest | None:
        """The manifest of a copy without damage."""
        return None if self.problem else self.manifest


def condition_of(folder: Path, id: str) -> Condition:
    """Return the condition of the dataset in a folder, whatever is there."""
    # Costs the manifest and one `lstat` a file.
    manifest = None

    def read() -> None:
        nonlocal manifest
        manifest = None
        manifest = read_manifest_of(folder, id)
        check_sizes(folder, manifest)

    try:
        read_one_copy(folder, read)
    except DamagedDataset as error:
        return Condition(manifest, str(error), error.newer)
    except OSError as error:  # such as a folder that only another user may enter
        return Condition(manifest, f"{folder} cannot be read: {error.strerror or error}")
    return Condition(manifest)


def read_sound_manifest_of(folder: Path, id: str) -> Manifest:
    """Read the manifest in the folder of an id, and check the sizes of the files there."""

    def read() -> Manifest:
        manifest = read_manifest_of(folder, id)
        check_sizes(folder, manifest)
        return manifest

    return read_one_copy(folder, read)


def read_manifest_of(folder: Path, id: str) -> Manifest:
    """Read the manifest in the folder of an id."""
    manifest = read_manifest(folder)
    check_owner(manifest, id)
    return manifest


def check_owner(manifest: Manifest, id: str) -> None:
    """Check that a manifest is that of the id in whose folder it is."""
    if manifest.id != id:
        raise DamagedDataset(f"{id}: its manifest is that of {manifest.id!r}. {repair_advice(id)}")
