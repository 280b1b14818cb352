"""Reading a run of the DQN Replay Dataset, from its logs or in RL Unplugged's form."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from datasets_cli.recipe import Block, DeferredFrames, Description, Source, rows_per_block

from . import unplugged_reader as unplugged
from .catalogue import TRAPS
from .frames import OBSERVATION, LogFrames, frames_of, read_frames
from .names import parse
from .segments import FRAME, LogSegment, read_segments
from .steps import MAX_EPISODE_STEPS, Steps, read_steps

ROW_BYTES = 16  # of a step without its frame


def describe(source: Source) -> Description:
    """Return the metadata of the run, its checkpoints, and notes on its rows."""
    name = parse(source.name)
    if name.unplugged:
        return unplugged.describe(source)
    steps = _summarize(source).checkpoints
    trap = TRAPS.get(f"{name.game}/{name.run}")
    metadata: dict[str, Any] = {
        "upstream": "dqn_replay",
        "game": name.game,
        "run": name.run,
        "checkpoints": steps,
        "max_episode_steps": MAX_EPISODE_STEPS,
        "frame_skip": 4,
        "repeat_action_probability": 0.25,
        "reward_range": [-1, 1],
        **({"known_traps": [trap]} if trap else {}),
    }
    return Description(metadata, tuple(_notes(steps)))


def _notes(steps: list[dict[str, Any]]) -> Iterator[str]:
    breaks = [str(step["number"]) for step in steps[1:] if not step["follows"]]
    if breaks:
        listed = ", ".join(breaks)
        yield f"rows are missing before checkpoint {listed}; no trajectory spans the gap"
    if limited := sum(step["episodes_at_step_limit"] for step in steps):
        yield (
            f"{limited} episodes of {MAX_EPISODE_STEPS:,} steps are truncated, although "
            "the publisher marks their ends like the end of a game"
        )
    if unknown := sum(step["episodes_of_unknown_length"] for step in steps):
        yield f"{unknown} episodes without a known start are terminated at their end"


def blocks(source: Source) -> Iterator[Block]:
    """Yield the steps of a run without their frames."""
    if parse(source.name).unplugged:
        yield from unplugged.blocks(source)
        return
    num_rows = rows_per_block(ROW_BYTES)
    for steps in read_steps(_summarize(source).segments):
        for start in range(0, steps.num_steps, num_rows):
            some = slice(start, start + num_rows)
            yield Block({key: values[some] for key, values in steps.columns.items()})


def deferred_frames(source: Source) -> DeferredFrames:
    """Return the frames before all steps, a part a file."""
    if parse(source.name).unplugged:
        return unplugged.deferred_frames(source)
    return DeferredFrames(OBSERVATION, FRAME, _summarize(source).frames, read_frames)


class RunSummary(NamedTuple):
    """A run without the columns of its steps, which take memory."""

    segments: list[LogSegment]
    checkpoints: list[dict[str, Any]]
    frames: list[LogFrames]


def _summarize(source: Source) -> RunSummary:
    """Read the small columns of all logs, and the few frames that show how they join."""
    stamps = [(name, path, path.stat()) for name, path in sorted(source.files.items())]
    return _summary_of(
        tuple((name, path, stat.st_size, stat.st_mtime_ns) for name, path, stat in stamps)
    )


@lru_cache(maxsize=4)  # three functions of a recipe need it, of datasets side by side
def _summary_of(stamped: tuple[tuple[str, Path, int, int], ...]) -> RunSummary:
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
