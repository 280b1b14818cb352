"""What a restart leaves apart: trajectories of two runs are never joined, whoever numbers them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import (
    Collector,
    GoalRule,
    GymEnv,
    HERSampler,
    LazyTensorStorage,
    MultiSyncCollector,
    ReplayBuffer,
    SliceSampler,
)
from datasets_cli.environments import SerialEnv
from datasets_cli.replay.trajectories import seams
from datasets_cli.replay.trajectories.bounds import TrajectoryKeys

NUMBER = ("collector", "traj_ids")


def make_env() -> GymEnv:
    return GymEnv("CartPole-v1")


def rows(run: int, *lanes: int, steps: int = 60, number: int | None = 0) -> TensorDict:
    """Return ``[*lanes, steps]`` of one run: a trajectory that does not end."""
    shape = (*lanes, steps)
    flag = torch.zeros(*shape, 1, dtype=torch.bool)
    goal = torch.full((*shape, 1), float(run))
    following = TensorDict({"done": flag, "reward": goal, "achieved": goal}, shape)
    entries = {"run": torch.full(shape, run), "desired": goal, "next": following}
    if number is not None:
        entries["collector"] = TensorDict({"traj_ids": torch.full(shape, number)}, shape)
    return TensorDict(entries, shape)


def new_buffer(lanes: tuple[int, ...], sampler: Any = None) -> ReplayBuffer:
    storage = LazyTensorStorage(120 * (lanes or (1,))[0], ndim=1 + len(lanes))
    return ReplayBuffer(
        storage=storage, sampler=sampler or SliceSampler(slice_len=8), batch_size=8000, seed=0
    )


def reloaded(first: ReplayBuffer, second: ReplayBuffer, way: str, folder: Path) -> ReplayBuffer:
    if way == "state":
        second.load_state_dict(first.state_dict())
    else:
        first.dumps(folder / "dump")
        second.loads(folder / "dump")
    return second


def mixed(buffer: ReplayBuffer) -> int:
    """Return how many of 1,000 slices of 8 have rows of two runs."""
    runs = buffer.sample()["run"].reshape(1000, 8)
    return int((runs != runs[:, :1]).any(1).sum())


@pytest.mark.parametrize("way", ["state", "dump"])
@pytest.mark.parametrize("number", [0, None])
@pytest.mark.parametrize("lanes", [(), (2,)])
def test_no_slice_crosses_a_reload(
    way: str, number: int | None, lanes: tuple[int, ...], tmp_path: Path
) -> None:
    buffer = new_buffer(lanes)
    buffer.extend(rows(0, *lanes, number=number))
    for run in (1, 2):  # the second seam is written over the first rows of the ring
        buffer = reloaded(buffer, new_buffer(lanes), way, tmp_path / str(run))
        buffer.extend(rows(run, *lanes, steps=45, number=number))
        assert mixed(buffer) == 0
        assert len(set(buffer.sample()["run"].tolist())) == run + 1
    assert mixed(reloaded(buffer, new_buffer(lanes), way, tmp_path)) == 0  # it keeps its seams


def test_a_seam_is_gone_once_its_rows_are(tmp_path: Path) -> None:
    buffer = new_buffer(())
    buffer.extend(rows(0))
    buffer = reloaded(buffer, new_buffer(()), "state", tmp_path)
    buffer.extend(rows(1, steps=60))
    assert buffer.state_dict()["writer"]["seams"] == [59]
    buffer.extend(rows(2, number=1))
    assert "seams" not in buffer.state_dict()["writer"]


def test_a_larger_ring_that_is_loaded_keeps_its_seams(tmp_path: Path) -> None:
    buffer = new_buffer(())
    buffer.extend(rows(0))
    buffer = reloaded(buffer, new_buffer(()), "dump", tmp_path)
    buffer.extend(rows(1, steps=80))  # over the first 20 rows
    larger = ReplayBuffer(
        storage=LazyTensorStorage(500), sampler=SliceSampler(slice_len=8), batch_size=8000
    )
    reloaded(buffer, larger, "dump", tmp_path / "larger")
    larger.extend(rows(2, steps=50))
    assert larger.state_dict()["writer"]["seams"] == [39, 119] and mixed(larger) == 0


@pytest.mark.parametrize("way", ["state", "dump"])
def test_the_writer_may_say_that_trajectories_continue(way: str, tmp_path: Path) -> None:
    whole, half = new_buffer(()), new_buffer(())
    half.extend(rows(0, steps=60))
    half = reloaded(half, new_buffer(()), way, tmp_path)
    half.writer.continue_trajectories()
    for buffer in (whole, half):
        buffer.extend(rows(0, steps=120 - len(buffer)))
        buffer.generator.manual_seed(1)
    assert torch.equal(whole.sample(80)["run"], half.sample(80)["run"])
    assert [len(each.storage.trajectories(TrajectoryKeys()).starts) for each in (whole, half)] == [
        1, 1,
    ]  # fmt: skip


def test_an_end_flag_ends_a_trajectory_beside_numbers() -> None:
    data = rows(0, steps=6)
    data["next", "done"][2] = True
    buffer = ReplayBuffer(storage=LazyTensorStorage(10))
    buffer.extend(data)
    found = buffer.storage.trajectories(TrajectoryKeys(number=NUMBER))
    assert (found.starts.tolist(), found.lengths.tolist()) == ([0, 3], [3, 3])


def test_goals_are_of_the_same_run(tmp_path: Path) -> None:
    def goals() -> HERSampler:
        return HERSampler(
            GoalRule.sparse(0.5), strategy="episode", ratio=1.0,
            achieved_goal_key="achieved", desired_goal_key="desired",
        )  # fmt: skip

    buffer = new_buffer((), goals())
    buffer.extend(rows(0))
    buffer = reloaded(buffer, new_buffer((), goals()), "dump", tmp_path)
    buffer.extend(rows(1, steps=40))
    batch = buffer.sample()
    assert torch.equal(batch["desired"].squeeze(1), batch["run"].float())


def test_collectors_of_a_process_number_trajectories_differently() -> None:
    buffer = ReplayBuffer(
        storage=LazyTensorStorage(4000), sampler=SliceSampler(slice_len=8), batch_size=8000
    )
    runs = [Collector(make_env(), None, frames_per_batch=50, total_frames=500) for _ in range(2)]
    for batches in zip(*runs, strict=True):
        for run, batch in enumerate(batches):
            buffer.extend(batch.set("run", torch.full((50,), run)))
    assert mixed(buffer) == 0
    found = buffer[:]
    numbers = [set(found[NUMBER][found["run"] == run].tolist()) for run in range(2)]
    assert len(numbers[0]) > 5 and not numbers[0] & numbers[1]


def test_collectors_take_different_blocks_of_numbers() -> None:
    first, second = seams.Numbering(), seams.Numbering()
    begin = first.of(torch.tensor([0]))
    assert second.of(torch.tensor([5])) == begin + seams.BLOCK + 5
    assert torch.equal(
        first.of(torch.tensor([1023, 1024])), begin + torch.tensor([1023, 2 * seams.BLOCK])
    )
    assert first.stop == int(begin) + 2 * seams.BLOCK + 1


@pytest.mark.parametrize("kind", ["loaded", "given"])
def test_trajectory_numbers_continue_after_the_largest_in_a_buffer(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = new_buffer(())
    buffer.extend(rows(0, number=41))
    monkeypatch.setattr(seams, "_counter", seams._Counter())  # as in a new process
    if kind == "loaded":
        buffer = reloaded(buffer, new_buffer(()), "dump", tmp_path)
    numbers: list[torch.Tensor] = []

    def note(batch: TensorDict) -> TensorDict:
        numbers.append(batch[NUMBER])
        return rows(1)

    written = buffer if kind == "given" else None
    environment = SerialEnv(2, make_env)
    arguments: Any = {"frames_per_batch": 20, "total_frames": 20, "postproc": note}
    Collector(environment, None, replay_buffer=written, **arguments).next()
    assert numbers[0][:, 0].tolist() == [42, 43]


def test_a_state_of_a_collector_continues_in_a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seams, "_counter", seams._Counter())
    arguments: Any = {"frames_per_batch": 80, "total_frames": 400}
    first = MultiSyncCollector([make_env] * 2, None, **arguments)
    seen = first.next()[NUMBER]
    state = first.state_dict()
    first.shutdown()
    monkeypatch.setattr(seams, "_counter", seams._Counter())
    second = Collector(make_env(), None, **arguments)
    second.load_state_dict(state | {"sources": second.state_dict()["sources"]})
    assert second.next()[NUMBER][0] == seen.max() + 1
