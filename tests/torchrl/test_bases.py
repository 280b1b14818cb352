"""Base classes: isinstance answers as with TorchRL's classes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.support.parity import ours, theirs

STORAGES = ("TensorStorage", "LazyTensorStorage", "LazyMemmapStorage", "ListStorage")
SAMPLERS = (
    *("Sampler", "RandomSampler", "SamplerWithoutReplacement", "PrioritizedSampler"),
    *("SliceSampler", "SliceSamplerWithoutReplacement", "PrioritizedSliceSampler"),
)
PAIRS = [*itertools.permutations(STORAGES, 2), *itertools.permutations(SAMPLERS, 2)]


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_storages_and_samplers_derive_as_torchrls_do(first: str, second: str) -> None:
    derives = issubclass(getattr(theirs, first), getattr(theirs, second))
    assert (getattr(ours, second) in getattr(ours, first).__mro__) == derives


def test_samplers_of_both_libraries_are_compared_all() -> None:
    shared = {name for name in ours.__all__ if "Sampler" in name and hasattr(theirs, name)}
    assert shared == {*SAMPLERS, "SamplerEnsemble"}  # which holds samplers here, and is none


@pytest.mark.parametrize(
    ("family", "id"),
    [
        ("AtariDQNExperienceReplay", "demo/pong"),
        ("D4RLExperienceReplay", "demo/door-human"),
        ("MinariExperienceReplay", "demo/door-minari"),
    ],
)
def test_a_family_draws_slices_by_torchrls_samplers(family: str, id: str, tmp_path: Any) -> None:
    made = getattr(ours, family)
    replay = made(id, batch_size=8, slice_len=4, root=tmp_path, seed=0)
    assert type(replay.sampler) is ours.SliceSampler
    once = made(id, batch_size=8, slice_len=4, root=tmp_path, replacement=False)
    assert type(once.sampler) is ours.SliceSamplerWithoutReplacement
    assert isinstance(once.sampler, ours.SliceSampler)
    assert not isinstance(made(id, batch_size=8, root=tmp_path).sampler, ours.SliceSampler)
    plain = ours.ExperienceReplay(id, batch_size=8, slice_len=4, root=tmp_path, seed=0)
    assert (replay.sample()["index"] == plain.sample()["index"]).all()
    plain.load_state_dict(replay.state_dict())
    assert (replay.sample()["index"] == plain.sample()["index"]).all()
