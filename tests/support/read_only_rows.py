"""Rows that are read and never written, in a storage that is made by the protocol alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.schema.columns import Key
from datasets_cli.schema.tree import Tree, entry
from tests.support.decision_transformer import Trajectory


class Columns(Storage):
    """Rows that are read, by the protocol alone: trajectories are told by their flags."""

    def __init__(self, columns: Tree) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns["next"]["done"])

    def has(self, key: Key) -> bool:
        return entry(self.columns, key) is not None

    def scalar_column(self, key: Key) -> torch.Tensor:
        found: torch.Tensor = entry(self.columns, key)
        return found.reshape(-1, 1)

    def gather(self, index: torch.Tensor) -> Tree:
        def take(tree: Tree) -> Tree:
            return {
                name: take(leaf) if isinstance(leaf, dict) else leaf[index]
                for name, leaf in tree.items()
            }

        return take(self.columns)


def columns_of(trajectories: Sequence[Trajectory]) -> Columns:
    joined = {
        name: torch.from_numpy(np.concatenate([part[name] for part in trajectories]))
        for name in ("states", "actions", "rewards")
    }
    lengths = [len(part["rewards"]) for part in trajectories]
    done = torch.zeros(sum(lengths), 1, dtype=torch.bool)
    done[np.cumsum(lengths) - 1] = True
    following = {"reward": joined["rewards"], "done": done}
    return Columns(
        {"observation": joined["states"], "action": joined["actions"], "next": following}
    )


def random_trajectories(lengths: Sequence[int], rewards: int = 1) -> list[Trajectory]:
    rng = np.random.default_rng(0)
    return [
        {
            "states": rng.normal(size=(length, 3)).astype(np.float32),
            "actions": rng.integers(1, 9, (length, 2)),
            "rewards": rng.normal(size=(length, rewards)),
        }
        for length in lengths
    ]
