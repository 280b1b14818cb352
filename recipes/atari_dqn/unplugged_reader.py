"""RL Unplugged's copy of the DQN Replay runs: a TFRecord file a checkpoint, a record an episode.

All files are read three times: to check and count the records, for the steps, and for the frames.
Decoding the frames takes most of the time, and is done file by file, in any number of processes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from datasets_cli.formats.png import decode_pngs
from datasets_cli.recipe import Block, DeferredFrames, Description, Key, Source, rows_per_block

from .frames import OBSERVATION
from .segments import FRAME
from .unplugged_episode import Episode, read_episodes
from .unplugged_summary import summarize

ROW_BYTES = 24  # of a step without its frame

STEPS: dict[str, Key] = {"actions": ("action",), "clipped_rewards": ("next", "reward")}
EXTRA: dict[str, Key] = {
    "unclipped_rewards": ("info", "unclipped_reward"),
    "discounts": ("info", "discount"),
}
"""Columns that are kept only where they say something that reward and flags do not."""


class FrameFile(NamedTuple):
    """One file, whose frames are read."""

    path: Path
    first_step: int


def describe(source: Source) -> Description:
    """Return what the first reading finds, and a table of the episodes."""
    return summarize(_paths(source)).description()


def blocks(source: Source) -> Iterator[Block]:
    """Yield the steps of all episodes, as they are stored, without their frames."""
    paths = _paths(source)
    telling = summarize(paths).telling
    columns = STEPS | {name: key for name, key in EXTRA.items() if name in telling}
    ready: list[dict[Key, np.ndarray]] = []
    num_ready = 0
    for path in paths:
        for episode in read_episodes(path):
            ready.append(_steps(episode, columns))
            num_ready += episode.num_steps
            if num_ready >= rows_per_block(ROW_BYTES):
                yield _joined(ready)
                ready, num_ready = [], 0
    if ready:
        yield _joined(ready)


def _steps(episode: Episode, columns: Mapping[str, Key]) -> dict[Key, np.ndarray]:
    ends = np.arange(1, episode.num_steps + 1) == episode.num_steps
    return {key: episode.columns[name] for name, key in columns.items()} | {
        ("next", "terminated"): ends & episode.terminated,
        ("next", "truncated"): ends & (not episode.terminated),
    }


def _joined(parts: list[dict[Key, np.ndarray]]) -> Block:
    return Block({key: np.concatenate([part[key] for part in parts]) for key in parts[0]})


def deferred_frames(source: Source) -> DeferredFrames:
    """Return the frames before all steps, a part a file."""
    parts, num_steps = [], 0
    paths = _paths(source)
    for path, checkpoint in zip(paths, summarize(paths).checkpoints, strict=True):
        parts.append(FrameFile(path, num_steps))
        num_steps += checkpoint["steps"]
    return DeferredFrames(OBSERVATION, FRAME, parts, read_frames)


def read_frames(file: FrameFile) -> Generator[Block, None, None]:
    """Yield the frames of a file."""
    num_rows = rows_per_block(FRAME[0] * FRAME[1])
    first = file.first_step
    for episode in read_episodes(file.path):
        for start in range(0, episode.num_steps, num_rows):
            pngs = episode.frames[start : start + num_rows]
            frames = decode_pngs(pngs, FRAME, episode.where, start)
            # Steps are counted over the whole run, start within the episode.
            yield Block({OBSERVATION: frames}, first + start)
        first += episode.num_steps


def _paths(source: Source) -> tuple[Path, ...]:
    return tuple(path for _, path in sorted(source.files.items()))
