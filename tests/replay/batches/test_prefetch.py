"""Batches made ahead, in threads and in blocks: the same batches in the same order."""

from __future__ import annotations

import copy
import pickle
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict

from datasets_cli import (
    BlockShuffleSampler,
    DistributedSampler,
    LazyTensorStorage,
    PrioritizedSampler,
    RandomSampler,
    SamplerWithoutReplacement,
    SliceSampler,
    TensorDictReplayBuffer,
    open_storage,
)
from datasets_cli.errors import UsageError
from datasets_cli.replay.samplers.protocol import Sampler
from datasets_cli.schema.mapping import DeviceOptions, choose_device_options
from datasets_cli.store.layouts.compact_writer import CompactWriter
from datasets_cli.store.layouts.ted_writer import TedWriter
from tests.store.test_compact import pixel_rows, transitions, write
from tests.support.refusals import refused


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(CompactWriter, tmp_path / "rows", pixel_rows([20, 30]))
    return tmp_path / "rows"


def buffer(folder: Path, prefetch: int | None, **arguments: Any) -> TensorDictReplayBuffer:
    return TensorDictReplayBuffer(
        storage=open_storage(folder),
        sampler=SamplerWithoutReplacement(),
        batch_size=8,
        seed=0,
        prefetch=prefetch,
        **arguments,
    )


def indexes(batches: Any) -> list[list[int]]:
    return [batch["index"].tolist() for batch in batches]


@pytest.mark.parametrize("kind", [RandomSampler, SamplerWithoutReplacement, SliceSampler])
@pytest.mark.parametrize(
    ("rows", "transform"),
    [(pixel_rows([20, 30]), None), (transitions([20, 30], 0), lambda batch: batch)],
    ids=["frames", "numbers"],
)
def test_batches_and_states_are_the_same_wherever_each_is_made(
    kind: Any, rows: Any, transform: Any, tmp_path: Path
) -> None:
    write(CompactWriter, tmp_path / "rows", rows)
    storage = open_storage(tmp_path / "rows")
    common = {"storage": storage, "batch_size": 8, "seed": 1, "transform": transform}
    arguments = {"num_slices": 2} if kind is SliceSampler else {}
    plain, ahead = (
        TensorDictReplayBuffer(**common, sampler=kind(**arguments), prefetch=prefetch)
        for prefetch in (None, 3)
    )
    for number in range(40):
        assert indexes([ahead.sample()]) == indexes([plain.sample()])
        if number % 9 == 0:  # what is under way is given back
            right, seen = (buffer.state_dict()["generator"] for buffer in (plain, ahead))
            assert torch.equal(right, seen)
            ahead.reader.rewind()


def test_rows_that_are_only_gathered_are_gathered_in_place(folder: Path) -> None:
    buffer = TensorDictReplayBuffer(storage=open_storage(folder), batch_size=4, prefetch=2, seed=0)
    buffer.sample()
    assert buffer.reader.num_ahead == 0
    buffer.append_transform(lambda batch: batch)
    buffer.sample()
    assert buffer.reader.num_ahead == 2


def test_rows_that_change_are_drawn_as_early_as_prefetch_says() -> None:
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(9), batch_size=3, prefetch=1)
    buffer.extend(TensorDict({"number": torch.arange(9)}, [9]))
    buffer.sample()
    assert buffer.reader.num_ahead == 1


def test_transforms_run_in_one_other_thread(folder: Path) -> None:
    seen: list[int] = []

    def note(batch: TensorDict) -> TensorDict:
        seen.append(threading.get_ident())
        return batch

    for _ in buffer(folder, 4, transform=note):
        pass
    assert len(set(seen)) == 1 and threading.get_ident() not in seen


def test_a_state_is_that_of_the_next_batch_and_not_of_those_under_way(folder: Path) -> None:
    first = buffer(folder, 3)
    for _ in range(2):
        first.sample()
    state = pickle.loads(pickle.dumps(first.state_dict()))
    rest = indexes(first)
    other = buffer(folder, 2)
    other.sample()
    other.load_state_dict(state)
    assert indexes(other) == rest


def test_a_new_transform_acts_on_the_very_next_batch_and_loses_none(folder: Path) -> None:
    ahead, plain = buffer(folder, 3), buffer(folder, None)
    seen = indexes([ahead.sample(), ahead.sample()])
    ahead.append_transform(lambda batch: batch.set("mark", batch["index"]))
    for batch in ahead:
        assert "mark" in batch
        seen += indexes([batch])
    assert seen == indexes(plain)


def test_writing_rows_keeps_the_priorities_of_the_others() -> None:
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(100),
        sampler=PrioritizedSampler(100, 1.0, 1.0),
        batch_size=4,
        prefetch=2,
    )
    buffer.extend(TensorDict({"number": torch.arange(10)}, [10]))
    buffer.sample()
    buffer.update_priority(torch.arange(10), 5.0)
    buffer.extend(TensorDict({"number": torch.arange(3)}, [3]))
    priorities = buffer.state_dict()["sampler"]["priorities"]
    assert priorities.tolist() == [5.0] * 13


def test_a_transform_that_fails_fails_where_its_batch_is_taken(folder: Path) -> None:
    def fail(batch: TensorDict) -> TensorDict:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        buffer(folder, 2, transform=fail).sample()


def test_another_batch_size_loses_nothing_of_what_is_under_way(folder: Path) -> None:
    plain, ahead = buffer(folder, None), buffer(folder, 2)
    for size in (8, 3, 8, 5, 5, 8):
        assert ahead.sample(size)["index"].tolist() == plain.sample(size)["index"].tolist()
    ahead.batch_size = plain.batch_size = 4
    assert indexes(ahead) == indexes(plain)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_a_copy_goes_on_where_the_epoch_is_and_not_where_it_is_drawn(
    folder: Path, copied: Any
) -> None:
    ahead, plain = buffer(folder, 3), buffer(folder, None)
    ahead.sample(), plain.sample()
    assert indexes(copied(ahead)) == indexes(ahead) == indexes(plain)


def test_a_batch_whose_rows_are_written_over_before_it_is_made_is_drawn_again() -> None:
    busy, go_on = threading.Event(), threading.Event()

    def wait(batch: TensorDict) -> TensorDict:
        calls.append(batch)
        if len(calls) == 2:
            busy.set()
            assert go_on.wait(20)
        return batch

    def read_the_rest() -> None:
        for batch in buffer:
            seen.extend(batch["index"].tolist())

    rows = TensorDict({"number": torch.arange(9)}, [9])
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(9), sampler=SamplerWithoutReplacement(), batch_size=3, prefetch=1
    )
    calls: list[TensorDict] = []
    buffer.extend(rows)
    buffer.append_transform(wait)
    seen = buffer.sample()["index"].tolist()
    assert busy.wait(20)
    buffer.extend(rows)  # gives back the second batch, which still keeps the thread busy
    reader = threading.Thread(target=read_the_rest)
    reader.start()
    while buffer.reader._prefetch.oldest is None:  # type: ignore[union-attr]
        time.sleep(0.001)
    buffer.extend(rows)
    go_on.set()
    reader.join()
    assert sorted(seen) == list(range(9))


def test_a_batch_of_unknown_size_cannot_be_prefetched(folder: Path) -> None:
    with refused(UsageError, argument="prefetch", found=2):
        TensorDictReplayBuffer(storage=open_storage(folder), prefetch=2)


def test_page_locking_without_an_accelerator_warns_and_does_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    with pytest.warns(UserWarning, match="pin_memory=True has no effect"):
        assert choose_device_options(None, True, False) == DeviceOptions()


@pytest.mark.parametrize("kind", [TedWriter, CompactWriter])
def test_a_page_locked_batch_is_locked_once_a_field_or_once_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    locked: list[torch.Size] = []

    def lock(tensor: torch.Tensor) -> torch.Tensor:
        locked.append(tensor.shape)
        return tensor.clone()

    monkeypatch.setattr(torch.Tensor, "pin_memory", lock)
    dataset = write(kind, tmp_path / "rows", pixel_rows([20, 30]))
    plain = open_storage(tmp_path / "rows").get(torch.arange(9))
    batch = open_storage(tmp_path / "rows", pin_memory=True).get(torch.arange(9))
    assert bool((batch == plain).all())
    if kind is TedWriter:
        assert len(locked) == len(dataset.keys)
    else:
        assert locked.count(torch.Size((9, 2 * dataset.manifest.record["record_bytes"]))) == 1
        assert len(locked) < len(dataset.keys)


# Reading ahead: the same batches as one by one, and nobody sees that they were drawn before.


LENGTHS = [20, 30, 7]
SAMPLERS: dict[str, Callable[[], Sampler]] = {
    "uniform": RandomSampler,
    "without replacement": SamplerWithoutReplacement,
    "drop last": lambda: SamplerWithoutReplacement(drop_last=True),
    "shared": lambda: DistributedSampler(2, 1),
    "shared, drop last": lambda: DistributedSampler(3, 0, drop_last=True),
    "blocks": lambda: BlockShuffleSampler(4, 2),
    "slices": lambda: SliceSampler(num_slices=2),
    "padded slices": lambda: SliceSampler(slice_len=4, strict_length=False, pad_output=True),
    "short slices": lambda: SliceSampler(slice_len=16, strict_length=False),
}
each_sampler = pytest.mark.parametrize("sampler", SAMPLERS)


@pytest.fixture(scope="module", params=[CompactWriter, TedWriter])
def either(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows, in each layout."""
    found = tmp_path_factory.mktemp("rows") / "rows"
    write(request.param, found, transitions(LENGTHS, 0))
    return found


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("compact") / "rows"
    write(CompactWriter, found, transitions(LENGTHS, 0))
    return found


def reading_ahead(vectors: Path, sampler: str, **arguments: Any) -> TensorDictReplayBuffer:
    arguments = {"batch_size": 16, **arguments}
    if not arguments.keys() & {"seed", "generator"}:
        arguments["seed"] = 3
    return TensorDictReplayBuffer(
        storage=open_storage(vectors), sampler=SAMPLERS[sampler](), **arguments
    )


def one_by_one(vectors: Path, sampler: str) -> TensorDictReplayBuffer:
    """A buffer that cannot read ahead: the generator may be drawn from by others, too."""
    found = reading_ahead(vectors, sampler, generator=torch.Generator().manual_seed(3))
    found.reader._ahead = None
    return found


def reads_ahead(replay: TensorDictReplayBuffer) -> bool:
    ahead = replay.reader._ahead
    return ahead is not None and ahead._block is not None


@each_sampler
def test_the_batches_are_those_of_one_by_one(either: Path, sampler: str) -> None:
    plain, ahead = one_by_one(either, sampler), reading_ahead(either, sampler)
    for _ in range(40):
        right, found = plain.sample(), ahead.sample()
        assert set(found.keys(True, True)) == set(right.keys(True, True))
        assert bool((found == right).all())
        assert ahead.ran_out == plain.ran_out


def test_rows_are_the_next_numbers_of_the_generator(vectors: Path) -> None:
    replay, generator = reading_ahead(vectors, "uniform"), torch.Generator().manual_seed(3)
    for _ in range(100):
        right = torch.randint(sum(LENGTHS), (16,), generator=generator)
        assert torch.equal(replay.sample()["index"], right)


STEPS = st.lists(
    st.sampled_from(["sample"] * 6 + ["other size", "state", "restore", "pickle", "look", "rng"]),
    max_size=25,
)


@each_sampler
@settings(max_examples=5)
@given(steps=STEPS)
def test_whatever_is_done_in_between(vectors: Path, sampler: str, steps: list[str]) -> None:
    both = [one_by_one(vectors, sampler), reading_ahead(vectors, sampler)]
    states = [replay.state_dict() for replay in both]
    for step in ["sample", "sample", "sample", *steps, "sample"]:
        if step == "state":
            states = [replay.state_dict() for replay in both]
            assert torch.equal(states[0]["generator"], states[1]["generator"])
            assert str(states[0]["sampler"]) == str(states[1]["sampler"])
        elif step == "restore":
            for replay, state in zip(both, states, strict=True):
                replay.load_state_dict(state)
        elif step == "pickle":
            both[1] = pickle.loads(pickle.dumps(both[1]))
        elif step == "look":
            assert torch.equal(both[0].generator.get_state(), both[1].generator.get_state())
        elif step == "rng":
            for replay in both:
                replay.set_rng(torch.Generator().manual_seed(5))
        else:
            right, found = (replay.sample(32 if step == "other size" else None) for replay in both)
            assert bool((right == found).all())


@pytest.mark.parametrize("sampler", ["uniform", "slices"])
def test_a_batch_is_pickled_without_the_others(either: Path, sampler: str) -> None:
    replay = reading_ahead(either, sampler, batch_size=4)
    alone, _, _, among_others = (replay.sample() for _ in range(4))
    assert reads_ahead(replay)
    assert len(pickle.dumps(among_others)) <= len(pickle.dumps(alone)) + 100
    for key, leaf in among_others.items(True, True):
        assert leaf.untyped_storage().nbytes() == alone[key].untyped_storage().nbytes()


def test_changing_a_batch_changes_no_other(either: Path) -> None:
    plain, ahead = one_by_one(either, "uniform"), reading_ahead(either, "uniform")
    for _ in range(20):
        right, found = plain.sample(), ahead.sample()
        assert bool((right == found).all())
        for leaf in found.values(True, True):
            leaf.zero_()


def test_a_generator_that_others_have_is_not_drawn_from_ahead(vectors: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    replay = reading_ahead(vectors, "uniform", generator=generator)
    expected = torch.Generator().manual_seed(0)
    for _ in range(5):
        replay.sample()
        torch.randint(9, (16,), generator=expected)
        assert torch.equal(generator.get_state(), expected.get_state())


def test_a_generator_that_was_asked_for_is_not_drawn_from_ahead(vectors: Path) -> None:
    replay = reading_ahead(vectors, "uniform")
    for _ in range(3):
        replay.sample()
    generator = replay.generator
    generator.manual_seed(9)
    expected = torch.randint(57, (16,), generator=torch.Generator().manual_seed(9))
    assert torch.equal(replay.sample()["index"], expected)
    assert not reads_ahead(replay)


def unseeded(vectors: Path) -> TensorDictReplayBuffer:
    return TensorDictReplayBuffer(storage=open_storage(vectors), batch_size=16)


def test_torch_seeds_a_buffer_at_its_first_draw_and_not_later(vectors: Path) -> None:
    batches = []
    for later in (1, 2):
        torch.manual_seed(0)
        replay = unseeded(vectors)
        first = replay.sample()["index"]
        torch.manual_seed(later)
        batches.append(torch.stack([first, *(replay.sample()["index"] for _ in range(9))]))
    assert torch.equal(*batches)


def test_sampling_a_dataset_takes_one_number_from_torch(vectors: Path) -> None:
    torch.manual_seed(0)
    replay = unseeded(vectors)
    for _ in range(10):
        replay.sample()
    found = torch.rand(3)
    torch.manual_seed(0)
    torch.randint(2**62, ())
    assert torch.equal(found, torch.rand(3))


def test_a_copy_of_an_unseeded_buffer_draws_other_batches(vectors: Path) -> None:
    replay = unseeded(vectors)
    replay.sample()
    copy = pickle.loads(pickle.dumps(replay))
    drawn = (torch.cat([each.sample()["index"] for _ in range(4)]) for each in (replay, copy))
    assert not torch.equal(*drawn)


class Fixed(RandomSampler):
    """Overrides ``sample`` alone."""

    def sample(self, storage: Any, batch_size: int, generator: Any) -> Any:
        return torch.arange(batch_size), {}


def test_a_class_that_overrides_sample_alone_is_asked_for_each_batch(vectors: Path) -> None:
    replay = reading_ahead(vectors, "uniform")
    replay.set_sampler(Fixed())
    for _ in range(5):
        assert replay.sample()["index"].tolist() == list(range(16))


def test_the_keys_of_marks_can_be_changed_at_any_time(vectors: Path) -> None:
    replay = reading_ahead(vectors, "slices")
    for _ in range(4):
        replay.sample()
    sampler: Any = replay.sampler
    sampler.truncated_key = ("next", "cut")
    assert ("next", "cut") in replay.sample().keys(True)


def test_an_epoch_that_is_set_back_is_drawn_once_more(vectors: Path) -> None:
    replay = reading_ahead(vectors, "without replacement", batch_size=4)
    replay.sample()
    before = replay.sampler.state_dict()
    first = [replay.sample()["index"].tolist() for _ in range(5)]
    assert reads_ahead(replay)
    replay.sampler.load_state_dict(before)  # of the sampler itself, which no buffer learns of
    assert [replay.sample()["index"].tolist() for _ in range(5)] == first


class SlowEpoch(SamplerWithoutReplacement):
    """Lets other threads run while it draws; none of its draws are read ahead."""

    def sample(self, storage: Any, batch_size: int, generator: torch.Generator) -> Any:
        position = self.state_dict()["position"]
        time.sleep(0.001)
        assert position == self.state_dict()["position"], "another thread drew in between"
        return super().sample(storage, batch_size, generator)

    def ahead(self, *_: Any) -> None:
        return None


@pytest.mark.parametrize("sampler", [SamplerWithoutReplacement, SlowEpoch])
def test_threads_together_draw_each_row_of_an_epoch_once(vectors: Path, sampler: Any) -> None:
    replay = TensorDictReplayBuffer(storage=open_storage(vectors), sampler=sampler(), batch_size=1)

    def draw(count: int) -> list[int]:
        replay.state_dict()  # a checkpoint of another thread is in nobody's way
        return [int(replay.sample()["index"]) for _ in range(count)]

    with ThreadPoolExecutor(3) as threads:
        found = [row for rows in threads.map(draw, [19] * 3) for row in rows]
    assert sorted(found) == [*range(57)]


def test_an_interrupted_read_loses_no_batch(vectors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replay, plain = reading_ahead(vectors, "uniform"), one_by_one(vectors, "uniform")
    replay.sample(), plain.sample()

    def interrupted(index: torch.Tensor) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(replay.storage, "read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            replay.sample()
    assert torch.equal(replay.sample()["index"], plain.sample()["index"])


def test_a_forked_process_continues_with_the_next_batch(vectors: Path) -> None:
    replay, plain = reading_ahead(vectors, "uniform"), one_by_one(vectors, "uniform")
    for _ in range(4):
        replay.sample(), plain.sample()
    assert reads_ahead(replay)
    replay.reader.after_fork()
    assert torch.equal(replay.sample()["index"], plain.sample()["index"])


def test_blocks_are_at_most_a_megabyte(either: Path) -> None:
    replay = reading_ahead(either, "uniform", batch_size=1024)
    sizes = []
    for _ in range(40):
        replay.sample()
        block = replay.reader._ahead and replay.reader._ahead._block
        sizes.append(len(block.index) if block else 0)
    assert 0 < np.max(sizes) * replay.storage.row_bytes <= 1 << 20
