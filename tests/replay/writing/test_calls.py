"""A write takes few calls, in few files, and does no work for an error that does not occur."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

import torch
from tensordict import TensorDict

import datasets_cli
from datasets_cli import LazyTensorStorage, PrioritizedSampler, TensorDictReplayBuffer

PACKAGE = str(Path(datasets_cli.__file__).parent)


def test_a_write_by_priority_takes_few_calls_and_names_nothing() -> None:
    step = {"observation": torch.zeros(100, 3), "done": torch.zeros(100, 1)}
    rows = TensorDict({**step, "next": {**step, "reward": torch.zeros(100, 1)}}, [100])
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(1000), sampler=PrioritizedSampler(1000, 0.7, 0.5)
    )
    buffer.extend(rows)
    calls: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            calls.append((frame.f_code.co_filename, frame.f_code.co_name))

    sys.setprofile(note)
    try:
        buffer.extend(rows)
    finally:
        sys.setprofile(None)
    assert len(calls) <= 50 and len({file for file, _ in calls}) <= 12, calls
    assert not {"show_key", "names", "outline"} & {name for _, name in calls}
