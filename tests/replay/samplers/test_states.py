"""States of samplers: each names its kind, and no other kind of sampler takes it."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import (
    BlockShuffleSampler,
    DistributedSampler,
    GoalRule,
    HERSampler,
    PrioritizedSampler,
    PrioritizedSliceSampler,
    RandomSampler,
    ReplayBuffer,
    Sampler,
    SamplerWithoutReplacement,
    SliceSampler,
    SliceSamplerWithoutReplacement,
    TensorStorage,
)
from datasets_cli.errors import WrongState
from datasets_cli.replay.mixing.mixture import MixtureEpochs, Weighted
from datasets_cli.replay.mixing.weights import MixtureWeights
from datasets_cli.replay.samplers.rows import SharedEpochOptions, SingleRows
from datasets_cli.replay.samplers.slices import Slices
from datasets_cli.torchrl.slice_samplers import CatFrames
from tests.replay.samplers.test_protocol import Derived
from tests.support.trajectory_rows import TrajectoryRows

ROWS = TensorDict({"x": torch.arange(8), "episode": torch.arange(8) // 4}, [8])


RULE = GoalRule.sparse(0.5)
WEIGHTS = MixtureWeights([1, 2], ["first", "second"])
MIXED = WEIGHTS, "first", SharedEpochOptions(num_replicas=1, rank=0)


KINDS: dict[str, Callable[[], Sampler]] = {
    "random": RandomSampler,
    "epochs": SamplerWithoutReplacement,
    "shared": lambda: DistributedSampler(1, 0),
    "blocks": lambda: BlockShuffleSampler(2, 2),
    "slices": lambda: SliceSampler(slice_len=2),
    "slice epochs": lambda: SliceSamplerWithoutReplacement(slice_len=2),
    "slice a row": lambda: CatFrames(2, -1).make_rb_transform_and_sampler(2)[1],
    "priorities": lambda: PrioritizedSampler(9, 0.5, 0.5),
    "slice priorities": lambda: PrioritizedSliceSampler(9, 0.5, 0.5, slice_len=2),
    "goals": lambda: HERSampler(RULE),
    "goals of epochs": lambda: HERSampler(
        GoalRule.sparse(0.5), sampler=SamplerWithoutReplacement()
    ),
    "weights": lambda: SingleRows(Weighted(WEIGHTS)),
    "slices by weight": lambda: Slices(Weighted(WEIGHTS), slice_len=2),
    "epochs of a mixture": lambda: SingleRows(MixtureEpochs(*MIXED)),
    "slice epochs of a mixture": lambda: Slices(MixtureEpochs(*MIXED), slice_len=2),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_is_taken_by_its_own_kind_of_sampler_alone(kind: str) -> None:
    state, before = KINDS[kind]().state_dict(), torch.get_rng_state()
    taken = []
    for other, make in KINDS.items():
        sampler = make()
        unchanged = repr(sampler.state_dict())
        try:
            sampler.load_state_dict(state)
            taken.append(other)
        except WrongState as error:
            assert error.expected != error.found
        assert repr(sampler.state_dict()) == unchanged
    assert taken == [kind]
    assert torch.equal(torch.get_rng_state(), before)


def test_kinds_are_those_of_states_that_were_kept() -> None:
    assert {name: make().state_dict()["kind"] for name, make in KINDS.items()} == {
        "random": "uniform rows",
        "epochs": "epochs of rows",
        "shared": "shared epochs of rows",
        "blocks": "shared epochs of blocks",
        "slices": "uniform slices",
        "slice epochs": "epochs of slices",
        "slice a row": "a uniform slice for each row",
        "priorities": "rows by priority",
        "slice priorities": "slices by priority",
        "goals": "rows with goals",
        "goals of epochs": "rows with goals",
        "weights": "weighted rows",
        "slices by weight": "weighted slices",
        "epochs of a mixture": "epochs of rows of a mixture",
        "slice epochs of a mixture": "epochs of slices of a mixture",
    }


def test_a_sampler_shows_what_it_draws_by() -> None:
    assert repr(KINDS["random"]()) == "RandomSampler()"
    assert repr(KINDS["slices"]()) == "SliceSampler(slice_len=2)"
    assert repr(KINDS["weights"]()) == f"SingleRows(Weighted({WEIGHTS.state()!r}))"
    shown = f"Slices(MixtureEpochs({WEIGHTS.state()!r}, epoch='first'), slice_len=2)"
    assert repr(KINDS["slice epochs of a mixture"]()) == shown


def test_a_sampler_without_a_state_refuses_one() -> None:
    Derived().load_state_dict(Derived().state_dict())
    with pytest.raises(WrongState) as error:
        Derived().load_state_dict(RandomSampler().state_dict())
    assert error.value.found == ["kind"]


def test_an_empty_state_is_one_of_torchrls_samplers_that_keep_none() -> None:
    for kind, make in KINDS.items():
        if kind in ("random", "slices", "slice a row"):
            make().load_state_dict({})
        else:
            with pytest.raises(WrongState) as error:
                make().load_state_dict({})
            assert error.value.found is None


@pytest.mark.parametrize(("first", "second"), [("epochs", "shared"), ("shared", "epochs")])
def test_a_buffer_refuses_the_draws_of_another_sampler(first: str, second: str) -> None:
    one, other = (
        ReplayBuffer(storage=TensorStorage(ROWS), sampler=KINDS[kind](), batch_size=3, seed=0)
        for kind in (first, second)
    )
    one.sample()
    state, before = one.state_dict(), repr(other.state_dict())
    with pytest.raises(WrongState) as error:
        other.load_state_dict(state)
    assert error.value.argument == "sampler" and error.value.found != error.value.expected
    assert repr(other.state_dict()) == before
    other.load_state_dict(state | {"sampler": other.state_dict()["sampler"]})
    json.dumps(state["sampler"])


@pytest.mark.parametrize("kind", ["epochs", "shared", "blocks"])
def test_an_epoch_begins_again_where_it_is_continued_with_other_rows(kind: str) -> None:
    sampler, other = KINDS[kind](), KINDS[kind]()
    sampler.sample(TrajectoryRows([6]), 4, torch.Generator().manual_seed(0))
    other.load_state_dict(sampler.state_dict())
    index, _ = other.sample(TrajectoryRows([9]), 9, torch.Generator().manual_seed(0))
    assert sorted(index.tolist()) == [*range(9)]
