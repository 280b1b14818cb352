"""Frame stacks against a slow loop over the source frames, on both layouts."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from datasets_cli import FrameStack, RandomSampler, TensorDictReplayBuffer, open_storage
from datasets_cli.errors import UsageError
from datasets_cli.store.layouts.compact_writer import CompactWriter
from datasets_cli.store.layouts.ted_writer import TedWriter
from tests.store.test_compact import Rows, pixel_rows, transitions, write
from tests.support.refusals import refused

LENGTHS = [7, 1, 2, 12]


def slow_stack(rows: Rows, key: Any, row: int, length: int, padding: str) -> np.ndarray:
    """The last ``length`` steps up to ``row`` of its trajectory, by hand."""
    start = max(s for s in np.cumsum([0, *LENGTHS]) if s <= row)
    observations = rows[key]
    steps = []
    for step in range(row - length + 1, row + 1):
        if step >= start:
            steps.append(observations[step])
        else:
            first = observations[start]
            steps.append(first if padding == "repeat" else np.zeros_like(first))
    return np.stack(steps)


def slow_next(rows: Rows, key: Any, row: int, length: int, padding: str) -> np.ndarray:
    behind = slow_stack(rows, key, row, length, padding)[1:]
    return np.concatenate([behind, rows["next", *key][row][None]])


@pytest.mark.parametrize("kind", [TedWriter, CompactWriter])
@pytest.mark.parametrize("pixels", [True, False])
def test_stacks_are_the_last_steps_of_their_trajectory(
    tmp_path: Path, pixels: bool, kind: Any
) -> None:
    rows = pixel_rows(LENGTHS) if pixels else transitions(LENGTHS, 0)
    key = ("observation",) if pixels else ("observation", "float64")
    write(kind, tmp_path / "rows", rows)
    index = torch.tensor([0, 3, 6, 7, 8, 9, 10, 21, 5, 5])
    paddings: Any = ("zeros", "repeat")
    for length, padding in itertools.product((1, 2, 4, 9), paddings):
        stack = FrameStack(open_storage(tmp_path / "rows"), length, key=key, padding=padding)
        batch = stack.get(index)
        for position, row in enumerate(index.tolist()):
            right = slow_stack(rows, key, row, length, padding)
            assert batch[key][position].numpy().tobytes() == right.tobytes()
            following = slow_next(rows, key, row, length, padding)
            assert batch["next", *key][position].numpy().tobytes() == following.tobytes()
        assert torch.equal(batch["action"], torch.from_numpy(rows["action",][index.numpy()]))


def test_a_buffer_samples_stacks(tmp_path: Path) -> None:
    write(CompactWriter, tmp_path / "rows", pixel_rows(LENGTHS))
    stack = FrameStack(open_storage(tmp_path / "rows"), 4)
    buffer = TensorDictReplayBuffer(storage=stack, sampler=RandomSampler(), batch_size=8)
    batch = buffer.sample()
    assert batch["observation"].shape == batch["next", "observation"].shape == (8, 4, 36, 36)
    assert buffer[0:3]["observation"].shape == (3, 4, 36, 36)
    assert buffer["observation"].shape == (22, 36, 36)
    copy = pickle.loads(pickle.dumps(stack))
    assert torch.equal(copy.get(batch["index"])["observation"], batch["observation"])


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"length": 0}, "length"),
        ({"length": 2, "key": ("nosuch",)}, "key"),
        ({"length": 2, "padding": "x"}, "padding"),
    ],
)
def test_a_stack_that_makes_no_sense_is_refused(
    tmp_path: Path, arguments: Any, argument: str
) -> None:
    write(TedWriter, tmp_path / "rows", pixel_rows([3]))
    with refused(UsageError, argument=argument):
        FrameStack(open_storage(tmp_path / "rows"), **arguments)
