"""What the logs of a run say together, found once, before its steps and pictures are read."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from datasets_cli.recipe import Source

from ._atari_order import Turn, read_turns
from ._atari_pictures import Part, part_of
from ._atari_steps import Steps, read_steps


class Survey(NamedTuple):
    """What is known of a run, but for the columns of its steps, which take memory.

    Args:
        turns: what each log adds.
        checkpoints: the manifest's entry of each.
        parts: the pictures of each.
    """

    turns: list[Turn]
    checkpoints: list[dict[str, Any]]
    parts: list[Part]


def survey(source: Source) -> Survey:
    """Read the small columns of all logs, and the few pictures that say how they join.

    Raises:
        SourceError: a file is damaged, or they do not fit together.
    """
    stamps = [(name, path, path.stat()) for name, path in sorted(source.files.items())]
    return _survey(
        tuple((name, path, stat.st_size, stat.st_mtime_ns) for name, path, stat in stamps)
    )


@lru_cache(maxsize=1)  # three functions of a recipe need it, one after another
def _survey(stamped: tuple[tuple[str, Path, int, int], ...]) -> Survey:
    turns = read_turns({name: path for name, path, *_ in stamped})
    found = Survey(turns, [], [])
    for steps in read_steps(turns):
        found.checkpoints.append(_summary(steps))
        found.parts.append(part_of(steps))
    return found


def _summary(steps: Steps) -> dict[str, Any]:
    """Return the manifest's entry of a checkpoint."""
    log = steps.turn.log
    return {
        "number": log.number,
        "add_count": log.add_count,
        "capacity": log.capacity,
        "steps": steps.num_steps,
        "follows": steps.turn.follows or steps.turn.begins,
        "episodes_at_step_limit": steps.num_limited,
        "episodes_of_unknown_length": steps.num_unknown,
    }
