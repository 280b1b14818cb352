"""An episode of RL Unplugged's Atari datasets, which is one record of a TFRecord file.

    observations       T PNG files, grey, 84 x 84: the frame before each action
    actions            T int64
    clipped_rewards    T float32, the reward of each action
    unclipped_rewards  T float32; clipped as well, as TFDS found
    discounts          T float32: 1, and 0 at the last step of a game that was over

    and one number each: checkpoint_idx, episode_idx, episode_return, clipped_episode_return

Facts: the reader of tensorflow/datasets 4.9.10, ``rl_unplugged/atari_utils.py``, which requires as
many observations as actions. It ignores the action and reward of the last step of a game. Here that
is a step like any other: in the DQN Replay, the source of these runs, the last row of an episode
has an action and its reward, and the frame after it was never stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from datasets_cli.formats.tfrecord import TFRecord, parse_example, read_gzip_records
from datasets_cli.recipe import SourceError

from .steps import MAX_EPISODE_STEPS

STEPS = {
    "actions": "int64",
    "clipped_rewards": "float32",
    "unclipped_rewards": "float32",
    "discounts": "float32",
}
NUMBERS = {
    "checkpoint_idx": "int64",
    "episode_idx": "int64",
    "episode_return": "float32",
    "clipped_episode_return": "float32",
}


@dataclass(frozen=True)
class UnpluggedEpisode:
    """One record."""

    # columns: arrays `[T]` by the names of `STEPS`.

    where: str
    numbers: dict[str, int | float]
    frames: list[memoryview]
    columns: dict[str, np.ndarray]

    @property
    def num_steps(self) -> int:
        """The number of steps T."""
        return len(self.columns["actions"])

    @property
    def ends_in_zero(self) -> bool:
        """Whether the last discount is 0."""
        return bool((self.columns["discounts"][-1:] == 0).any())

    @property
    def terminated(self) -> bool:
        """Whether the game was over, and not at its limit of steps."""
        return self.ends_in_zero and self.num_steps != MAX_EPISODE_STEPS


def read_episodes(path: Path) -> Iterator[UnpluggedEpisode]:
    """Yield the episodes of a file in its order, one in memory at a time."""
    return map(_episode, read_gzip_records(path))


def _episode(record: TFRecord) -> UnpluggedEpisode:
    features = parse_example(record.data, record.where)
    missing = {"observations", *STEPS, *NUMBERS} - features.keys()
    if missing:
        raise _unexpected(record, f"it lacks {', '.join(sorted(missing))}", ", ".join(features))
    frames = features.pop("observations")
    found = {name: str(getattr(value, "dtype", "bytes")) for name, value in features.items()}
    columns = {name: value for name, value in features.items() if not isinstance(value, list)}
    for name, dtype in (STEPS | NUMBERS).items():
        if found[name] != dtype:
            raise _unexpected(record, f"{name} must be {dtype}", found[name])
    if not isinstance(frames, list):
        raise _unexpected(record, "observations must be PNG files", str(frames.dtype))
    lengths = {"observations": len(frames)} | {name: len(columns[name]) for name in STEPS}
    if len(set(lengths.values())) != 1:
        shown = ", ".join(f"{length} {name}" for name, length in lengths.items())
        raise _unexpected(record, "its lists must be equally long", shown)
    if wrong := [name for name in NUMBERS if len(columns[name]) != 1]:
        raise _unexpected(record, f"{wrong[0]} must be one number", str(len(columns[wrong[0]])))
    numbers = {name: columns[name][0].item() for name in NUMBERS}
    return UnpluggedEpisode(record.where, numbers, frames, {name: columns[name] for name in STEPS})


def _unexpected(record: TFRecord, expected: str, found: str) -> SourceError:
    return SourceError(
        f"{record.where} is not an episode of RL Unplugged: {expected}. "
        f"Found: {found or 'nothing'}.",
        expected=expected,
        found=found,
    )
