"""What pipelines must make of D4RL's rows, worked out row by row from the published file alone."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

Leaves = dict[str, np.ndarray]
"""Columns by their names with dots."""


def read_rows(path: Path) -> Leaves:
    """Return the rows of a file that records successors and has no timeouts."""
    with h5py.File(path) as file:
        names = {
            "observation": "observations",
            "action": "actions",
            "next.observation": "next_observations",
            "info.qpos": "infos/qpos",
            "info.qvel": "infos/qvel",
            "info.action_log_probs": "infos/action_log_probs",
        }
        rows = {name: file[source][:] for name, source in names.items()}
        rows["next.reward"] = file["rewards"][:].reshape(-1, 1)
        ends = file["terminals"][:].astype(bool).reshape(-1, 1)
        assert not file["timeouts"][:].any()
    assert ends[-1, 0], "every row is of a trajectory that ends"
    never = np.zeros_like(ends)
    flags = {"done": never, "terminated": never, "truncated": never}
    after = {"next.done": ends, "next.terminated": ends, "next.truncated": never}
    episodes = np.zeros(len(ends), np.int64)
    for row in range(1, len(ends)):
        episodes[row] = episodes[row - 1] + ends[row - 1, 0]
    return rows | flags | after | {"episode": episodes}


def returns_to_go(rows: Leaves, gamma: float) -> np.ndarray:
    """Return the discounted rewards from each row to the end of its trajectory, float64."""
    found, later = np.zeros((len(rows["next.reward"]), 1)), 0.0
    for row in range(len(found) - 1, -1, -1):
        later = float(rows["next.reward"][row, 0]) + gamma * (
            0.0 if rows["next.done"][row, 0] else later
        )
        found[row] = later
    return found


def n_steps(rows: Leaves, size: int, gamma: float) -> Leaves:
    """Return the rows that span several steps, as a loop makes them."""
    count = len(rows["action"])
    found = {name: values.copy() for name, values in rows.items()}
    found["next.original_reward"] = rows["next.reward"].copy()
    found["steps_to_next_obs"] = np.zeros(count, np.int64)
    found["gamma"] = np.zeros(count, np.float32)
    found["nonterminal"] = np.zeros(count, bool)
    for row in range(count):
        last, total = row, 0.0
        while True:
            total += gamma ** (last - row) * float(rows["next.reward"][last, 0])
            if last == row + size - 1 or rows["next.done"][last, 0]:
                break
            last += 1
        found["next.reward"][row] = total
        for name in ("next.observation", "next.terminated"):
            found[name][row] = rows[name][last]
        found["steps_to_next_obs"][row] = last - row + 1
        found["gamma"][row] = gamma ** (last - row + 1)
        found["nonterminal"][row] = not rows["next.done"][row, 0]
    return found


def normalised(rows: Leaves, name: str, of: Leaves | None = None) -> Leaves:
    """Return rows whose column and its successor have the first one's mean 0 and deviation 1."""
    source = (of or rows)[name].astype(np.float64)
    mean = source.sum(0) / len(source)
    deviation = np.sqrt(((source - mean) ** 2).sum(0) / (len(source) - 1))
    found = dict(rows)
    for key in (name, f"next.{name}"):
        if key in rows:
            scaled = (rows[key].astype(np.float64) - mean) / deviation
            found[key] = scaled.astype(rows[key].dtype)
    return found
