"""Transforms against TorchRL 0.14 on random batches, bit for bit where the sums are the same."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict

from tests.support.parity import ours

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchrl.data.postprocs import MultiStep as TorchRLMultiStep
    from torchrl.envs import transforms as theirs

quick = settings(max_examples=8)


@st.composite
def batches(draw: Any, min_steps: int = 1) -> TensorDict:
    """Steps in a row ``[T]`` or ``[B, T]``, nested entries and several types among them."""
    shape = [*draw(st.lists(st.integers(1, 3), max_size=1)), draw(st.integers(min_steps, 12))]
    rng = torch.Generator().manual_seed(draw(st.integers(0, 999)))
    done = torch.rand((*shape, 1), generator=rng) < draw(st.sampled_from([0.0, 0.2, 0.6]))
    return TensorDict(
        {
            "observation": {
                "position": torch.rand((*shape, 2), generator=rng, dtype=torch.float64),
                "angle": torch.rand((*shape, 1), generator=rng),
            },
            "pixels": torch.randint(256, (*shape, 4, 5, 3), generator=rng, dtype=torch.uint8),
            "velocity": torch.rand((*shape, 3), generator=rng),
            "next": {
                "observation": torch.rand((*shape, 2), generator=rng),
                "reward": torch.randn((*shape, 1), generator=rng),
                "done": done,
                "terminated": done & (torch.rand((*shape, 1), generator=rng) < 0.5),
            },
        },
        shape,
    )


def same(ours: TensorDict, theirs: TensorDict, tolerance: float = 0.0) -> None:
    """Keys, empty groups among them, types, shapes and values."""
    assert ours.batch_size == theirs.batch_size
    assert set(ours.keys(True)) == set(theirs.keys(True))
    for key, right in theirs.items(True, True):
        found = ours[key]
        assert (found.dtype, found.shape) == (right.dtype, right.shape), key
        if tolerance and found.is_floating_point():
            torch.testing.assert_close(found, right, rtol=tolerance, atol=tolerance)
        else:
            equal = torch.equal(found, right)
            assert equal, key


ANGLE, POSITION = ("observation", "angle"), ("observation", "position")
SAME: dict[str, Callable[[Any], Any]] = {
    "cat": lambda lib: lib.CatTensors([POSITION, "velocity", ANGLE]),
    "cat in the order given": lambda lib: lib.CatTensors(
        ["velocity", POSITION], out_key=("next", "all"), sort=False, del_keys=False
    ),
    "cat onto one of them": lambda lib: lib.CatTensors([ANGLE, POSITION], out_key=ANGLE),
    "rename": lambda lib: lib.RenameTransform([ANGLE, "velocity"], ["a", ("b", "c")]),
    "rename a copy": lambda lib: lib.RenameTransform(["velocity"], ["v"], create_copy=True),
    "exclude": lambda lib: lib.ExcludeTransform("velocity", ANGLE, "nosuch"),
    "exclude when written": lambda lib: lib.ExcludeTransform("velocity", inverse=True),
    "select": lambda lib: lib.SelectTransform(
        ANGLE, "nosuch", keep_rewards=False, keep_dones=False
    ),
    "scale": lambda lib: lib.ObservationNorm(0.5, 2.0, [ANGLE, "velocity"], ["a", "v"]),
    "standardise": lambda lib: lib.ObservationNorm(
        torch.tensor([0.1, 0.2, 0.3]),
        torch.tensor([1.0, 2.0, 3.0]),
        ["velocity"],
        None,
        standard_normal=True,
    ),
    "scale rewards": lambda lib: lib.RewardScaling(0.5, 2.0, in_keys=[("next", "reward")]),
    "standardise rewards": lambda lib: lib.RewardScaling(
        0.5, 2.0, in_keys=[("next", "reward")], out_keys=["r"], standard_normal=True
    ),
    "floats": lambda lib: lib.DoubleToFloat(),
    "one float": lambda lib: lib.DoubleToFloat(in_keys=[POSITION], out_keys=["p"]),
    "pictures": lambda lib: lib.ToTensorImage(),
    "pictures of bytes": lambda lib: lib.ToTensorImage(from_int=False, dtype=torch.float64),
    "pictures elsewhere": lambda lib: lib.ToTensorImage(
        in_keys=["pixels"], out_keys=["image"], shape_tolerant=True
    ),
    "unsqueeze": lambda lib: lib.UnsqueezeTransform(-1, in_keys=["velocity"], out_keys=["v"]),
    "composed": lambda lib: lib.Compose(
        lib.RenameTransform(["velocity"], ["v"]), lib.UnsqueezeTransform(-2, in_keys=["v"])
    ),
}


@pytest.mark.parametrize("name", SAME)
@quick
@given(batch=batches())
def test_a_transform_gives_what_torchrl_s_gives(name: str, batch: TensorDict) -> None:
    make = SAME[name]
    same(make(ours)(batch.clone()), make(theirs)(batch.clone()))


@quick
@given(batch=batches())
def test_an_inverse_gives_what_torchrl_s_gives(batch: TensorDict) -> None:
    keys = {"in_keys_inv": ["inner"], "out_keys_inv": ["velocity"]}
    for make in (
        lambda lib: lib.RenameTransform(["x"], ["y"], ["inner"], ["velocity"]),
        lambda lib: lib.ObservationNorm(0.5, 2.0, in_keys=["x"], **keys),
        lambda lib: lib.ObservationNorm(0.5, 2.0, in_keys=["x"], standard_normal=True, **keys),
        lambda lib: lib.DoubleToFloat(in_keys=["x"], **keys),
        lambda lib: lib.ExcludeTransform("velocity", inverse=True),
        lambda lib: lib.Compose(lib.DoubleToFloat(in_keys=["x"], **keys)),
    ):
        written = batch.clone()
        same(make(ours).inv(written), make(theirs).inv(batch.clone()))
        same(written, batch)


def test_torchrl_s_own_transforms_fit_into_compose() -> None:
    batch = TensorDict({"a": torch.ones(3, 2), "b": torch.ones(3, 1)}, [3])
    mixed = ours.Compose(theirs.CatTensors(["a", "b"], "c"), ours.RenameTransform(["c"], ["d"]))
    assert mixed(batch.clone())["d"].shape == (3, 3)
    inverse = ours.Compose(theirs.RenameTransform([], [], ["z"], ["a"]), lambda td: td)
    assert set(inverse.inv(batch).keys()) == {"z", "b"}


@quick
@given(batch=batches(), n_steps=st.integers(2, 5), gamma=st.sampled_from([0.5, 0.99, 1.0]))
def test_multi_step_rows_are_torchrl_s(batch: TensorDict, n_steps: int, gamma: float) -> None:
    right = TorchRLMultiStep(gamma=gamma, n_steps=n_steps)(batch.clone())
    same(ours.MultiStep(gamma=gamma, n_steps=n_steps)(batch), right, tolerance=1e-5)


@quick
@given(batch=batches(min_steps=6), n_steps=st.integers(1, 4), cuts=st.lists(st.integers(0, 12)))
def test_multi_step_rows_are_written_as_torchrl_writes_them(
    batch: TensorDict, n_steps: int, cuts: list[int]
) -> None:
    mine = ours.MultiStepTransform(n_steps, 0.9, mark_terminated=False)
    other = theirs.MultiStepTransform(n_steps, 0.9)
    bounds = sorted({0, batch.shape[-1], *(cut for cut in cuts if cut < batch.shape[-1])})
    for start, stop in itertools.pairwise(bounds):
        found, right = mine.inv(batch[..., start:stop]), other._inv_call(batch[..., start:stop])
        assert (found is None) == (right is None)
        if found is not None:
            if n_steps == 1:  # named defect: TorchRL's nonterminal is False everywhere
                right = right.set("nonterminal", found["nonterminal"])
            same(found, right, tolerance=1e-5)


@quick
@given(batch=batches(), gamma=st.sampled_from([0.5, 0.97, 1.0]))
def test_rewards_to_go_are_torchrl_s(batch: TensorDict, gamma: float) -> None:
    batch["next", "done"][..., -1, :] = True
    make = lambda lib: lib.Reward2GoTransform(gamma=gamma, out_keys=["to_go"])  # noqa: E731
    same(make(ours).inv(batch), make(theirs).inv(batch), tolerance=1e-5)


@quick
@given(batch=batches(min_steps=4), seed=st.integers(0, 99))
def test_a_crop_is_one_that_torchrl_could_have_made_or_the_last_one(
    batch: TensorDict, seed: int
) -> None:
    batch["time"] = torch.arange(batch.shape[-1]).expand(batch.shape).clone()
    torch.manual_seed(seed)
    crop = ours.RandomCropTensorDict(3)(batch)
    right = theirs.RandomCropTensorDict(3)(batch)
    assert crop.batch_size == right.batch_size
    assert set(crop.keys(True)) == set(right.keys(True))
    start = crop["time"][..., :1]
    assert bool((start <= batch.shape[-1] - 3).all())
    same(crop, batch.gather(-1, start + torch.arange(3)))


@pytest.mark.filterwarnings("ignore")
def test_counts_marks_and_sums_are_those_of_torchrl_s_environments() -> None:
    from torchrl.envs import GymEnv, TransformedEnv

    added = theirs.Compose(
        theirs.StepCounter(max_steps=13), theirs.InitTracker(), theirs.RewardSum()
    )
    env = TransformedEnv(GymEnv("CartPole-v1"), added)
    torch.manual_seed(0)
    env.set_seed(0)
    rollout = env.rollout(120, break_when_any_done=False)
    batch = rollout.exclude(
        "step_count",
        "is_init",
        "episode_reward",
        ("next", "step_count"),
        ("next", "is_init"),
        ("next", "episode_reward"),
        ("next", "truncated"),
        ("next", "done"),
    )
    batch["next", "done"] = rollout["next", "terminated"].clone()
    assert int(rollout["next", "done"].sum()) > int(batch["next", "done"].sum()) > 0
    mine = ours.Compose(ours.StepCounter(max_steps=13), ours.InitTracker(), ours.RewardSum())
    found = mine(batch)
    for key in (
        "step_count",
        "is_init",
        *(("next", name) for name in ("step_count", "truncated", "done", "episode_reward")),
    ):
        assert torch.equal(found[key], rollout[key]), key
