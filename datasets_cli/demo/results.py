"""What the demo found with one of its datasets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class DemoResult:
    """One dataset of the demo: installed, verified, sampled.

    Args:
        id: the dataset.
        about: what its files are.
        published: whether they are a publisher's own, or whole episodes of them.
        path: its folder.
        num_transitions: rows.
        num_trajectories: trajectories.
        num_files_verified: files whose sha256 is as in the manifest.
        sampled: what the batch is, in words.
        resources: the files that were read, as the manifest has them.
        batch: ``{key joined by dots: (element type, shape)}`` of every leaf of the batch.
        mean_reward: of the batch.
        kept: whether it was installed under the user's cache root, where it stays; False where it
            was there before, None where it was not to stay.
    """

    id: str
    about: str
    published: bool
    path: Path
    num_transitions: int
    num_trajectories: int
    num_files_verified: int
    sampled: str
    resources: tuple[Mapping[str, Any], ...]
    batch: Mapping[str, tuple[str, tuple[int, ...]]]
    mean_reward: float
    kept: bool | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        document: dict[str, Any] = {
            "id": self.id,
            "about": self.about,
            "published": self.published,
            "path": str(self.path),
            "num_transitions": self.num_transitions,
            "num_trajectories": self.num_trajectories,
            "files_verified": self.num_files_verified,
            "sampled": self.sampled,
            "resources": [dict(resource) for resource in self.resources],
            "batch": {key: [dtype, list(shape)] for key, (dtype, shape) in self.batch.items()},
            "mean_reward": self.mean_reward,
        }
        return document if self.kept is None else document | {"kept": self.kept}
