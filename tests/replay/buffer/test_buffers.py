"""Buffers as a whole: storage, sampler, writer, transforms and threads together."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import (
    Compose,
    DistributedSampler,
    DoubleToFloat,
    ExperienceReplay,
    LazyTensorStorage,
    ListStorage,
    PrioritizedSampler,
    PrioritizedSliceSampler,
    ReplayBuffer,
    RoundRobinWriter,
    SamplerWithoutReplacement,
    SliceSampler,
    SliceSamplerWithoutReplacement,
    TensorDictReplayBuffer,
)
from datasets_cli.errors import ImmutableError, OutOfRange, UsageError, WrongRows, WrongSize
from datasets_cli.replay import MultiStepTransform
from datasets_cli.torchrl import TensorDictPrioritizedReplayBuffer
from tests.replay.storages.test_storages import steps
from tests.support.refusals import refused


def buffer(capacity: int = 20, **arguments: Any) -> TensorDictReplayBuffer:
    return TensorDictReplayBuffer(storage=LazyTensorStorage(capacity), **arguments)


def priorities(made: Any) -> list[float]:
    found: list[float] = made.state_dict()["sampler"]["priorities"].tolist()
    return found


# Threads


@pytest.mark.parametrize("prefetch", [None, 2])
def test_slices_stay_whole_while_another_thread_writes(prefetch: int | None) -> None:
    made = buffer(40, sampler=SliceSampler(slice_len=5), batch_size=20, prefetch=prefetch)
    made.extend(steps(40))
    failures: list[BaseException] = []

    def write() -> None:
        try:
            for start in range(40, 4000, 3):
                made.extend(steps(3, start))
        except BaseException as error:
            failures.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    while writer.is_alive():
        slices = made.sample()["number"].view(4, 5)
        assert bool((slices.diff() == 1).all()), slices
    writer.join()
    assert not failures


def test_nothing_is_drawn_past_an_epoch_before_its_last_batch_was_taken() -> None:
    sampler = DistributedSampler(shuffle=False)
    made = buffer(6, sampler=sampler, batch_size=2, prefetch=3)
    made.extend(steps(6))
    for epoch in range(3):
        sampler.set_epoch(epoch)
        assert [batch["index"].tolist() for batch in made] == [[0, 1], [2, 3], [4, 5]]


# What a batch is


@pytest.mark.parametrize("pad", [False, True])
def test_marks_belong_to_their_batch(pad: bool) -> None:
    made = buffer(sampler=SliceSampler(num_slices=1, pad_output=pad), batch_size=5)
    made.extend(steps(20))
    made.sample()["next", "truncated"].zero_()
    assert made.sample()["next", "truncated"].flatten().tolist() == [False] * 4 + [True]


def test_weights_of_a_slice_can_be_changed_in_place() -> None:
    sampler = PrioritizedSliceSampler(20, 1.0, 1.0, num_slices=1)
    made = buffer(sampler=sampler, batch_size=5)
    made.extend(steps(20))
    assert made.sample()["priority_weight"].mul_(2).tolist() == [2.0] * 5


def test_ends_of_slices_are_done_and_begin_anew_in_every_shape_of_flag() -> None:
    rows = steps(20)
    rows["next", "done"] = rows["next", "done"].squeeze(-1)
    rows["is_init"] = torch.zeros(20, 1, dtype=torch.bool)
    sampler = SliceSampler(num_slices=2, truncated_key=("next", "cut"))
    made = buffer(sampler=sampler, batch_size=10)
    made.extend(rows)
    batch = made.sample()
    assert batch["next", "cut"].flatten().tolist() == ([False] * 4 + [True]) * 2
    assert batch["next", "done"].shape == (10,) and batch["next", "done"].view(2, 5)[:, -1].all()
    assert batch["is_init"].flatten().tolist() == ([True] + [False] * 4) * 2


@pytest.mark.parametrize("span", [True, 2, (False, True), (1, 0)])
def test_a_slice_that_overhangs_has_at_least_one_row(span: Any) -> None:
    rows = TensorDict({"episode": torch.tensor([0, 0, 1, 1, 1, 1, 1, 1])}, [8])
    sampler = SliceSampler(slice_len=3, strict_length=False, span=span)
    made = buffer(sampler=sampler, batch_size=3, seed=0)
    made.extend(rows)
    sizes = {len(made.sample()) for _ in range(200)}
    assert sizes <= {1, 2, 3} and 3 in sizes
    with pytest.raises(WrongSize) as error:
        made.set_sampler(SliceSampler(slice_len=3, span=3))
        made.sample()
    assert error.value.argument == "span"


def test_one_row_is_a_row_whatever_rows_are() -> None:
    pairs = ReplayBuffer(storage=LazyTensorStorage(4))
    pairs.extend((torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0])))
    assert [leaf.item() for leaf in pairs[1]] == [2.0, 20.0]
    texts = ReplayBuffer(storage=ListStorage(4), collate_fn=list)
    texts.extend(["a", "b"])
    assert texts[1] == "b"


def test_a_column_is_that_of_the_rows_as_they_are_read() -> None:
    made = buffer(transform=lambda batch: batch.set("double", batch["number"] * 2))
    made.extend(steps(5))
    assert torch.equal(made["double"], made[:]["double"])
    wide = ReplayBuffer(storage=LazyTensorStorage(12, ndim=2))
    wide.extend(torch.stack([steps(3), steps(3, 50)]))
    assert torch.equal(wide["number"], wide[:]["number"])


# Priorities


def test_priorities_go_to_the_rows_they_came_with() -> None:
    made = TensorDictPrioritizedReplayBuffer(
        alpha=1.0, beta=1.0, storage=LazyTensorStorage(10, ndim=2), batch_size=4
    )
    data: Any = torch.stack([steps(3), steps(3, 100), steps(3, 200), steps(3, 300)])
    data["td_error"] = data["number"].float()
    made.extend(data)
    stored = made[:]["td_error"].transpose(0, 1).flatten()
    assert priorities(made) == stored.tolist() and len(made) == 12


def test_rows_written_one_by_one_in_lists_or_transformed_bring_priorities() -> None:
    sampler = PrioritizedSampler(20, 1.0, 1.0)
    made = buffer(sampler=sampler, transform=MultiStepTransform(1, 0.9))
    rows = steps(4).set("td_error", torch.arange(1.0, 5.0))
    rows["next", "reward"] = torch.ones(4, 1)
    made.extend(rows)  # keeps the last row back
    assert priorities(made) == [1.0, 2.0, 3.0]
    plain = buffer(sampler=PrioritizedSampler(20, 1.0, 1.0))
    plain.add(rows[3])
    plain.extend([rows[0], rows[1]])
    plain.update_priority(plain.add(rows[0]), 7.0)
    assert priorities(plain) == [4.0, 1.0, 2.0, 7.0]
    with refused(OutOfRange, row=9, expected="0 to 3"):
        plain.update_priority([9], 1.0)


def test_several_errors_of_a_row_become_one_priority() -> None:
    made = TensorDictPrioritizedReplayBuffer(
        alpha=1.0, beta=1.0, storage=LazyTensorStorage(4), batch_size=4
    )
    made.extend(TensorDict({"x": torch.zeros(3, 5)}, [3, 5]))
    batch = made.sample()
    assert batch["priority_weight"].shape == batch["index"].shape == (4, 5)
    batch["td_error"] = torch.tensor([1.0, 9.0, 1.0, 1.0, 2.0]).expand(4, 5)
    made.update_tensordict_priority(batch)
    assert {priorities(made)[row] for row in batch["index"][:, 0].tolist()} == {9.0}


def test_a_list_with_a_collate_function_has_priorities_too() -> None:
    made = TensorDictPrioritizedReplayBuffer(
        alpha=1.0, beta=1.0, storage=ListStorage(10), collate_fn=torch.stack, batch_size=3
    )
    made.extend(steps(5).set("td_error", torch.arange(5.0)))
    batch = made.sample()
    batch["td_error"] = torch.full((3,), 8.0)
    made.update_tensordict_priority(batch)
    assert {priorities(made)[row] for row in batch["index"].tolist()} == {8.0}


# Writing


@pytest.mark.parametrize(
    "sampler",
    [
        SamplerWithoutReplacement(),
        SliceSamplerWithoutReplacement(num_slices=1, strict_length=False),
    ],
)
def test_an_emptied_buffer_begins_an_epoch_anew(sampler: Any) -> None:
    made = buffer(10, sampler=sampler, batch_size=5)
    made.extend(steps(10))
    made.sample()
    made.empty()
    made.extend(steps(10, 100))
    assert sorted(torch.cat([batch["number"] for batch in made]).tolist()) == [*range(100, 110)]


@pytest.mark.parametrize("wrap", [lambda transform: transform, Compose, lambda one: [one]])
def test_rows_kept_back_by_a_transform_are_forgotten_with_the_others(wrap: Any) -> None:
    made = buffer(transform=wrap(MultiStepTransform(2, 0.9)))
    rows = steps(4).set(("next", "reward"), torch.ones(4, 1))
    made.extend(rows)
    made.empty()
    made.extend(rows)
    assert len(made) == 2


@pytest.mark.parametrize("storage", [LazyTensorStorage(20), ListStorage(20)])
def test_rows_of_a_batch_are_written_without_the_index_they_had(storage: Any) -> None:
    made = TensorDictReplayBuffer(storage=storage)
    made.extend(steps(4))
    batch = made.sample(4)
    made.extend(list(batch.unbind(0)))
    made.extend(batch)
    assert "index" not in made[:] and len(made) == 12


def test_a_batch_can_be_written_again_and_carries_no_graph() -> None:
    made = buffer(batch_size=3)
    made.extend(TensorDict({"x": torch.ones(4, requires_grad=True)}, [4]))
    assert made.extend(made.sample()).tolist() == [4, 5, 6]
    assert not made[:]["x"].requires_grad and "index" not in made[:]


def test_a_list_of_rows_is_transformed_before_it_is_stored() -> None:
    made = ReplayBuffer(storage=ListStorage(4), transform=DoubleToFloat(in_keys_inv=["x"]))
    made.extend([TensorDict({"x": torch.ones(())}, [])])
    assert len(made) == 1


def test_no_writer_writes_into_a_dataset(door: str) -> None:
    replay = ExperienceReplay(door)
    replay.set_writer(RoundRobinWriter())
    with refused(ImmutableError):
        replay.extend(replay[:3])
    with refused(ImmutableError):
        replay.empty()


@pytest.mark.parametrize(
    ("make", "argument"),
    [
        (lambda: ReplayBuffer(storage=1000), "storage"),
        (lambda: buffer(prefetch=-1, batch_size=2), "prefetch"),
        (lambda: SliceSampler(slice_len=2, span="x"), "span"),
        (
            lambda: PrioritizedSliceSampler(9, 1.0, 1.0, slice_len=2, pad_output=True),
            "pad_output",
        ),
    ],
)
def test_a_wrong_argument_is_named(make: Any, argument: str) -> None:
    with refused(UsageError, argument=argument):
        make()


def test_trajectories_must_be_of_the_rows_there_are() -> None:
    made = buffer(sampler=SliceSampler(slice_len=2, ends=torch.ones(10, dtype=torch.bool)))
    made.extend(steps(5))
    with refused(WrongRows, argument="trajectories", expected=(5, 1), found=(10, 1)):
        made.sample(2)


def test_a_buffer_shows_its_parts_as_torchrls_page_prints_them() -> None:
    def join(rows: list[Any]) -> Any:
        return rows

    made = ReplayBuffer(storage=LazyTensorStorage(10, ndim=2), batch_size=4, collate_fn=join)
    made.extend(TensorDict({"x": torch.zeros(2, 3)}, [2, 3]))
    lines = repr(made).splitlines()
    assert [line.strip().partition("=")[0] for line in lines[1:]] == [
        *("storage", "sampler", "writer", "batch_size", "transform", "collate_fn")
    ]
    assert "LazyTensorStorage(x, shape=[5, 2], device=cpu, len=6, max_size=10)" in lines[1]
    assert lines[2].strip() == "sampler=RandomSampler(),"
    assert "transform=Compose()" in lines[5] and "join" in lines[6]
