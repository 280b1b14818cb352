"""Trajectories of buffers and of datasets."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import minari
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict

from datasets_cli import ExperienceReplay, LazyTensorStorage, split_trajectories
from datasets_cli.config import Config
from datasets_cli.errors import OutOfRange, UnknownKey, Unsupported, UsageError, WrongRows
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from tests.support import minari_files
from tests.support.refusals import refused

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchrl.collectors.utils import split_trajectories as split_of_torchrl

quick = settings(max_examples=30)


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
    with refused(UnknownKey, argument="trajectory_key"):
        split_trajectories(rollout)
    rollout["traj_ids"] = torch.zeros(4, 1)
    with refused(WrongRows, key=("traj_ids",), found=[4, 1]):
        split_trajectories(rollout)
    with refused(WrongRows, found=[0]):
        split_trajectories(rollout[:0])


# Iteration by episode: each trajectory's own rows; Minari's two methods beside Minari's own.


DOOR = "D4RL/door/human-v2"


@pytest.fixture
def replay(door: str) -> ExperienceReplay:
    return ExperienceReplay(door, 4, download=False, seed=0)


def starts_of(batches: Iterator[Any] | list[Any]) -> list[int]:
    return [int(batch["episode"][0]) for batch in batches]


# Minari


@pytest.fixture
def oracle(tmp_path: Path, config: Config) -> tuple[ExperienceReplay, minari.MinariDataset]:
    folder = minari_files.unpack_door(tmp_path / "minari")
    install_dataset(f"minari/{DOOR}", config, InstallOptions(source=str(folder)))
    replay = ExperienceReplay(f"minari/{DOOR}", 4, download=False, seed=0)
    return replay, minari.load_dataset(DOOR)


def assert_same(batch: TensorDict, episode: Any) -> None:
    steps = len(episode.rewards)
    assert batch.batch_size == (steps,)
    for key, values in {
        "observation": episode.observations[:-1],
        ("next", "observation"): episode.observations[1:],
        "action": episode.actions,
        ("next", "reward"): episode.rewards[:, None],
        ("next", "terminated"): episode.terminations[:, None],
        ("next", "info", "success"): episode.infos["success"][1:],
    }.items():
        np.testing.assert_array_equal(batch[key].numpy().reshape(values.shape), values)


def test_iterate_episodes_gives_minari_s_episodes(oracle: Any) -> None:
    replay, dataset = oracle
    for indices, count in ((None, 25), ([3, 0, 24, 3], 4), (np.array([5]), 1)):
        right = [*dataset.iterate_episodes(indices)]
        found = [*replay.iterate_episodes(indices)]
        assert len(found) == len(right) == count
        for batch, episode in zip(found, right, strict=True):
            assert_same(batch, episode)
    assert [*replay.iterate_episodes([])] == []


def test_sample_episodes_draws_different_ones_of_minari_s(oracle: Any) -> None:
    replay, dataset = oracle
    found = replay.sample_episodes(10)
    assert len(set(starts_of(found))) == len(dataset.sample_episodes(10)) == 10
    for batch in found:
        assert_same(batch, dataset[int(batch["episode"][0])])
    for method in (replay.sample_episodes, dataset.sample_episodes):
        with pytest.raises(ValueError):
            method(26)
    assert len(replay.sample_episodes(0)) == len(dataset.sample_episodes(0)) == 0


def test_the_table_has_minari_s_returns_and_successes(oracle: Any) -> None:
    replay, dataset = oracle
    episodes = [*dataset.iterate_episodes()]
    table = replay.trajectories
    np.testing.assert_allclose(table["return"], [each.rewards.sum() for each in episodes])
    assert table["length"].tolist() == [len(each.rewards) for each in episodes]
    assert table["success"].tolist() == [bool(each.infos["success"][1:].any()) for each in episodes]
    assert table["truncated"].tolist() == [bool(each.truncations[-1]) for each in episodes]


# Episodes


def test_episodes_are_all_rows_in_order(replay: ExperienceReplay) -> None:
    batches = [*replay.episodes()]
    assert starts_of(batches) == [0, 1, 2, 3, 4]
    assert (torch.cat(batches) == replay[:]).all()
    assert all(
        batch["next", "done"].flatten().nonzero().tolist() == [[len(batch) - 1]]
        for batch in batches
    )


@pytest.mark.parametrize(
    ("numbers", "right"),
    [
        ([2, 0, 2], [2, 0, 2]),
        ([-1], [4]),
        (range(1, 3), [1, 2]),
        ((n for n in (3,)), [3]),
        (torch.tensor([4, 1], dtype=torch.int8), [4, 1]),
        (np.array([True, False, False, True, False]), [0, 3]),
        ([], []),
    ],
)
def test_episodes_are_chosen_by_numbers_or_a_mask(
    replay: ExperienceReplay, numbers: Any, right: list[int]
) -> None:
    assert starts_of(replay.episodes(numbers)) == right


def test_a_column_of_the_table_chooses_episodes(replay: ExperienceReplay) -> None:
    returns = replay.trajectories["return"]
    (best,) = replay.episodes(returns == returns.max())
    of_rows = replay.trajectories.reduce(("next", "reward"), "sum")[returns.argmax()]
    assert best["next", "reward"].double().sum().item() == pytest.approx(of_rows)
    assert (best == replay.episode(int(returns.argmax()))).all()


@pytest.mark.parametrize(
    ("numbers", "error", "found"),
    [
        ([5], OutOfRange, 5),
        ([0, -6, 9], OutOfRange, -6),
        ([1.0], UsageError, "float64 [1]"),
        ([True, False], UsageError, "bool [2]"),
        ([[1]], UsageError, "int64 [1, 1]"),
        ([[1], [2, 3]], UsageError, [[1], [2, 3]]),
        (np.zeros(0, bool), UsageError, "bool [0]"),
        (torch.tensor([1.0], dtype=torch.bfloat16), UsageError, "float64 [1]"),
        ("12", UsageError, "12"),
        (3, UsageError, 3),
    ],
)
def test_numbers_of_other_episodes_are_refused_before_the_first(
    replay: ExperienceReplay, numbers: Any, error: type[UsageError], found: Any
) -> None:
    with refused(error, argument="numbers", found=found):
        replay.episodes(numbers)


def test_transforms_and_frame_stacks_apply_as_to_rows(door: str) -> None:
    def double(batch: TensorDict) -> TensorDict:
        return batch.set("action", batch["action"] * 2)

    replay = ExperienceReplay(door, 4, download=False, transform=double, frame_stack=3)
    start = int(replay.trajectories["start"][1])
    batch = replay.episode(1)
    assert batch["observation"].shape[1] == 3
    assert (batch == replay[start : start + len(batch)]).all()
    plain = ExperienceReplay(door, 4, download=False).episode(1)
    assert (batch["action"] == plain["action"] * 2).all()


def test_episodes_have_the_format_of_the_buffer(replay: ExperienceReplay) -> None:
    batch = replay.with_format("numpy").episode(1)
    assert isinstance(batch["action"], np.ndarray)
    np.testing.assert_array_equal(batch["action"], replay.episode(1)["action"].numpy())


def test_the_same_seed_draws_the_same_episodes_whatever_was_drawn_ahead(door: str) -> None:
    def draw(**arguments: Any) -> tuple[list[int], list[int]]:
        replay = ExperienceReplay(door, 4, download=False, seed=3, **arguments)
        replay.sample()
        episodes = starts_of(replay.sample_episodes(3))
        return episodes, replay.sample()["index"].tolist()

    assert draw() == draw() == draw(prefetch=3)


def test_rows_that_took_the_dataset_s_place_have_no_episodes(replay: ExperienceReplay) -> None:
    other = LazyTensorStorage(10)
    replay.set_storage(other)
    with refused(Unsupported, id=replay.dataset_id):
        replay.episodes()


def test_a_pickled_copy_has_the_same_episodes(replay: ExperienceReplay) -> None:
    copy = pickle.loads(pickle.dumps(replay))
    assert (copy.episode(2) == replay.episode(2)).all()
