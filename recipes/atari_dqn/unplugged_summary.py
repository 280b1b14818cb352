"""What all records of a run say together, found before any frame is decoded."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from datasets_cli.formats.png_modes import other_modes
from datasets_cli.recipe import Description

from .steps import MAX_EPISODE_STEPS
from .unplugged_episode import NUMBERS, Episode, read_episodes

TABLE = "episodes.tsv"


@dataclass
class UnpluggedSummary:
    """What is known of the episodes so far."""

    checkpoints: list[dict[str, Any]] = field(default_factory=list)
    telling: set[str] = field(default_factory=set)
    num_limited: int = 0
    disorder: str = ""
    last: tuple[float, float] = (-1, -1)
    lines: list[str] = field(default_factory=list)
    modes: Counter[str] = field(default_factory=Counter)

    def add(self, episode: Episode) -> None:
        """Count one more episode of the last file."""
        self.checkpoints[-1]["episodes"] += 1
        self.checkpoints[-1]["steps"] += episode.num_steps
        self.telling |= _telling(episode)
        self.num_limited += episode.ends_in_zero and not episode.terminated
        numbers = (episode.numbers["checkpoint_idx"], episode.numbers["episode_idx"])
        if numbers <= self.last and not self.disorder:
            self.disorder = episode.where
        self.last = numbers
        self.modes += other_modes(episode.frames)
        cells = (*episode.numbers.values(), episode.num_steps, int(episode.terminated))
        self.lines.append("\t".join(map(str, cells)))

    def description(self) -> Description:
        """Return what the manifest and a person should know, and the table of episodes."""
        notes = []
        if self.num_limited:
            notes.append(
                f"{self.num_limited} episodes of {MAX_EPISODE_STEPS:,} steps are truncated, "
                "although their last discount is 0, as that of a game that is over"
            )
        if self.disorder:
            notes.append(
                "the episodes are kept as stored, which is not the order of their numbers: see "
                f"{self.disorder}"
            )
        if self.modes:
            # Frames that show more than greys are refused when they are decoded, by their record.
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


def summarize(paths: tuple[Path, ...]) -> UnpluggedSummary:
    """Read all records of a run's files, given in their order."""
    stamps = [(path, path.stat()) for path in paths]
    return _summarize(tuple((path, stat.st_size, stat.st_mtime_ns) for path, stat in stamps))


@lru_cache(maxsize=4)  # three functions of a recipe need it, of datasets side by side
def _summarize(stamped: tuple[tuple[Path, int, int], ...]) -> UnpluggedSummary:
    found = UnpluggedSummary()
    for path, *_ in stamped:
        number = len(found.checkpoints)
        found.checkpoints.append({"number": number, "episodes": 0, "steps": 0})
        for episode in read_episodes(path):
            found.add(episode)
    return found


def _telling(episode: Episode) -> set[str]:
    implied = np.ones(episode.num_steps, np.float32)
    implied[-1:] = not episode.ends_in_zero
    told = {"unclipped_rewards": episode.columns["clipped_rewards"], "discounts": implied}
    return {
        name for name, values in told.items() if episode.columns[name].tobytes() != values.tobytes()
    }
