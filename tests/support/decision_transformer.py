"""A loader of sequences written by hand in numpy: one sequence after the other, one sum at a time.

Its conventions are those of the paper's experiments (Chen et al. 2021, gym/experiment.py), from
which it takes the meaning and no line: a sequence begins at a step of a trajectory and ends with
it, what is missing is padded, and the return to go counts the rest of the whole trajectory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from tests.support import conformance
from tests.support.values import Expected, expect, read_source

Trajectory = Mapping[str, np.ndarray]
"""``states``, ``actions`` and ``rewards`` of one trajectory, each ``[steps, ...]``.

``recorded`` are the rewards with that of a final step, which is no transition.
"""


def read_minari(path: Path) -> list[Trajectory]:
    return trajectories_of(conformance.read_minari(path.parent))


def read_d4rl(path: Path) -> list[Trajectory]:
    return trajectories_of(expect(read_source(path)))


def trajectories_of(rows: Expected) -> list[Trajectory]:
    """Return the trajectories of rows that an independent reader finds, in their order."""
    columns = {
        "states": rows.leaves["observation",],
        "actions": rows.leaves["action",],
        "rewards": rows.leaves["next", "reward"][:, 0],
    }
    return [
        {name: column[start:stop] for name, column in columns.items()} | {"recorded": recorded}
        for (start, stop), recorded in zip(pairwise(rows.offsets), rows.rewards(), strict=True)
    ]


def returns_to_go(rewards: np.ndarray, gamma: float) -> np.ndarray:
    found = rewards.astype(np.float64)
    for step in reversed(range(len(rewards) - 1)):
        found[step] += gamma * found[step + 1]
    return found


def make_batch(
    trajectories: Sequence[Trajectory],
    begins: Sequence[tuple[int, int]],
    length: int,
    *,
    gamma: float = 1.0,
    pad_left: bool = True,
    action_padding: float = 0.0,
) -> dict[str, np.ndarray]:
    """Return the sequences that begin at some steps, each ``(trajectory, step)``, ``[B, T, ...]``.

    A state of zeros, a reward of zero and so on are padding; actions are ``action_padding`` there.
    """
    batch: dict[str, list[np.ndarray]] = {}
    for number, first in begins:
        whole = trajectories[number]
        parts = {name: column[first : first + length] for name, column in whole.items()}
        recorded = whole.get("recorded", whole["rewards"])
        parts.pop("recorded", None)
        steps = len(parts["rewards"])
        parts["returns_to_go"] = returns_to_go(recorded, gamma)[first : first + steps]
        parts["timesteps"] = np.arange(first, first + steps)
        parts["attention_mask"] = np.ones(steps, bool)
        for name, part in parts.items():
            fill = action_padding if name == "actions" else 0
            padding = np.full((length - steps, *part.shape[1:]), fill, part.dtype)
            both = (padding, part) if pad_left else (part, padding)
            batch.setdefault(name, []).append(np.concatenate(both))
    return {name: np.stack(parts) for name, parts in batch.items()}


def begins_of(trajectories: Sequence[Trajectory], rows: Sequence[int]) -> list[tuple[int, int]]:
    """Return trajectory and step of rows that are counted over all trajectories."""
    every = [
        (number, step)
        for number, trajectory in enumerate(trajectories)
        for step in range(len(trajectory["rewards"]))
    ]
    return [every[row] for row in rows]
