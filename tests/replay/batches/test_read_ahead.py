"""Reading ahead: the same batches as one by one, and nobody sees that they were drawn before."""

from __future__ import annotations

import pickle
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

from datasets_cli import (
    BlockShuffleSampler,
    DistributedSampler,
    RandomSampler,
    SamplerWithoutReplacement,
    SliceSampler,
    TensorDictReplayBuffer,
    open_storage,
)
from datasets_cli.replay.samplers.protocol import Sampler
from datasets_cli.store.layouts.compact_writer import CompactWriter
from datasets_cli.store.layouts.ted_writer import TedWriter
from tests.store.test_compact import transitions, write

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
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("compact") / "rows"
    write(CompactWriter, found, transitions(LENGTHS, 0))
    return found


def buffer(folder: Path, sampler: str, **arguments: Any) -> TensorDictReplayBuffer:
    arguments = {"batch_size": 16, **arguments}
    if not arguments.keys() & {"seed", "generator"}:
        arguments["seed"] = 3
    return TensorDictReplayBuffer(
        storage=open_storage(folder), sampler=SAMPLERS[sampler](), **arguments
    )


def one_by_one(folder: Path, sampler: str) -> TensorDictReplayBuffer:
    """A buffer that cannot read ahead: the generator may be drawn from by others, too."""
    found = buffer(folder, sampler, generator=torch.Generator().manual_seed(3))
    found.reader._ahead = None
    return found


def reads_ahead(replay: TensorDictReplayBuffer) -> bool:
    ahead = replay.reader._ahead
    return ahead is not None and ahead._block is not None


@each_sampler
def test_the_batches_are_those_of_one_by_one(either: Path, sampler: str) -> None:
    plain, ahead = one_by_one(either, sampler), buffer(either, sampler)
    for _ in range(40):
        right, found = plain.sample(), ahead.sample()
        assert set(found.keys(True, True)) == set(right.keys(True, True))
        assert bool((found == right).all())
        assert ahead.ran_out == plain.ran_out


def test_rows_are_the_next_numbers_of_the_generator(folder: Path) -> None:
    replay, generator = buffer(folder, "uniform"), torch.Generator().manual_seed(3)
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
def test_whatever_is_done_in_between(either: Path, sampler: str, steps: list[str]) -> None:
    both = [one_by_one(either, sampler), buffer(either, sampler)]
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


@pytest.mark.parametrize("sampler", ["uniform", "slices", "without replacement"])
def test_a_batch_is_pickled_without_the_others(either: Path, sampler: str) -> None:
    replay = buffer(either, sampler, batch_size=4)
    alone, _, _, among_others = (replay.sample() for _ in range(4))
    assert reads_ahead(replay)
    assert len(pickle.dumps(among_others)) <= len(pickle.dumps(alone)) + 100
    for key, leaf in among_others.items(True, True):
        assert leaf.untyped_storage().nbytes() == alone[key].untyped_storage().nbytes()


def test_changing_a_batch_changes_no_other(either: Path) -> None:
    plain, ahead = one_by_one(either, "uniform"), buffer(either, "uniform")
    for _ in range(20):
        right, found = plain.sample(), ahead.sample()
        assert bool((right == found).all())
        for leaf in found.values(True, True):
            leaf.zero_()


def test_a_generator_that_others_have_is_not_drawn_from_ahead(folder: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    replay = buffer(folder, "uniform", generator=generator)
    expected = torch.Generator().manual_seed(0)
    for _ in range(5):
        replay.sample()
        torch.randint(9, (16,), generator=expected)
        assert torch.equal(generator.get_state(), expected.get_state())


def test_a_generator_that_was_asked_for_is_not_drawn_from_ahead(folder: Path) -> None:
    replay = buffer(folder, "uniform")
    for _ in range(3):
        replay.sample()
    generator = replay.generator
    generator.manual_seed(9)
    expected = torch.randint(57, (16,), generator=torch.Generator().manual_seed(9))
    assert torch.equal(replay.sample()["index"], expected)
    assert not reads_ahead(replay)


def unseeded(folder: Path) -> TensorDictReplayBuffer:
    return TensorDictReplayBuffer(storage=open_storage(folder), batch_size=16)


def test_torch_seeds_a_buffer_at_its_first_draw_and_not_later(folder: Path) -> None:
    batches = []
    for later in (1, 2):
        torch.manual_seed(0)
        replay = unseeded(folder)
        first = replay.sample()["index"]
        torch.manual_seed(later)
        batches.append(torch.stack([first, *(replay.sample()["index"] for _ in range(9))]))
    assert torch.equal(*batches)


def test_sampling_a_dataset_takes_one_number_from_torch(folder: Path) -> None:
    torch.manual_seed(0)
    replay = unseeded(folder)
    for _ in range(10):
        replay.sample()
    found = torch.rand(3)
    torch.manual_seed(0)
    torch.randint(2**62, ())
    assert torch.equal(found, torch.rand(3))


def test_a_copy_of_an_unseeded_buffer_draws_other_batches(folder: Path) -> None:
    replay = unseeded(folder)
    replay.sample()
    copy = pickle.loads(pickle.dumps(replay))
    drawn = (torch.cat([each.sample()["index"] for _ in range(4)]) for each in (replay, copy))
    assert not torch.equal(*drawn)


class Fixed(RandomSampler):
    """Overrides ``sample`` alone."""

    def sample(self, storage: Any, batch_size: int, generator: Any) -> Any:
        return torch.arange(batch_size), {}


def test_a_class_that_overrides_sample_alone_is_asked_for_each_batch(folder: Path) -> None:
    replay = buffer(folder, "uniform")
    replay.set_sampler(Fixed())
    for _ in range(5):
        assert replay.sample()["index"].tolist() == list(range(16))


def test_the_keys_of_marks_can_be_changed_at_any_time(folder: Path) -> None:
    replay = buffer(folder, "slices")
    for _ in range(4):
        replay.sample()
    sampler: Any = replay.sampler
    sampler.truncated_key = ("next", "cut")
    assert ("next", "cut") in replay.sample().keys(True)


def test_an_epoch_that_is_set_back_is_drawn_once_more(folder: Path) -> None:
    replay = buffer(folder, "without replacement", batch_size=4)
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
def test_threads_together_draw_each_row_of_an_epoch_once(folder: Path, sampler: Any) -> None:
    replay = TensorDictReplayBuffer(storage=open_storage(folder), sampler=sampler(), batch_size=1)

    def draw(count: int) -> list[int]:
        replay.state_dict()  # a checkpoint of another thread is in nobody's way
        return [int(replay.sample()["index"]) for _ in range(count)]

    with ThreadPoolExecutor(3) as threads:
        found = [row for rows in threads.map(draw, [19] * 3) for row in rows]
    assert sorted(found) == [*range(57)]


def test_an_interrupted_read_loses_no_batch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replay, plain = buffer(folder, "uniform"), one_by_one(folder, "uniform")
    replay.sample(), plain.sample()

    def interrupted(index: torch.Tensor) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(replay.storage, "read", interrupted)
        with pytest.raises(KeyboardInterrupt):
            replay.sample()
    assert torch.equal(replay.sample()["index"], plain.sample()["index"])


def test_a_forked_process_continues_with_the_next_batch(folder: Path) -> None:
    replay, plain = buffer(folder, "uniform"), one_by_one(folder, "uniform")
    for _ in range(4):
        replay.sample(), plain.sample()
    assert reads_ahead(replay)
    replay.reader.after_fork()
    assert torch.equal(replay.sample()["index"], plain.sample()["index"])


def test_blocks_are_at_most_a_megabyte(either: Path) -> None:
    replay = buffer(either, "uniform", batch_size=1024)
    sizes = []
    for _ in range(40):
        replay.sample()
        block = replay.reader._ahead and replay.reader._ahead._block
        sizes.append(len(block.index) if block else 0)
    assert 0 < np.max(sizes) * replay.storage.row_bytes <= 1 << 20
