"""Trajectories in rows: against TorchRL where it is right, by hand where it is not."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict

from datasets_cli import split_trajectories
from datasets_cli.errors import UnknownKey, UsageError, WrongRows
from datasets_cli.replay import find_start_stop_traj

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchrl.collectors.utils import split_trajectories as split_of_torchrl
    from torchrl.data.replay_buffers.utils import find_start_stop_traj as find_of_torchrl

quick = settings(max_examples=80)


@st.composite
def signals(draw: Any) -> dict[str, torch.Tensor]:
    """Flags or ids ``[T, *B]``."""
    shape = (draw(st.integers(1, 9)), *draw(st.lists(st.integers(1, 3), max_size=2)))
    rng = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    flags = torch.rand(shape, generator=rng) < draw(st.sampled_from([0.0, 0.3, 0.7]))
    return {"end": flags} if draw(st.booleans()) else {"trajectory": flags.long().cumsum(0) % 3}


@quick
@given(signal=signals(), at_capacity=st.booleans(), cursor=st.none() | st.integers(0, 8))
def test_trajectories_are_found_where_torchrl_finds_them(
    signal: dict[str, torch.Tensor], at_capacity: bool, cursor: int | None
) -> None:
    (rows,) = signal.values()
    cursor = None if cursor is None else cursor % len(rows)
    ours = find_start_stop_traj(**signal, at_capacity=at_capacity, cursor=cursor)
    theirs = find_of_torchrl(**signal, at_capacity=at_capacity, cursor=cursor)
    if rows.ndim < 3:
        assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    found, right = (
        sorted(zip(*(part.tolist() for part in parts), strict=True)) for parts in (ours, theirs)
    )
    assert found == right  # with two batch dimensions TorchRL lists the last one first


def test_the_last_trajectory_of_a_dataset_is_not_glued_to_the_first() -> None:
    end = torch.tensor([False, False, True, False, False])
    start, stop, lengths = find_start_stop_traj(end=end, at_capacity=False)
    assert (start.tolist(), stop.tolist(), lengths.tolist()) == ([[0], [3]], [[2], [4]], [3, 2])
    start, stop, lengths = find_start_stop_traj(end=end, at_capacity=True)
    assert (start.tolist(), stop.tolist(), lengths.tolist()) == ([[3]], [[2]], [5])


def test_a_cursor_can_be_a_range_or_a_tensor() -> None:
    end = torch.zeros(6, dtype=torch.bool)
    for cursor in (range(1, 4), torch.tensor([1, 2, 3]), 3):
        start, _, _ = find_start_stop_traj(end=end, at_capacity=True, cursor=cursor)
        assert start.tolist() == [[4]]
    assert not end.any()


@pytest.mark.parametrize(
    ("signals", "argument", "found"),
    [
        ({}, "trajectory", "neither"),
        ({"end": torch.zeros(0)}, "end", [0]),
        ({"end": torch.tensor(True)}, "end", []),
        ({"end": torch.zeros(2), "trajectory": torch.zeros(2)}, "trajectory", "both"),
    ],
)
def test_wrong_signals_are_refused(signals: Any, argument: str, found: Any) -> None:
    with pytest.raises(UsageError) as error:
        find_start_stop_traj(**signals, at_capacity=False)
    assert (error.value.argument, error.value.found) == (argument, found)


@st.composite
def rollouts(draw: Any) -> TensorDict:
    """A rollout ``[T]`` or ``[B, T]`` of trajectories whose ids are all different."""
    entries, steps = draw(st.integers(1, 3)), draw(st.integers(1, 9))
    rng = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    done = torch.rand((entries, steps), generator=rng) < 0.3
    begins = torch.cat((torch.ones(entries, 1), done[:, :-1]), 1).long()
    ids = begins.view(-1).cumsum(0).view(entries, steps) - 1
    rollout = TensorDict(
        {
            "obs": torch.rand(entries, steps, 2, generator=rng),
            ("next", "done"): done.unsqueeze(-1),
        },
        [entries, steps],
    )
    if draw(st.booleans()):
        rollout["collector", "traj_ids"] = ids
    return rollout[0] if entries == 1 and steps > 1 else rollout


@quick
@given(rollouts())
def test_rollouts_are_split_as_torchrl_splits_them(rollout: TensorDict) -> None:
    if rollout.shape[-1] == 1:
        return  # TorchRL squeezes time away
    ours, theirs = split_trajectories(rollout), split_of_torchrl(rollout)
    assert set(ours.keys(True, True)) == set(theirs.keys(True, True))
    assert ours.batch_size == theirs.batch_size
    assert bool((ours == theirs).all())


@quick
@given(rollouts())
def test_a_split_holds_every_step_once_and_zeros(rollout: TensorDict) -> None:
    split = split_trajectories(rollout)
    mask = split["collector", "mask"] if "collector" in rollout else split["mask"]
    assert torch.equal(split["obs"][mask], rollout["obs"].reshape(-1, 2))
    assert not split["obs"][~mask].any()
    assert (mask.long().diff(dim=1) <= 0).all()


def steps(ids: list[int], done: list[int] | None = None) -> TensorDict:
    rollout = TensorDict({"obs": torch.arange(len(ids)), "id": torch.tensor(ids)}, [len(ids)])
    if done is not None:
        rollout["next", "done"] = torch.tensor(done, dtype=torch.bool)
    return rollout


def split_steps(rollout: TensorDict) -> list[list[int]]:
    split = split_trajectories(rollout, trajectory_key="id")
    return [row["obs"][row["mask"]].tolist() for row in split]


def test_an_id_that_comes_back_goes_on() -> None:
    """Named defect: TorchRL counts an id over all its runs, but cuts at each (pytorch/rl#2588)."""
    assert split_steps(steps([7, 7, 3, 7, 3, 3])) == [[0, 1, 3], [2, 4, 5]]


def test_an_id_that_comes_back_after_its_end_is_another_trajectory() -> None:
    assert split_steps(steps([0, 0, 1, 0, 0], [0, 1, 1, 0, 0])) == [[0, 1], [2], [3, 4]]
    assert split_steps(steps([0, 0, 0], [0, 1, 0])) == [[0, 1, 2]]  # ids overrule flags


def test_entries_of_a_batch_never_share_a_trajectory() -> None:
    """Named defect: TorchRL returns rows of several trajectories, or joins them across entries."""
    rollout = TensorDict({"obs": torch.arange(8).view(2, 4)}, [2, 4])
    rollout["id"] = torch.tensor([[0, 0, 1, 1], [1, 1, 0, 0]])
    split = split_trajectories(rollout, trajectory_key="id")
    assert split["obs"].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_a_deeper_batch_is_split_too() -> None:
    """Named defect: TorchRL gives the entries of a third dimension the ids of others."""
    done = torch.zeros(2, 2, 3, 1, dtype=torch.bool)
    done[1, 1, 0] = True
    rollout = TensorDict({"obs": torch.arange(12).view(2, 2, 3), ("next", "done"): done}, [2, 2, 3])
    split = split_trajectories(rollout)
    right = [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 0, 0], [10, 11, 0]]
    assert split["obs"].tolist() == right
    assert split["traj_ids"].tolist() == [[0] * 3, [1] * 3, [2] * 3, [3, 0, 0], [4, 4, 0]]
    assert "traj_ids" not in rollout


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_trajectories_are_the_padded_ones_without_padding() -> None:
    rollout = steps([0, 0, 0, 1, 1], [0, 0, 1, 0, 0])
    padded = split_trajectories(rollout, trajectory_key="id")
    nested = split_trajectories(rollout, trajectory_key="id", as_nested=True)
    assert bool((nested.to_padded_tensor(mask_key="mask") == padded).all())
    jagged = split_trajectories(rollout, trajectory_key="id", as_nested=torch.jagged)
    assert [part.tolist() for part in jagged["obs"].unbind()] == [[0, 1, 2], [3, 4]]
    assert [part.tolist() for part in jagged["next", "done"].unbind()][1] == [False, False]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("ids", [[0, 0, 1, 1], [0, 1, 2], [0, 0, 0, 1, 1]])
def test_nested_trajectories_are_torchrls_where_all_are_as_long_too(ids: list[int]) -> None:
    rollout = steps(ids, [0] * len(ids)).set("wide", torch.arange(len(ids) * 2.0).view(-1, 2))
    ours = split_trajectories(rollout, trajectory_key="id", as_nested=True)
    theirs = split_of_torchrl(rollout, trajectory_key="id", as_nested=True)
    assert ours.batch_size == theirs.batch_size == torch.Size([ids[-1] + 1, -1])
    assert ours["next"].batch_size == theirs["next"].batch_size
    for key in ("obs", "id", "wide", ("next", "done")):
        assert ours[key].is_nested
        for part, other in zip(ours[key].unbind(), theirs[key].unbind(), strict=True):
            assert part.dtype == other.dtype
            assert torch.equal(part, other), key


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_single_trajectory_is_nested_as_several_are() -> None:
    """Named defect: TorchRL leaves a single one as it is, not nested, and with a mask."""
    nested = split_trajectories(steps([0, 0, 0]), trajectory_key="id", as_nested=True)
    assert nested.batch_size == torch.Size([1, -1])
    assert [part.tolist() for part in nested["obs"].unbind()] == [[0, 1, 2]]
    assert "mask" not in nested


def test_a_rollout_without_ids_and_flags_is_refused() -> None:
    rollout = TensorDict({"obs": torch.arange(4)}, [4])
    with pytest.raises(UnknownKey) as missing:
        split_trajectories(rollout)
    assert missing.value.argument == "trajectory_key"
    rollout["traj_ids"] = torch.zeros(4, 1)
    with pytest.raises(WrongRows) as shape:
        split_trajectories(rollout)
    assert (shape.value.key, shape.value.found) == (("traj_ids",), [4, 1])
    with pytest.raises(WrongRows) as empty:
        split_trajectories(rollout[:0])
    assert empty.value.found == [0]
