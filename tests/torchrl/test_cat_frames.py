"""CatFrames on random batches, against TorchRL's stacks where it supports them, and a slow loop.

Tests name the defects of TorchRL 0.14.1: an entry with its successor is rejected for N = 1, and
unless it is concatenated along its first dimension; nested successors are stacked like unrelated
entries; ``make_rb_transform_and_sampler`` needs an environment or a ``reset_key``; a
``TensorDictReplayBuffer`` does not accept its result; with ``future`` it keeps the step whose stack
is all padding. The first example of its documentation concatenates along the dimension of time,
which raises there too; our error advises unsqueeze.
"""

from __future__ import annotations

import inspect
import pickle
import pydoc
import warnings
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict

import datasets_cli as ours
from datasets_cli import (
    CatFrames,
    ExperienceReplay,
    FrameStack,
    LazyTensorStorage,
    ReplayBuffer,
    TensorDictReplayBuffer,
)
from datasets_cli.errors import UsageError, WrongSize
from datasets_cli.replay.trajectories.bounds import TrajectoryKeys
from tests.support.refusals import refused

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchrl.envs import GymEnv
    from torchrl.envs import transforms as theirs

SCREEN, NEXT_SCREEN = "screen", ("next", "screen")
X, NEXT_X = ("parts", "x"), ("next", "parts", "x")
many = settings(max_examples=20)


@st.composite
def batches(draw: Any) -> TensorDict:
    """Steps in a row ``[T]`` or ``[B, T]``, ends inside; successors are not the next entry."""
    shape = [*draw(st.lists(st.integers(1, 3), max_size=1)), draw(st.integers(1, 9))]
    rng = torch.Generator().manual_seed(draw(st.integers(0, 999)))

    def entries() -> dict[str, Any]:
        screen = torch.randint(256, (*shape, 2, 2, 3), generator=rng, dtype=torch.uint8)
        return {"screen": screen, "parts": {"x": torch.rand((*shape, 2, 1, 2), generator=rng)}}

    done = torch.rand((*shape, 1), generator=rng) < draw(st.sampled_from([0.0, 0.2, 0.6]))
    return TensorDict({**entries(), "next": {**entries(), "done": done}}, shape)


PADDINGS = [{}, {"padding": "constant"}, {"padding": "constant", "padding_value": 7}]
MASKS = [{}, {"mask_key": "padded"}, {"mask_key": "padded", "future": True}]


@pytest.mark.filterwarnings("ignore:The last dimension of the tensordict should be marked")
@many
@given(
    batch=batches(),
    length=st.integers(1, 5),
    in_keys=st.sampled_from([[SCREEN], [NEXT_SCREEN], [SCREEN, NEXT_SCREEN]]),
    dim=st.sampled_from([-1, -3]),
    elsewhere=st.booleans(),
    padding=st.sampled_from(PADDINGS),
    mask=st.sampled_from(MASKS),
)
def test_stacks_are_those_of_torchrl(
    batch: TensorDict,
    length: int,
    in_keys: list[Any],
    dim: int,
    elsewhere: bool,
    padding: Any,
    mask: Any,
) -> None:
    if len(in_keys) == 2:  # all that TorchRL can
        dim, length, mask = -3, max(length, 2), MASKS[0]
    out_keys = ["a", ("next", "b")][: len(in_keys)] if elsewhere else None
    arguments = {"in_keys": in_keys, "out_keys": out_keys, **padding, **mask}
    right = theirs.CatFrames(length, dim, **arguments)(batch.clone())
    found = CatFrames(length, dim, **arguments)(batch.clone())
    assert set(found.keys(True)) == set(right.keys(True))
    for key, value in right.items(True, True):
        same = found[key].dtype == value.dtype and torch.equal(found[key], value)
        assert same, key


def slow_stacks(row: TensorDict, key: Any, length: int, dim: int, fill: float | None) -> Any:
    """The stacks of an entry and of its successor in a row ``[T]``, by a loop."""
    stacks: tuple[list[Any], list[Any]] = [], []
    steps: list[torch.Tensor] = []
    for time, value in enumerate(row[key]):
        steps = [*steps, value] if time and not row["next", "done"][time - 1] else [value]
        for stack, real in zip(stacks, (steps, [*steps, row["next", key][time]]), strict=True):
            before = steps[0] if fill is None else torch.full_like(value, fill)
            stack.append(torch.cat(([before] * length + real)[-length:], dim))
    return torch.stack(stacks[0]), torch.stack(stacks[1])


@many
@given(batches(), st.integers(1, 5), st.sampled_from([-1, -2, -3]), st.sampled_from([None, 7]))
def test_a_successor_is_stacked_as_the_step_after(
    batch: TensorDict, length: int, dim: int, fill: int | None
) -> None:
    # The recorded successor of a step is the entry of the next one, but for a trajectory's last.
    ends = batch["next", "done"].squeeze(-1)
    for key in (SCREEN, X):
        following = batch[key].roll(-1, batch.ndim - 1)
        going_on = torch.cat((~ends[..., :-1], torch.zeros_like(ends[..., -1:])), -1)
        batch["next", key][going_on] = following[going_on]
    padding: Any = {} if fill is None else {"padding": "constant", "padding_value": fill}
    keys = [SCREEN, NEXT_SCREEN, NEXT_X, X]
    found = CatFrames(length, dim, keys, **padding)(batch.clone()).reshape(-1, batch.shape[-1])
    for row, stacked in zip(batch.reshape(found.shape), found, strict=True):
        for key, following in ((SCREEN, NEXT_SCREEN), (X, NEXT_X)):
            right, right_next = slow_stacks(row, key, length, dim, fill)
            same = torch.equal(stacked[key], right), torch.equal(stacked[following], right_next)
            assert same == (True, True), key


@pytest.mark.parametrize("kind", [ReplayBuffer, TensorDictReplayBuffer])
def test_the_stacks_of_an_environment_are_drawn_from_a_buffer_of_single_steps(kind: Any) -> None:
    # The example of TorchRL's make_rb_transform_and_sampler; the environment is TorchRL's.
    env = theirs.TransformedEnv(
        GymEnv("CartPole-v1"),
        theirs.Compose(
            theirs.RenameTransform(["observation"], ["stack"], create_copy=True),
            theirs.CatFrames(N=4, dim=-1, in_keys=["stack"]),
        ),
    )
    env.set_seed(0)
    data = env.rollout(200, break_when_any_done=False)
    catframes = CatFrames(N=4, dim=-1, in_keys=["stack"])
    transform, sampler = catframes.make_rb_transform_and_sampler(batch_size=32)
    copy = ours.RenameTransform(
        ["observation", ("next", "observation")], ["stack", ("next", "stack")], create_copy=True
    )
    storage = LazyTensorStorage(200)
    transforms = ours.Compose(copy, transform)
    rb = kind(storage=storage, sampler=sampler, transform=transforms, batch_size=32)
    rb.extend(data)
    assert "stack" not in storage.run(0, 1) and "stack" not in storage.run(0, 1)["next"]
    sample, info = rb.sample(return_info=True)
    rows = data[info["index"][3::4]]
    assert sample.shape == (32,) and rows["stack"].shape == (32, 16)
    for key in ("stack", ("next", "stack"), "observation", ("next", "done")):
        assert torch.equal(sample[key], rows[key]), key


def test_stacks_of_a_dataset_are_those_that_it_stacks_itself(door: str) -> None:
    frames = CatFrames(3, -1, ["observation"], ["stack"], mask_key="padded")
    transform, sampler = frames.make_rb_transform_and_sampler(16)
    replay = ExperienceReplay(door, 16, sampler=sampler, transform=transform, seed=0)
    batch = pickle.loads(pickle.dumps(replay)).sample()
    assert torch.equal(batch["index"], replay.sample()["index"])
    stacked = FrameStack(replay.storage, 3, padding="repeat").get(batch["index"])
    assert batch["padded"].shape == (16, 3) and not batch["padded"].any()
    for key in ("observation", ("next", "observation")):
        place = ("next", "stack") if isinstance(key, tuple) else "stack"
        assert torch.equal(batch[place], stacked[key].flatten(1)), key
    assert not batch["next", "done"].all()


def row_of(steps: int) -> TensorDict:
    time = torch.arange(float(steps)).unsqueeze(1)
    flags = torch.zeros(steps, 1, dtype=torch.bool)
    return TensorDict({"x": time, "next": {"x": time + 1, "done": flags}}, steps)


def test_stacks_of_what_comes_are_of_whole_slices_too() -> None:
    transform, _ = CatFrames(3, -1, ["x"], future=True).make_rb_transform_and_sampler(2)
    batch = transform(row_of(6))
    assert batch["x"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert batch["next", "x"].tolist() == [[1, 2, 3], [4, 5, 6]]
    with refused(WrongSize, expected="a multiple of 3", found=7):
        transform(row_of(7))


def test_stacks_can_be_made_when_rows_are_written() -> None:
    data = row_of(3)
    rb = ReplayBuffer(
        storage=LazyTensorStorage(3), transform=CatFrames(2, -1, ["x"], as_inverse=True)
    )
    rb.extend(data)
    assert rb[:]["x"].tolist() == [[0, 0], [0, 1], [1, 2]] and data["x"].shape == (3, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: CatFrames(0, -1),
        lambda: CatFrames(2, 1),
        lambda: CatFrames(2, -1, padding="zeros"),  # type: ignore[arg-type]
        lambda: CatFrames(2, -1, ["x"], ["y", "z"]),
        lambda: CatFrames(2, -1)(row_of(3)),  # no pixels
        lambda: CatFrames(2, -2, ["x"])(row_of(3)),  # the dimension of time
        lambda: CatFrames(2, -1, ["x"])(row_of(3)[0]),  # no time at all
        lambda: CatFrames(2, -1, ["x"], done_key="end")(row_of(3)),
        lambda: CatFrames(2, -1).make_rb_transform_and_sampler(2, strict_length=False),
        lambda: CatFrames(2, -1).make_rb_transform_and_sampler(2, span=(1, False)),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: Any) -> None:
    with pytest.raises(UsageError):
        wrong()


def test_every_argument_of_torchrl_is_taken_and_explained() -> None:
    for name in ("__init__", "make_rb_transform_and_sampler"):
        known = inspect.signature(getattr(theirs.CatFrames, name)).parameters
        own = inspect.signature(getattr(CatFrames, name)).parameters
        named = {key for key, one in known.items() if one.kind is not one.VAR_KEYWORD}
        assert named <= own.keys()
    slices = inspect.signature(ours.SliceSampler).parameters.keys() - {"num_slices", "slice_len"}
    assert slices <= inspect.signature(CatFrames.make_rb_transform_and_sampler).parameters.keys()
    text = pydoc.plain(pydoc.render_doc(CatFrames))
    for function in (CatFrames, CatFrames.make_rb_transform_and_sampler):
        names = inspect.signature(function).parameters.keys() - {"self"}
        assert all(f"{name}: " in text for name in names)


def test_a_misspelt_argument_names_what_was_called() -> None:
    with pytest.raises(TypeError, match=r"^CatFrames\.__init__\(\) .*'pad'"):
        CatFrames(2, -1, pad="same")  # type: ignore[call-arg]
    with pytest.raises(
        TypeError, match=r"^CatFrames\.make_rb_transform_and_sampler\(\) .*'slice_length'"
    ):
        CatFrames(2, -1).make_rb_transform_and_sampler(2, slice_length=2)  # type: ignore[call-arg]


def test_the_slices_of_a_stack_are_cut_as_the_arguments_say() -> None:
    frames = CatFrames(3, -1, ["x"])
    transform, sampler = frames.make_rb_transform_and_sampler(2, traj_key="id", init_key="new")
    assert repr(transform.frames).startswith("CatFrames(N=3, dim=-1, in_keys=[('x',), ('next', ")
    assert sampler.trajectories == TrajectoryKeys(number=("id",))
    assert (sampler.slice_len, sampler.truncated_key, sampler.init_key) == (3, None, ("new",))
    with pytest.raises(TypeError, match="traj_key and trajectory_key"):
        frames.make_rb_transform_and_sampler(2, traj_key="id", trajectory_key="id")
