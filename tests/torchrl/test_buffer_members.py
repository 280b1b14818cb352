"""Members of TorchRL's buffers, writers and schedulers."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from torchrl.data.replay_buffers import scheduler as their_schedulers

from datasets_cli import (
    D4RLExperienceReplay,
    LazyMemmapStorage,
    LazyTensorStorage,
    ListStorage,
    MultiStep,
    PrioritizedSampler,
    RenameTransform,
    ReplayBuffer,
    ReplayBufferEnsemble,
    RoundRobinWriter,
    SamplerWithoutReplacement,
    TensorDictMaxValueWriter,
    TensorDictReplayBuffer,
    TensorStorage,
    UsageError,
)
from datasets_cli.errors import ImmutableError, UnknownKey, WrongRows, WrongState
from datasets_cli.replay import RandomCropTensorDict
from datasets_cli.torchrl import LinearScheduler, StepScheduler
from tests.support.parity import ours, theirs
from tests.support.refusals import refused
from tests.support.torchrl_trees import trees  # noqa: F401

# What TorchRL's users read, set and call on a buffer beside drawing and writing.


STORAGES = ["ListStorage", "LazyTensorStorage", "LazyMemmapStorage"]


def rows(start: int, count: int) -> TensorDict:
    number = torch.arange(start, start + count)
    return TensorDict({"a": number, "next": {"b": number.float().unsqueeze(-1)}}, [count])


def filled(library: Any, storage: str, prefetch: int | None = None) -> Any:
    buffer = library.TensorDictReplayBuffer(
        storage=getattr(library, storage)(8), batch_size=4, prefetch=prefetch
    )
    buffer.extend(rows(0, 5))
    buffer.extend(rows(5, 6))
    return buffer


@pytest.mark.parametrize("storage", STORAGES)
def test_stats_and_the_count_of_writes_are_torchrls(storage: str) -> None:
    mine, right = filled(ours, storage), filled(theirs, storage)
    assert mine.stats() == right.stats() and mine.write_count == right.write_count == 11
    for keeps in (False, True):
        for buffer in (mine, right):
            buffer.empty(empty_write_count=not keeps)
            buffer.extend(rows(0, 2))
        assert mine.stats() == right.stats()


def test_stats_count_what_is_made_ahead_and_a_dataset_is_full(door: str) -> None:
    buffer = filled(ours, "LazyTensorStorage", prefetch=2)
    buffer.sample()
    assert buffer.stats()["prefetch_queue_size"] == 2
    dataset = D4RLExperienceReplay(door.removeprefix("d4rl/"))
    assert (dataset.write_count, dataset.stats()["utilization"]) == (0, 1.0)


def test_rows_that_were_taken_by_rank_are_counted_as_torchrl_counts_them() -> None:
    found = []
    for library in (ours, theirs):
        writer = library.TensorDictMaxValueWriter(rank_key="a")
        buffer = library.TensorDictReplayBuffer(storage=library.LazyTensorStorage(4), writer=writer)
        for start in (5, 0, 7):
            buffer.extend(rows(start, 3))
        found.append(buffer.write_count)
    assert found == [9, 9]


def test_the_count_of_writes_is_in_a_checkpoint() -> None:
    for writer in (RoundRobinWriter, lambda: TensorDictMaxValueWriter(rank_key="a")):
        buffer, other = (
            TensorDictReplayBuffer(storage=LazyTensorStorage(4), writer=writer()) for _ in "ab"
        )
        buffer.extend(rows(0, 3)), buffer.extend(rows(3, 3))
        other.load_state_dict(buffer.state_dict())
        assert other.write_count == buffer.write_count == 6


@pytest.mark.parametrize("storage", STORAGES[1:])
def test_entries_are_replaced_as_torchrl_replaces_them(storage: str) -> None:
    mine, right = filled(ours, storage), filled(theirs, storage)
    for buffer in (mine, right):
        buffer.set_("a", torch.arange(8) * 10)
        buffer.set_at_("a", torch.tensor([-1, -2]), torch.tensor([6, 2]))
        new = {"next": {"b": torch.ones(8, 1)}, "a": torch.zeros(8)}
        assert buffer.update_(new, keys_to_update=[("next", "b")]) is buffer
    assert mine[:]["a"].tolist() == right[:]["a"].tolist() == [0, 10, -2, 30, 40, 50, -1, 70]
    assert mine[:]["next", "b"].tolist() == right[:]["next", "b"].tolist() == [[1.0]] * 8


def test_many_rows_are_replaced_in_blocks_and_in_a_list_too() -> None:
    for storage in (LazyTensorStorage(10_000), ListStorage(10_000)):
        buffer = TensorDictReplayBuffer(storage=storage, batch_size=4)
        buffer.extend(rows(0, 9000))
        buffer.update_(rows(5, 9000).select("a"))
        assert torch.equal(buffer[:]["a"], torch.arange(5, 9005))
        assert torch.equal(buffer[:]["next", "b"].flatten(), torch.arange(9000.0))


@pytest.mark.parametrize(
    ("entries", "kind", "key", "found"),
    [
        ({"a": torch.arange(8), "c": torch.zeros(8)}, UnknownKey, "c", None),
        ({"a": torch.arange(8.0)}, WrongRows, "a", (torch.float32, [8])),
        ({"a": torch.arange(7)}, WrongRows, "a", (torch.int64, [7])),
    ],
)
def test_entries_of_another_form_are_rejected_before_any_is_written(
    entries: dict[str, torch.Tensor], kind: Any, key: str, found: Any
) -> None:
    buffer = filled(ours, "LazyTensorStorage")
    before = buffer[:]
    with refused(kind, key=(key,), found=found):
        buffer.update_({"next": {"b": torch.zeros(8, 1)}, **entries})
    with pytest.raises(UnknownKey):
        buffer.update_({"a": torch.arange(8)}, keys_to_update=["z"])
    assert bool((buffer[:] == before).all())


def test_a_dataset_keeps_its_entries(door: str) -> None:
    dataset = D4RLExperienceReplay(door.removeprefix("d4rl/"))
    with pytest.raises(ImmutableError):
        dataset.set_("action", dataset[:]["action"])


def test_parts_are_read_and_set_by_the_names_of_the_tutorials() -> None:
    buffer = ReplayBuffer(storage=LazyTensorStorage(8), batch_size=2, transform=dict)
    assert (buffer._storage, buffer._sampler) == (buffer.storage, buffer.sampler)
    assert (buffer._writer, buffer._transform) == (buffer.writer, buffer.transform)
    buffer._sampler = SamplerWithoutReplacement(shuffle=False)
    buffer._storage = TensorStorage(rows(3, 4))
    buffer._writer = RoundRobinWriter()
    assert [sorted(dict(batch)["a"].tolist()) for batch in buffer] == [[3, 4], [5, 6]]
    assert buffer.writer.state_dict()["cursor"] == 0
    buffer.extend(rows(9, 1))
    assert buffer.storage.column(("a",)).tolist() == [9, 4, 5, 6]


def test_an_ensemble_counts_the_writes_of_its_members_and_inverts_a_transform() -> None:
    members = [filled(ours, "LazyTensorStorage") for _ in range(2)]
    ensemble = ReplayBufferEnsemble(*members, batch_size=4)
    stored_as_x = RenameTransform([], [], ["x"], ["a"])
    batch = ensemble.append_transform(stored_as_x, invert=True).sample()
    assert {"x"} == {"a", "x"} & set(batch.keys())
    ensemble.empty(empty_write_count=False)
    assert (ensemble.write_count, len(ensemble)) == (22, 0)
    ensemble.empty()
    assert ensemble.write_count == 0


# The examples of TorchRL's pages on buffers, and the parts that its package page names.


def test_a_transform_that_is_inverted_acts_on_what_is_written() -> None:
    rb = ReplayBuffer(storage=LazyMemmapStorage(10), batch_size=4)
    data = TensorDict({"a": torch.zeros(10)}, [10])

    def t(data):  # type: ignore[no-untyped-def]
        data += 1
        return data

    rb.append_transform(t, invert=True)
    rb.extend(data)
    assert (data == 1).all()
    assert bool((rb.sample()["a"] == 1).all())


def test_sub_trajectories_are_cropped_and_steps_joined() -> None:
    time = torch.arange(50).expand(6, 50)
    ends = (time == 49).unsqueeze(-1)
    steps = {"time": time, "next": {"reward": torch.ones(6, 50, 1), "done": ends}}
    memory = ReplayBuffer(
        storage=LazyTensorStorage(6), transform=RandomCropTensorDict(10), batch_size=4
    )
    memory.extend(MultiStep(gamma=0.5, n_steps=2)(TensorDict(steps, [6, 50])))
    assert len(memory) == 6  # trajectories, not steps
    sample = memory.sample()
    assert sample.shape == (4, 10) and bool((sample["time"].diff() == 1).all())
    assert set(sample["next", "reward"].unique().tolist()) <= {1.5, 1.0}


# The share of offline rows, against TorchRL's buffer of the same purpose (pytorch/rl#3900).


NUMBERS = torch.arange(100)


def filled_by(library: Any, kind: str) -> Any:
    made = getattr(library, kind)(storage=library.LazyTensorStorage(100))
    made.extend(TensorDict({"number": NUMBERS}, [100]))
    return made


def num_offline(buffer: Any, batch_size: int, num_batches: int = 1) -> int:
    return sum(int((buffer.sample(batch_size)["number"] < 100).sum()) for _ in range(num_batches))


def test_torchrls_class_draws_torchrls_fractions() -> None:
    made = [
        library.OfflineToOnlineReplayBuffer(
            filled_by(library, "ReplayBuffer"),  # the index of another breaks TorchRL's
            online_storage=library.LazyTensorStorage(100),
            offline_fraction=0.25,
            batch_size=8,
        )
        for library in (ours, theirs)
    ]
    for step in (None, 0, 50, 100):
        if step is not None:
            for each in made:
                each.anneal(step, 100)
        counts = [(num_offline(each, 8), each.offline_fraction, len(each)) for each in made]
        assert counts[0] == counts[1]
        for each in made:
            each.extend(TensorDict({"number": 100 + NUMBERS[:30]}, [30]))
    with refused(UsageError, argument="online_capacity", found="neither"):
        ours.OfflineToOnlineReplayBuffer(made[0].offline_buffer)


@pytest.mark.parametrize(("count", "written"), [(None, 100), (70, 70), (200, 100)])
def test_a_buffer_is_filled_with_as_many_rows_as_torchrl_draws(count: Any, written: int) -> None:
    for library in (ours, theirs):
        online = library.ReplayBuffer(storage=library.LazyTensorStorage(300), batch_size=2)
        source = filled_by(library, "TensorDictReplayBuffer")
        made = library.prefill_replay_buffer(online, source, n_samples=count, chunk_size=30)
        assert made is online and len(online) == written
        assert set(online[:]["number"].tolist()) <= set(range(100))


def test_a_prefix_names_the_family(tmp_path: Any) -> None:
    replay = ours.load_dataset("d4rl:demo/door-human", batch_size=4, root=tmp_path)
    assert type(replay) is ours.D4RLExperienceReplay and len(replay.sample()) == 4
    with refused(UsageError, argument="dataset_id", found="openx:x"):
        ours.load_dataset("openx:x")


# Write counts of numbered, which detect stale handles, against TorchRL's.


SLOTS = torch.tensor([[0, 1, 2], [3, 9, -1]])


def numbered(count: int) -> TensorDict:
    return TensorDict({"a": torch.arange(count)}, [count])


def tracked_by(library: Any, storage: str, writer: str, buffer: str) -> Any:
    made = getattr(library, buffer)(
        storage=getattr(library, storage)(4),
        writer=getattr(library, writer)(track_generations=True),
        batch_size=8,
    )
    for count in (3, 2, 9):
        made.extend(numbered(count))
    made.add(numbered(1)[0])
    made[:2] = numbered(2)  # in place of others: not counted
    return made


@pytest.mark.parametrize(
    ("storage", "writer", "buffer"),
    [
        ("ListStorage", "RoundRobinWriter", "ReplayBuffer"),
        ("LazyTensorStorage", "RoundRobinWriter", "TensorDictReplayBuffer"),
        ("LazyTensorStorage", "TensorDictRoundRobinWriter", "ReplayBuffer"),
        ("LazyMemmapStorage", "TensorDictRoundRobinWriter", "TensorDictReplayBuffer"),
    ],
)
def test_rows_are_counted_as_torchrl_counts_them(storage: str, writer: str, buffer: str) -> None:
    mine, right = (tracked_by(library, storage, writer, buffer) for library in (ours, theirs))
    for _ in range(2):
        told = mine.writer.generations_of(SLOTS)
        assert torch.equal(told, right.writer.generations_of(SLOTS)) and told[0, 0] > 1
        batch, info = mine.sample(return_info=True)
        assert torch.equal(info["index_generation"], mine.writer.generations_of(info["index"]))
        keys = {*right.sample().keys()} - {"index"}  # ours comes where the buffer says so
        assert {*batch.keys()} - {"index"} == keys
        for made in (mine, right):
            made.empty()
            made.extend(numbered(3))


def test_steps_of_several_environments_are_counted_once() -> None:
    told = []
    for library in (ours, theirs):
        writer = library.RoundRobinWriter(track_generations=True)
        buffer = library.TensorDictReplayBuffer(
            storage=library.LazyTensorStorage(8, ndim=2), writer=writer, batch_size=99
        )
        grid = TensorDict({"a": torch.arange(6).view(2, 3)}, [2, 3])
        index = buffer.extend(grid)
        buffer.extend(grid)
        assert torch.equal(buffer.sample()["index_generation"].unique(), torch.tensor([0, 1]))
        steps = tuple(index.unbind(-1))
        told.append((writer.generations_of(index), writer.generations_of(steps)))
    for mine, right in zip(*told, strict=True):
        assert mine.tolist() == right.tolist() == [1, 1, 1, 1, 0, 0]


def test_two_buffers_of_one_storage_see_what_the_other_writes() -> None:
    storage, writer = LazyTensorStorage(4), RoundRobinWriter(track_generations=True)
    first = TensorDictReplayBuffer(storage=storage, writer=writer, batch_size=2)
    index = first.extend(numbered(4))
    copied = copy.deepcopy(first)
    TensorDictReplayBuffer(storage=storage).extend(numbered(3))
    assert writer.generations_of(index).tolist() == [1, 1, 1, 0]
    copied.extend(numbered(4))
    assert copied.writer.generations_of(index).tolist() == [1, 1, 1, 1]
    assert writer.generations_of(index).tolist() == [1, 1, 1, 0]


def tracked() -> TensorDictReplayBuffer:
    writer = RoundRobinWriter(track_generations=True)
    return TensorDictReplayBuffer(storage=LazyTensorStorage(4), writer=writer, batch_size=2)


def test_counts_continue_from_a_state_and_a_dump(tmp_path: Path) -> None:
    first, by_state, by_dump = tracked(), tracked(), tracked()
    first.extend(numbered(6))
    first.dumps(tmp_path / "dump")
    by_state.load_state_dict(first.state_dict())
    by_dump.loads(tmp_path / "dump")
    for buffer in (by_state, by_dump):
        buffer.extend(numbered(1))
        assert buffer.writer.generations_of(torch.arange(5)).tolist() == [1, 1, 1, 0, -1]


# Schedulers of a sampler's numbers, against TorchRL's on its own sampler.


SCHEDULES: list[tuple[str, dict[str, Any]]] = [
    ("LinearScheduler", {"final_value": 1.0, "num_steps": 7}),
    ("LinearScheduler", {"final_value": 0.1, "num_steps": 1}),
    ("StepScheduler", {}),
    ("StepScheduler", {"gamma": 0.1, "n_steps": 3, "mode": "additive", "max_value": 0.9}),
    ("StepScheduler", {"gamma": 0.5, "n_steps": 2, "min_value": 0.2}),
]


def betas(library: Any, kind: Any, arguments: dict[str, Any], of_buffer: bool) -> list[float]:
    sampler = library.PrioritizedSampler(10, 0.7, 0.4)
    buffer = library.ReplayBuffer(storage=library.ListStorage(10), sampler=sampler)
    scheduler = kind(buffer if of_buffer else sampler, "beta", **arguments)
    found = []
    for _ in range(12):
        scheduler.step()
        found.append(float(sampler.beta))
    return found


@pytest.mark.usefixtures("trees")
@pytest.mark.parametrize("of_buffer", [True, False])
@pytest.mark.parametrize(("name", "arguments"), SCHEDULES)
def test_a_number_takes_the_values_that_torchrl_gives_it(
    name: str, arguments: dict[str, Any], of_buffer: bool
) -> None:
    expected = betas(theirs, getattr(their_schedulers, name), arguments, of_buffer)
    found = betas(ours, getattr(ours, name), arguments, of_buffer)
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("name", "arguments"), SCHEDULES)
def test_a_schedule_continues_from_its_state(name: str, arguments: dict[str, Any]) -> None:
    whole, first, second = (PrioritizedSampler(10, 0.7, 0.4) for _ in range(3))
    kind = getattr(ours, name)
    expected, begun = kind(whole, "beta", **arguments), kind(first, "beta", **arguments)
    for _ in range(3):
        expected.step()
        begun.step()
    second.beta = 0.8  # differs from the initial value of the schedule
    continued = kind(second, "beta", **arguments)
    continued.load_state_dict(begun.state_dict())
    for _ in range(5):
        expected.step()
        continued.step()
        assert second.beta == whole.beta


def test_arguments_and_states_that_do_not_fit_are_rejected() -> None:
    sampler = PrioritizedSampler(10, 0.7, 0.4)
    wrong: dict[tuple[str, Any], Any] = {
        ("param_name", "beta"): lambda: LinearScheduler(ours.RandomSampler(), "beta", 1.0, 3),
        ("param_name", "reduction"): lambda: StepScheduler(sampler, "reduction"),
        ("num_steps", 0): lambda: LinearScheduler(sampler, "beta", 1.0, 0),
        ("n_steps", 0): lambda: StepScheduler(sampler, "beta", n_steps=0),
        ("mode", "linear"): lambda: StepScheduler(sampler, "beta", mode="linear"),
    }
    for expected, schedule in wrong.items():
        with pytest.raises(UsageError) as caught:
            schedule()
        assert (caught.value.argument, caught.value.found) == expected
    with refused(WrongState, found=["num_steps_done"]):
        StepScheduler(sampler, "beta").load_state_dict({"num_steps_done": 1})
