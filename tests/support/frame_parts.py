"""Frames apart from their steps, as workers read them; imports little, for workers import it."""

from __future__ import annotations

import os
from collections.abc import Generator

import numpy as np

from datasets_cli.recipe import Block

NUM_STEPS = 18

Part = list[tuple[int, int]]
"""Runs ``(first step, one past the last)``, in the order in which a part gives them."""


def shots() -> np.ndarray:
    """Return the frames of all steps, uint8 ``[18, 36, 36]``, each different."""
    scene = np.random.default_rng(0).integers(0, 255, (36, 36)).astype(np.uint8)
    return np.stack([np.roll(scene, number, axis=1) for number in range(NUM_STEPS)])


def read(part: Part) -> Generator[Block, None, None]:
    memory = np.empty((NUM_STEPS, 36, 36), np.uint8)
    for start, stop in part:
        memory[: stop - start] = shots()[start:stop]
        yield Block({("observation",): memory[: stop - start]}, start)


def broken(part: Part) -> Generator[Block, None, None]:
    yield from read(part[:1])
    raise EOFError("no more")


def killed(part: Part) -> Generator[Block, None, None]:
    """End the process, as a lack of memory does."""
    yield from read(part[:1])
    os._exit(1)
