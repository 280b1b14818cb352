"""Buffers as a whole: storage, sampler, writer, transforms and threads together."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torch.utils.data import DataLoader

from datasets_cli import (
    Compose,
    DistributedSampler,
    DoubleToFloat,
    ExperienceReplay,
    LazyTensorStorage,
    ListStorage,
    OfflineToOnline,
    PrioritizedSampler,
    PrioritizedSliceSampler,
    ReplayBuffer,
    RoundRobinWriter,
    SamplerWithoutReplacement,
    SliceSampler,
    SliceSamplerWithoutReplacement,
    TensorDictReplayBuffer,
)
from datasets_cli.errors import (
    ImmutableError,
    OutOfRange,
    UnknownKey,
    WrongRows,
)
from datasets_cli.replay import MultiStepTransform
from datasets_cli.replay.loaders import whole_batch
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


# Rows as users of numpy have them: nested dicts of arrays, written and loaded.


ARRAYS: dict[str, Any] = {
    "observation": np.arange(12, dtype=np.float32).reshape(6, 2)[::-1],
    "count": np.arange(6, dtype=">i4"),
    "word": np.array(list("abcdef")),
    "next": {"reward": np.ones((6, 1)), "done": np.zeros((6, 1), bool)},
}


def lazy() -> LazyTensorStorage:
    return LazyTensorStorage(20)


def assert_rows(rows: TensorDict, times: int = 1) -> None:
    for key in ("observation", "count", ("next", "reward"), ("next", "done")):
        array = ARRAYS[key] if isinstance(key, str) else ARRAYS[key[0]][key[1]]
        assert np.array_equal(rows[key].numpy(), np.concatenate([array] * times)), key
    assert rows["word"] == list("abcdef") * times and rows["count"].dtype == torch.int32


@pytest.mark.parametrize(
    "buffer",
    [
        ReplayBuffer,
        lambda: ReplayBuffer(storage=lazy()),
        lambda: TensorDictReplayBuffer(storage=ListStorage(20)),
        lambda: TensorDictReplayBuffer(storage=lazy()),
        lambda: TensorDictPrioritizedReplayBuffer(alpha=0.7, beta=0.5, storage=lazy()),
    ],
)
def test_every_buffer_takes_dicts_of_arrays(buffer: Any) -> None:
    rb = buffer()
    assert rb.extend(ARRAYS).tolist() == [0, 1, 2, 3, 4, 5]
    for row in range(6):
        nested = {name: array[row] for name, array in ARRAYS["next"].items()}
        one = {name: array[row] for name, array in ARRAYS.items() if name != "next"}
        assert rb.add({**one, "next": nested}) == 6 + row
    assert_rows(rb[:], 2)


def test_a_list_keeps_no_array_of_the_users() -> None:
    rb, array = ReplayBuffer(), np.zeros((2, 3))
    rb.extend({"a": array})
    rb.add({"a": array[0]})
    array[:] = 9
    assert not rb[:]["a"].any()
    items = ReplayBuffer(collate_fn=len)
    items.add({"a": array})
    assert items.sample(4) == 4  # a user's function has the user's items


def test_steps_of_several_environments_and_online_rows_are_dicts_too(door: str) -> None:
    grid = TensorDictReplayBuffer(storage=LazyTensorStorage(20, ndim=2))
    grid.extend({"a": np.arange(6).reshape(2, 3)})
    grid.add({"a": np.array([7, 8])})
    assert grid[:]["a"].tolist() == [[0, 1, 2, 7], [3, 4, 5, 8]]
    replay = ExperienceReplay(door, batch_size=4)
    both = OfflineToOnline(replay, TensorDictReplayBuffer(storage=lazy()), batch_size=4)
    both.extend(replay.with_format("numpy")[:5])
    assert torch.equal(both.online[:]["action"], replay[:5]["action"])


def test_a_buffer_is_made_of_arrays() -> None:
    rb = TensorDictReplayBuffer.from_arrays(ARRAYS, batch_size=4)
    assert len(rb) == 6 and rb.sample().batch_size == (4,)
    assert_rows(rb[:])
    other = TensorDictReplayBuffer.from_arrays({"a": torch.arange(3)}, storage=lazy())
    assert (len(other), other.storage.max_size) == (3, 20)
    for wrong in ({}, [1], {"a": 5}):
        with refused(WrongRows, argument="arrays"):
            TensorDictReplayBuffer.from_arrays(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arrays", "attributes"),
    [
        ({"a": np.zeros(3), "b": np.zeros(4)}, {"found": [(3,), (4,)]}),
        ({"a": np.array([object()])}, {"key": ("a",), "found": "object"}),
        ({"a": "text"}, {"argument": "data", "found": "dict"}),
    ],
)
def test_arrays_that_are_not_rows_are_rejected(arrays: Any, attributes: dict[str, Any]) -> None:
    with refused(WrongRows, **attributes):
        TensorDictReplayBuffer(storage=lazy()).extend(arrays)


def test_torchs_own_loader_gives_whole_batches(door: str) -> None:
    replay = ExperienceReplay(door)
    for workers in (0, 1):
        loader: Any = DataLoader(replay, batch_size=64, num_workers=workers)  # type: ignore[arg-type]
        batch = next(iter(loader))
        assert torch.equal(batch["next", "observation"], replay[:64]["next", "observation"])
    arrays: Any = replay.with_format("numpy")
    with pytest.raises(UnknownKey) as caught:
        next(iter(DataLoader(arrays, batch_size=4)))
    assert "collate_fn=datasets_cli.replay.loaders.whole_batch" in (caught.value.advice or "")
    batch = next(iter(DataLoader(arrays, batch_size=4, collate_fn=whole_batch)))
    single: Any = DataLoader(replay, batch_size=None, collate_fn=whole_batch)  # type: ignore[arg-type]
    assert torch.equal(next(iter(single))["action"], replay[0]["action"])
    assert np.array_equal(batch["action"], replay[:4]["action"].numpy())
