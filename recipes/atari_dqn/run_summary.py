"""What the logs of a run say together, found once, before its steps and frames are read."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from datasets_cli.recipe import Source

from .frames import LogFrames, frames_of
from .segments import LogSegment, read_segments
from .steps import Steps, read_steps


class RunSummary(NamedTuple):
    """What is known of a run, but for the columns of its steps, which take memory."""

    segments: list[LogSegment]
    checkpoints: list[dict[str, Any]]
    frames: list[LogFrames]


def summarize(source: Source) -> RunSummary:
    """Read the small columns of all logs, and the few frames that say how they join."""
    stamps = [(name, path, path.stat()) for name, path in sorted(source.files.items())]
    return _summarize(
        tuple((name, path, stat.st_size, stat.st_mtime_ns) for name, path, stat in stamps)
    )


@lru_cache(maxsize=4)  # three functions of a recipe need it, of datasets side by side
def _summarize(stamped: tuple[tuple[str, Path, int, int], ...]) -> RunSummary:
    segments = read_segments({name: path for name, path, *_ in stamped})
    found = RunSummary(segments, [], [])
    for steps in read_steps(segments):
        found.checkpoints.append(_checkpoint(steps))
        found.frames.append(frames_of(steps))
    return found


def _checkpoint(steps: Steps) -> dict[str, Any]:
    log = steps.segment.log
    return {
        "number": log.number,
        "add_count": log.add_count,
        "capacity": log.capacity,
        "steps": steps.num_steps,
        "follows": steps.segment.follows or steps.segment.begins,
        "episodes_at_step_limit": steps.num_limited,
        "episodes_of_unknown_length": steps.num_unknown,
    }
