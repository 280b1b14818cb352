"""What declared data are, as ``rlds data`` prints it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from datasets_cli.store.content import canonical_json


@dataclass(frozen=True)
class DeclaredDataset:
    """The data that a table ``[data.NAME]`` declares.

    Args:
        name: of the table.
        num_transitions: rows.
        num_trajectories: trajectories.
        identity: all that decides the batches, as JSON values: content of the datasets, digests of
            views and functions, weights, arguments of the draws.
    """

    name: str
    num_transitions: int
    num_trajectories: int
    identity: Mapping[str, Any]

    @property
    def digest(self) -> str:
        """The sha256 of the identity, as 64 hexadecimal digits: equal where the batches are."""
        return hashlib.sha256(canonical_json(self.identity)).hexdigest()

    def to_json(self) -> dict[str, Any]:
        """Return the data as JSON values."""
        return {
            "name": self.name,
            "digest": self.digest,
            "num_transitions": self.num_transitions,
            "num_trajectories": self.num_trajectories,
            "identity": dict(self.identity),
        }
