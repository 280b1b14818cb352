"""The manifest: the one file whose presence makes a folder a dataset."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from datasets_cli.errors import DamagedDataset
from datasets_cli.sources.disk import open_regular
from datasets_cli.store.cache_root import MANIFEST_FILENAME
from datasets_cli.store.content import content_of
from datasets_cli.store.schema.columns import Column
from datasets_cli.store.schema.texts import TextColumn

FORMAT_VERSION = 1
LAYOUTS = ("ted", "compact")
UNVERIFIED = "not verified"


@dataclass(frozen=True)
class Manifest:
    """Everything known about one dataset, as written in ``manifest.json``.

    Args:
        id: ``family/name``.
        layout: ``"ted"`` or ``"compact"``.
        num_transitions: rows N.
        num_trajectories: trajectories K.
        columns: every leaf.
        files: ``{relative path: {"bytes": size, "sha256": digest}}`` of every file but this one.
        resources: what was read: name, URL, size, sha256 and validator actually seen, and whether
            each was checked against the catalogue.
        recipe: family, version, licence, citation and homepage of the recipe.
        successors: which rule of the format gave ``next.observation`` and how many rows it dropped.
        metadata: what the publisher says: spaces, reference scores, known traps, and so on.
        statistics: return, length and reward statistics over all trajectories.
        record: how the columns are laid out in records, in the ``compact`` layout.
        texts: every column of text.
        parent: id and manifest digest of the dataset this one was derived from.
        tool: name and version of the program that wrote it.
        format_version: version of this file's layout.
    """

    id: str
    layout: str
    num_transitions: int
    num_trajectories: int
    columns: tuple[Column, ...]
    files: Mapping[str, Mapping[str, Any]]
    resources: tuple[Mapping[str, Any], ...] = ()
    recipe: Mapping[str, Any] = field(default_factory=dict)
    successors: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    statistics: Mapping[str, Any] = field(default_factory=dict)
    record: Mapping[str, Any] = field(default_factory=dict)
    texts: tuple[TextColumn, ...] = ()
    parent: Mapping[str, Any] | None = None
    tool: str = ""
    format_version: int = FORMAT_VERSION

    @property
    def size_bytes(self) -> int:
        """Total size of the dataset's files in bytes."""
        return sum(int(entry["bytes"]) for entry in self.files.values())

    @cached_property
    def content(self) -> str:
        """The dataset's identity, 64 hexadecimal digits: equal for every layout of the same data.

        See ``store.content``.
        """
        return content_of(self)

    @property
    def unverified(self) -> list[str]:
        """Why files are not known to be the publisher's, each reason once."""
        found = (str(resource.get("checked", "")) for resource in self.resources)
        return list(dict.fromkeys(text for text in found if text.startswith(UNVERIFIED)))

    def to_json(self) -> dict[str, Any]:
        """Return the manifest as JSON values."""
        entry = asdict(self)
        entry["columns"] = [column.to_json(self.num_transitions) for column in self.columns]
        entry["texts"] = [text.to_json() for text in self.texts]
        if not self.texts:
            del entry["texts"]
        return entry


def write_manifest(folder: Path, manifest: Manifest) -> Path:
    """Write ``manifest.json`` into ``folder`` and return its path."""
    path = folder / MANIFEST_FILENAME
    text = json.dumps(manifest.to_json(), indent=1, sort_keys=True, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a dataset folder.

    Raises:
        FileNotFoundError: the folder has no manifest, so there is no dataset.
        DamagedDataset: it is not valid, or a newer version of this program wrote it.
    """
    path = folder / MANIFEST_FILENAME
    try:
        with open_regular(path) as file:
            entry = json.loads(file.read())
        version = int(entry["format_version"])
        if version > FORMAT_VERSION:
            raise DamagedDataset(
                f"{path} has format version {version}; this program reads up to {FORMAT_VERSION}. "
                "Upgrade it: pip install --upgrade rlds-cli"
            )
        entry["columns"] = tuple(Column.from_json(column) for column in entry["columns"])
        entry["texts"] = tuple(TextColumn.from_json(text) for text in entry.get("texts", ()))
        entry["resources"] = tuple(entry["resources"])
        known = {field.name for field in fields(Manifest)}
        return Manifest(**{name: value for name, value in entry.items() if name in known})
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        if isinstance(error, DamagedDataset):
            raise
        raise DamagedDataset(
            f"{path} is not a valid manifest ({type(error).__name__}: {error}). "
            "Delete the dataset and download it again."
        ) from error
