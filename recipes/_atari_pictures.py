"""The screens of a DQN Replay run, log by log: a log is read once, from its first slot on."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from datasets_cli.recipe import Block, Key

from ._atari_order import FRAME
from ._atari_steps import EMPTY, Steps, not_empty
from ._npy import read_rows

if TYPE_CHECKING:
    import numpy as np

OBSERVATION: Key = ("observation",)


class Part(NamedTuple):
    """The screens of one log that are steps.

    Args:
        number: of the log.
        path: the file.
        capacity: screens in it.
        stretches: as ``Steps`` has them; slots that are in none are not looked at.
    """

    number: int
    path: Path
    capacity: int
    stretches: np.ndarray


def part_of(steps: Steps) -> Part:
    """Return the part that reads the screens of one turn."""
    log = steps.turn.log
    return Part(log.number, log.files["observation"], log.capacity, steps.stretches)


def read_pictures(part: Part) -> Generator[Block, None, None]:
    """Yield the screens of a log by slot, each stretch of steps by itself.

    Raises:
        SourceError: the file is damaged, or a row that must be empty is not.
    """
    import numpy as np

    firsts, stops, _ = part.stretches.T
    start = 0
    for frames in read_rows(part.path, "uint8", (part.capacity, *FRAME)):
        end = start + len(frames)
        here = slice(np.searchsorted(stops, start, "right"), np.searchsorted(firsts, end, "left"))
        for first, stop, step in part.stretches[here].tolist():
            low = max(first, start)
            some = frames[low - start : stop - start]
            if step != EMPTY:
                yield Block({OBSERVATION: some}, step + low - first)
            elif some.any():
                raise not_empty(part.number, low + int(some.any(axis=(1, 2)).argmax()))
        start = end
