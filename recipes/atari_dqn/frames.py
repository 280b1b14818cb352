"""The frames of a DQN Replay run, log by log. Each log is read once, in the order of its slots."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from datasets_cli.formats.npy import read_rows
from datasets_cli.recipe import Block, Key

from .segments import FRAME
from .steps import EMPTY, Steps, not_empty

OBSERVATION: Key = ("observation",)


class LogFrames(NamedTuple):
    """The frames of one log that belong to steps."""

    number: int
    path: Path
    capacity: int
    stretches: np.ndarray


def frames_of(steps: Steps) -> LogFrames:
    """Return the part of ``DeferredFrames`` for one segment's steps."""
    log = steps.segment.log
    return LogFrames(log.number, log.files["observation"], log.capacity, steps.stretches)


def read_frames(part: LogFrames) -> Generator[Block, None, None]:
    """Yield the frames of a log in slot order, one block for each run of consecutive steps."""
    firsts, stops, _ = part.stretches.T
    start = 0
    for frames in read_rows(part.path, "uint8", (part.capacity, *FRAME)):
        end = start + len(frames)
        # The stretches that end after slot start and begin before slot end, which are sorted.
        here = slice(np.searchsorted(stops, start, "right"), np.searchsorted(firsts, end, "left"))
        for first, stop, step in part.stretches[here].tolist():
            low = max(first, start)  # its first slot in these frames
            some = frames[low - start : stop - start]
            if step != EMPTY:
                yield Block({OBSERVATION: some}, step + low - first)
            elif some.any():
                raise not_empty(part.number, low + int(some.any(axis=(1, 2)).argmax()))
        start = end
