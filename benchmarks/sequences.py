"""How long a batch of sequences takes, beside a loader written by hand and slices of the same size.

    python benchmarks/sequences.py [--batch 64] [--length 20] [--repeat 300]

1,000,000 rows of 11 leaves in trajectories of 1,000 steps, in the page cache. The loader by hand is
what the paper's experiments do: it draws trajectories by their lengths, cuts and pads one sequence
after the other in numpy, sums the rewards of the rest of the trajectory for each, and stacks them;
its rows are in memory, and it gives six columns. Ours give these, and every other leaf. Prints
JSON: medians and means in microseconds, and how many times as long ours takes as the others.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tables import EPISODE_STEPS, Rows, install, mujoco_like
from timing import compare, shown

from datasets_cli import Sequences, SliceSampler, TensorDictReplayBuffer, open_storage
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.layouts.compact_writer import CompactWriter
from datasets_cli.store.layouts.ted_writer import TedWriter

WRITERS = {"compact": CompactWriter, "ted": TedWriter}
Trajectory = dict[str, np.ndarray]


def trajectories_of(rows: Rows) -> list[Trajectory]:
    """Return each trajectory's own columns."""
    keys = {"states": ("observation",), "actions": ("action",), "rewards": ("next", "reward")}
    columns = {
        name: rows[key].reshape(-1, EPISODE_STEPS, rows[key].shape[-1])
        for name, key in keys.items()
    }
    return [
        {name: column[number].copy() for name, column in columns.items()}
        for number in range(len(columns["rewards"]))
    ]


def to_go(rewards: np.ndarray) -> np.ndarray:
    """Return the returns to go of some rewards, step by step from the last one on."""
    found = np.zeros_like(rewards)
    found[-1] = rewards[-1]
    for step in reversed(range(len(rewards) - 1)):
        found[step] = rewards[step] + found[step + 1]
    return found


def cut(trajectory: Trajectory, first: int, length: int, sums: Any) -> Trajectory:
    """Return the sequence of a trajectory that begins at a step, padded on the left."""
    parts = {name: column[first : first + length] for name, column in trajectory.items()}
    steps = len(parts["rewards"])
    parts["returns_to_go"] = sums(trajectory["rewards"][first:])[:steps]
    parts["timesteps"] = np.arange(first, first + steps)
    parts["attention_mask"] = np.ones(steps)
    return {
        name: np.concatenate([np.zeros((length - steps, *part.shape[1:]), part.dtype), part])
        for name, part in parts.items()
    }


def by_hand(
    trajectories: list[Trajectory], batch: int, length: int, sums: Any
) -> Callable[[], dict[str, torch.Tensor]]:
    """Return what draws a batch by a loop.

    Args:
        trajectories: what to draw from.
        batch: sequences in a batch.
        length: steps in a sequence.
        sums: gives the returns to go of rewards; the paper's loop, or numpy's sum from the back.
    """
    rng = np.random.default_rng(0)
    lengths = np.array([len(each["rewards"]) for each in trajectories])
    chance = lengths / lengths.sum()

    def draw() -> dict[str, torch.Tensor]:
        drawn = rng.choice(len(trajectories), size=batch, p=chance)
        parts = [
            cut(trajectories[number], int(rng.integers(lengths[number])), length, sums)
            for number in drawn
        ]
        return {
            name: torch.from_numpy(np.stack([part[name] for part in parts])) for name in parts[0]
        }

    return draw


def check(buffer: Any, trajectories: list[Trajectory], length: int) -> None:
    """Check a batch of ours against sequences that are cut by hand."""
    batch = buffer.sample()
    names = {"states": "observation", "actions": "action", "rewards": ("next", "reward")}
    for place, row in enumerate(batch["index"][:, 0].tolist()):
        right = cut(trajectories[row // EPISODE_STEPS], row % EPISODE_STEPS, length, to_go)
        for name, values in right.items():
            found = batch[names.get(name, name)][place].numpy()
            np.testing.assert_allclose(found, values, rtol=0, atol=1e-3)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--length", type=int, default=20)
    parser.add_argument("--repeat", type=int, default=300)
    options = parser.parse_args()
    batch, length = options.batch, options.length
    torch.set_num_threads(
        1
    )  # beside other programs, waiting for a thread takes longer than a batch
    rows = mujoco_like(1_000_000)
    trajectories = trajectories_of(rows)
    from_the_back: Any = lambda rewards: rewards[::-1].cumsum(0)[::-1]  # noqa: E731
    calls: dict[str, Callable[[], Any]] = {
        "by hand": by_hand(trajectories, batch, length, to_go),
        "by hand, sums by numpy": by_hand(trajectories, batch, length, from_the_back),
    }
    with tempfile.TemporaryDirectory() as name:
        for layout, writer in WRITERS.items():
            storage = open_storage(install(writer, Path(name, layout), rows))
            sequences = Sequences(storage, length, root=CacheRoot(Path(name, "root")))
            ours = TensorDictReplayBuffer(storage=sequences, batch_size=batch)
            check(ours, trajectories, length)
            calls[f"{layout}: sequences"] = ours.sample
            calls[f"{layout}: sequences, numpy"] = ours.with_format("numpy").sample
            sampler: Any = SliceSampler(slice_len=length)
            slices = TensorDictReplayBuffer(
                storage=storage, sampler=sampler, batch_size=batch * length
            )
            calls[f"{layout}: slices"] = slices.sample
        times = compare(calls, options.repeat)
        kept = partial(Sequences, storage, length, root=CacheRoot(Path(name, "root")))
        opening = compare(
            {"worked out": partial(Sequences, storage, length), "opened as kept": kept}, 10
        )
    ratios = {
        f"{layout}: {case}": times[f"{layout}: sequences"].over(times[theirs])
        for layout in WRITERS
        for case, theirs in {
            "sequences over by hand": "by hand",
            "sequences over by hand, sums by numpy": "by hand, sums by numpy",
            "sequences over slices": f"{layout}: slices",
        }.items()
    }
    measured = {
        "cores": os.cpu_count(),
        "microseconds": shown(times),
        "ratios": ratios,
        "returns of 1,000,000 rows": shown(opening, 0),
    }
    print(json.dumps(measured, indent=1))


if __name__ == "__main__":
    main()
