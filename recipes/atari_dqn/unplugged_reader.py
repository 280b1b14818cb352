"""RL Unplugged's copy of the DQN Replay runs: a TFRecord file a checkpoint, a record an episode.

All files are read three times: to check and count the records, for the steps, and for the frames.
Decoding the frames takes most of the time, and is done file by file, in any number of processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from datasets_cli.formats.images import decode_pngs, other_modes
from datasets_cli.recipe import Block, DeferredFrames, Description, Key, Source, rows_per_block

from .frames import OBSERVATION
from .segments import FRAME
from .steps import MAX_EPISODE_STEPS
from .unplugged_episode import NUMBERS, UnpluggedEpisode, read_episodes

ROW_BYTES = 24  # of a step without its frame
TABLE = "episodes.tsv"

STEPS: dict[str, Key] = {"actions": ("action",), "clipped_rewards": ("next", "reward")}
EXTRA: dict[str, Key] = {
    "unclipped_rewards": ("info", "unclipped_reward"),
    "discounts": ("info", "discount"),
}
"""Columns that are stored only if they do not follow from reward and flags."""


class FrameFile(NamedTuple):
    """One file, whose frames are read."""

    path: Path
    first_step: int


def describe(source: Source) -> Description:
    """Return the metadata and notes of the first reading, and a table of the episodes."""
    return _summarize(_paths(source)).description()


def blocks(source: Source) -> Iterator[Block]:
    """Yield the steps of all episodes in the order of the files, without their frames."""
    paths = _paths(source)
    informative = _summarize(paths).informative
    columns = STEPS | {name: key for name, key in EXTRA.items() if name in informative}
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


def _steps(episode: UnpluggedEpisode, columns: Mapping[str, Key]) -> dict[Key, np.ndarray]:
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
    for path, checkpoint in zip(paths, _summarize(paths).checkpoints, strict=True):
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


@dataclass
class UnpluggedSummary:
    """The counts and the table of the episodes so far."""

    checkpoints: list[dict[str, Any]] = field(default_factory=list)
    informative: set[str] = field(default_factory=set)
    num_limited: int = 0
    disorder: str = ""
    last: tuple[float, float] = (-1, -1)
    lines: list[str] = field(default_factory=list)
    modes: Counter[str] = field(default_factory=Counter)

    def add(self, episode: UnpluggedEpisode) -> None:
        """Add an episode of the last file."""
        self.checkpoints[-1]["episodes"] += 1
        self.checkpoints[-1]["steps"] += episode.num_steps
        self.informative |= _informative(episode)
        self.num_limited += episode.ends_in_zero and not episode.terminated
        numbers = (episode.numbers["checkpoint_idx"], episode.numbers["episode_idx"])
        if numbers <= self.last and not self.disorder:
            self.disorder = episode.where
        self.last = numbers
        self.modes += other_modes(episode.frames)
        cells = (*episode.numbers.values(), episode.num_steps, int(episode.terminated))
        self.lines.append("\t".join(map(str, cells)))

    def description(self) -> Description:
        """Return the metadata, the notes and the table of episodes."""
        notes = []
        if self.num_limited:
            notes.append(
                f"{self.num_limited} episodes of {MAX_EPISODE_STEPS:,} steps are truncated, "
                "although their last discount is 0, as at the end of a game"
            )
        if self.disorder:
            notes.append(
                "the episodes stay in their stored order, which differs from their numbers: see "
                f"{self.disorder}"
            )
        if self.modes:
            # A frame with other colours is rejected when it is decoded.
            modes = "; ".join(f"{mode}: {count}" for mode, count in sorted(self.modes.items()))
            notes.append(
                f"{self.modes.total()} frames are not 8-bit grey PNG files, and are converted to "
                f"the greys they show ({modes})"
            )
        table = "\n".join(("\t".join((*NUMBERS, "num_steps", "terminated")), *self.lines, ""))
        metadata = {
            "upstream": "rl_unplugged",
            "checkpoints": self.checkpoints,
            "episodes_at_step_limit": self.num_limited,
            "max_episode_steps": MAX_EPISODE_STEPS,
            "episode_table": TABLE,
        }
        return Description(metadata, tuple(notes), {TABLE: table.encode()})


def _summarize(paths: tuple[Path, ...]) -> UnpluggedSummary:
    """Read all records of a run's files, given in their order."""
    stamps = [(path, path.stat()) for path in paths]
    return _summary_of(tuple((path, stat.st_size, stat.st_mtime_ns) for path, stat in stamps))


@lru_cache(maxsize=4)  # three functions of a recipe need it, of datasets side by side
def _summary_of(stamped: tuple[tuple[Path, int, int], ...]) -> UnpluggedSummary:
    found = UnpluggedSummary()
    for path, *_ in stamped:
        number = len(found.checkpoints)
        found.checkpoints.append({"number": number, "episodes": 0, "steps": 0})
        for episode in read_episodes(path):
            found.add(episode)
    return found


def _informative(episode: UnpluggedEpisode) -> set[str]:
    """Return the columns of ``EXTRA`` that do not follow from the other columns."""
    implied = np.ones(episode.num_steps, np.float32)
    implied[-1:] = not episode.ends_in_zero
    known = {"unclipped_rewards": episode.columns["clipped_rewards"], "discounts": implied}
    return {
        name
        for name, values in known.items()
        if episode.columns[name].tobytes() != values.tobytes()
    }
