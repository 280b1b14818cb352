"""What is known of one dataset: the record of a list, and all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from datasets_cli.recipe import Option
from datasets_cli.store.audit.report import DeepReport
from datasets_cli.store.manifest import Manifest


@dataclass(frozen=True)
class DatasetRecord:
    """What a list shows of a dataset.

    Args:
        id: the full id.
        state: ``"installed"``; ``"unchecked"``, where the publisher states no checksum for some
            file; ``"unverified"``, of files that are not known to be the publisher's;
            ``"newer"``, where a newer version of this program wrote it; ``"damaged"``, where the
            manifest is not valid or a file is not as it says; or ``"not installed"``.
        installed: whether there is a copy without damage.
        download_bytes: of the publisher's files; None where unknown.
        size_bytes: of the installed files; None without a copy.
        num_transitions: rows of the copy, or that the publisher states; None where unknown.
        num_trajectories: trajectories, likewise.
        problem: why the copy is damaged or cannot be read; empty where it is not.
    """

    id: str
    state: str
    installed: bool
    download_bytes: int | None
    size_bytes: int | None
    num_transitions: int | None
    num_trajectories: int | None
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON values; ``problem`` is there only where there is one."""
        found: dict[str, Any] = {
            "id": self.id,
            "state": self.state,
            "installed": self.installed,
            "download_bytes": self.download_bytes,
            "bytes": self.size_bytes,
            "num_transitions": self.num_transitions,
            "num_trajectories": self.num_trajectories,
        }
        return found | ({"problem": self.problem} if self.problem else {})


@dataclass(frozen=True)
class DatasetInfo(DatasetRecord):
    """Everything known about a dataset.

    Args:
        family: first part of the id; None, as all that follows up to ``options``, where no recipe
            knows the dataset.
        version: of the family's recipe.
        title: one line on the family.
        licence: of the data, as the publisher states it.
        citation: how to cite the data.
        homepage: where the publisher describes the family.
        details: what else the catalogue has on the dataset.
        options: of the family, which make variants of its datasets.
        path: the folder, where it is installed.
        manifest: everything known about the copy; None where the manifest itself is damaged.
        report: what the last deep check of this data found out; None where there was none.
    """

    family: str | None = None
    version: int | None = None
    title: str | None = None
    licence: str | None = None
    citation: str | None = None
    homepage: str | None = None
    details: Mapping[str, Any] | None = None
    options: tuple[Option, ...] = ()
    path: Path | None = None
    manifest: Manifest | None = None
    report: DeepReport | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON values; what is not known is left out."""
        found = {
            "family": self.family,
            "version": self.version,
            "licence": self.licence,
            "citation": self.citation,
            "homepage": self.homepage,
            "title": self.title,
            "details": None if self.details is None else dict(self.details),
            "options": [asdict(option) for option in self.options] or None,
            "path": None if self.path is None else str(self.path),
            "content": None if self.manifest is None else self.manifest.content,
            "layout": None if self.manifest is None else self.manifest.layout,
            "manifest": None if self.manifest is None else self.manifest.to_json(),
            "deep": None if self.report is None else self.report.to_json(),
        }
        return super().to_json() | {key: item for key, item in found.items() if item is not None}
