"""The rows that a seed gives, by stored digests of index streams."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
import torch

from datasets_cli import (
    PrioritizedSampler,
    PrioritizedSliceSampler,
    RandomSampler,
    SamplerWithoutReplacement,
    SliceSampler,
)
from datasets_cli.replay.samplers.protocol import Sampler
from tests.support.trajectory_rows import TrajectoryRows

ROWS = TrajectoryRows([300, 7, 45, 120])
NUM_BATCHES = 50


def prioritized(kind: Any, **arguments: Any) -> Sampler:
    sampler: Sampler = kind(len(ROWS), 0.7, 0.9, **arguments)
    rows = torch.arange(len(ROWS))
    sampler.update_priority(rows, rows % 13 + 1.0)  # type: ignore[attr-defined]
    return sampler


SHORT = {"slice_len": 16, "strict_length": False}
STREAMS: dict[str, tuple[Callable[[], Sampler], int, str]] = {
    "uniform": (RandomSampler, 32, "ba9aeef1635f08f5"),
    "slices": (lambda: SliceSampler(num_slices=4), 32, "264c84b686718b5f"),
    "short slices": (lambda: SliceSampler(**SHORT), 32, "9bb07f451a423f0c"),
    "padded slices": (
        lambda: SliceSampler(**SHORT, pad_output=True, span=True),
        32,
        "c54f5b7880c66ed7",
    ),
    "by priority": (lambda: prioritized(PrioritizedSampler), 32, "2868885335a738ad"),
    "slices by priority": (
        lambda: prioritized(PrioritizedSliceSampler, slice_len=5),
        30,
        "df725c6723c54e28",
    ),
    "in order": (lambda: SamplerWithoutReplacement(shuffle=False), 32, "cf690ec5884c7206"),
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_seed_gives_the_rows_and_marks_that_it_always_gave(name: str) -> None:
    make, size, expected = STREAMS[name]
    sampler, generator, digest = make(), torch.Generator().manual_seed(11), hashlib.sha256()
    for _ in range(NUM_BATCHES):
        index, info = sampler.sample(ROWS, size, generator)
        for column in (index, *(info[key] for key in sorted(info))):
            digest.update(column.numpy().tobytes())
    assert digest.hexdigest()[:16] == expected
