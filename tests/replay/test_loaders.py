"""Torch's loaders over buffers."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data._utils.worker import WorkerInfo
from torch.utils.data.distributed import DistributedSampler as TorchSampler

from datasets_cli import (
    BatchStream,
    DistributedSampler,
    ExperienceReplay,
    RandomSampler,
    ReplayBufferEnsemble,
    SamplerWithoutReplacement,
    SliceSampler,
)
from datasets_cli.errors import OutOfRange, UsageError, WrongSize
from datasets_cli.replay import loaders
from datasets_cli.replay.arguments import whole_number
from datasets_cli.replay.samplers import epochs
from datasets_cli.replay.samplers import rows as distributed
from tests.support.interpreters import Python
from tests.support.refusals import refused
from tests.support.trajectory_rows import TrajectoryRows

# Several processes reading one dataset: shares, streams, loaders, small pickles.


UNUSED = torch.Generator()


def epoch(sampler: DistributedSampler, num_rows: int, batch: int = 3) -> list[int]:
    rows, drawn = TrajectoryRows([num_rows]), []
    while True:
        drawn += sampler.sample(rows, batch, UNUSED)[0].tolist()
        if sampler.ran_out:
            return drawn


@settings(max_examples=25)
@given(
    num_rows=st.integers(1, 40),
    ranks=st.integers(1, 6),
    batch=st.integers(1, 9),
    drop_last=st.booleans(),
    shuffle=st.booleans(),
)
def test_ranks_share_an_epoch_as_torchs_sampler_shares_it(
    num_rows: int, ranks: int, batch: int, drop_last: bool, shuffle: bool
) -> None:
    if drop_last and num_rows < ranks:
        return  # nothing for anybody, which is refused
    known: Any = {"num_replicas": ranks, "shuffle": shuffle, "drop_last": drop_last, "seed": 5}
    for rank in range(ranks):
        places: Any = TorchSampler(range(num_rows), rank=rank, **known | {"shuffle": False})  # type: ignore[arg-type]
        ours, alone = DistributedSampler(rank=rank, **known), DistributedSampler(1, 0, seed=5)
        for _ in range(3):
            order = epoch(alone, num_rows) if shuffle else range(num_rows)
            assert epoch(ours, num_rows, batch) == [order[place] for place in places]


def test_a_rank_that_does_not_exist_or_gets_nothing_is_refused() -> None:
    with refused(OutOfRange, argument="rank", found=2):
        DistributedSampler(2, 2)
    with pytest.raises(WrongSize):
        DistributedSampler(4, 0, drop_last=True).sample(TrajectoryRows([3]), 1, UNUSED)


def test_workers_without_a_transform_are_warned_of_at_the_callers_line(door: str) -> None:
    replay = ExperienceReplay(door, batch_size=64)
    with pytest.warns(UserWarning, match="num_workers=2: .* 55 to 61 times, .* frames") as warned:
        BatchStream(replay).loader(2)
        BatchStream(ReplayBufferEnsemble(replay, replay, batch_size=8)).loader(num_workers=2)
    assert [each.filename for each in warned] == [__file__] * 2


def test_workers_for_a_transform_are_not_warned_of(door: str) -> None:
    plain = ExperienceReplay(door, batch_size=64)
    replay = ExperienceReplay(door, batch_size=64, transform=lambda batch: batch)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        BatchStream(replay).loader(2)
        BatchStream(ReplayBufferEnsemble(replay, batch_size=8)).loader(2)
        BatchStream(plain).loader(0)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_loader_gives_batches_of_numpy(door: str, num_workers: int) -> None:
    replay = ExperienceReplay(door, batch_size=64, format="numpy")
    expected = BatchStream(ExperienceReplay(door, batch_size=64), num_batches=2)
    found = [*BatchStream(replay, num_batches=2).loader(num_workers)]
    for batch, right in zip(found, expected.loader(0), strict=True):
        assert type(batch["observation"]) is np.ndarray
        assert np.array_equal(batch["index"], right["index"])
        assert np.array_equal(batch["next"]["reward"], right["next", "reward"])


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_loaders_workers_share_each_epoch_and_the_next_is_another(
    door: str, num_workers: int
) -> None:
    replay = ExperienceReplay(door, batch_size=100, sampler=DistributedSampler(seed=3))
    loader = BatchStream(replay).loader(num_workers)
    passes = [torch.cat([batch["index"] for batch in loader]) for _ in range(2)]
    for seen in passes:
        assert set(seen.tolist()) == set(range(len(replay)))
        assert len(seen) - len(replay) < max(1, num_workers)  # shares are filled up to be equal
    assert not torch.equal(*passes)


@pytest.mark.parametrize("num_before", [0, 1])
def test_workers_draw_streams_of_their_own_and_the_same_ones_again(
    door: str, num_before: int
) -> None:
    def drawn() -> list[list[int]]:
        replay = ExperienceReplay(door, batch_size=20, seed=1)
        for _ in range(num_before):
            replay.sample()  # its generator has a state
        stream = BatchStream(replay, num_batches=2, seed=7)
        batches = [batch["index"].tolist() for batch in stream.loader(2)]
        assert next(iter(stream))["index"].tolist() not in batches  # of the pass to come
        assert stream.epoch == 2
        return batches

    first = drawn()
    assert len(first) == 4 and len({tuple(index) for index in first}) == 4
    assert drawn() == first


def test_a_ranks_workers_draw_what_no_other_ranks_do(
    door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = BatchStream(ExperienceReplay(door, batch_size=20), num_batches=1, seed=7)
    drawn = []
    for rank in range(2):
        monkeypatch.setattr(loaders, "process_rank", lambda number=rank: (number, 2))
        blob = pickle.dumps(stream)
        with monkeypatch.context() as worker:  # it is in no process group
            worker.setattr(loaders, "process_rank", lambda: (0, 1))
            for module in (loaders, distributed):
                worker.setattr(module, "get_worker_info", lambda: WorkerInfo(0, 1, 0, stream))
            drawn.append(next(iter(pickle.loads(blob)))["index"].tolist())
    assert drawn[0] != drawn[1]


def test_an_epoch_is_shared_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    order = Mock(wraps=epochs.permutation)
    monkeypatch.setattr(epochs, "permutation", order)
    assert len(epoch(DistributedSampler(2, 0), 101)) == 51
    assert order.call_count == 1


@pytest.mark.parametrize(
    "sampler", [RandomSampler(), SamplerWithoutReplacement(), SliceSampler(num_slices=4)]
)
def test_a_buffer_over_a_dataset_pickles_by_path(door: str, sampler: Any) -> None:
    replay = ExperienceReplay(door, batch_size=64, sampler=sampler, seed=0)
    assert len(pickle.dumps(replay)) < 2500  # of which the path is some 100
    replay.sample()
    blob = pickle.dumps(replay)
    assert len(blob) < 8000  # with the state of the generator, 5 KiB
    copy = pickle.loads(blob)
    for _ in range(3):
        assert torch.equal(copy.sample()["index"], replay.sample()["index"])


WITHOUT_GUARD = """
import sys
from datasets_cli import BatchStream, ExperienceReplay

print("the script begins")

def shifted(batch):
    batch["shifted"] = batch["action"] + OFFSET
    return batch

def greet(worker):
    assert OFFSET == 2.5

OFFSET = 2.5
replay = ExperienceReplay("d4rl/door-human-v0", download=False, batch_size=8, transform=shifted)
stream = BatchStream(replay, num_batches=2, seed=1)
for batch in stream.loader(num_workers=2, worker_init_fn=greet):
    assert (batch["shifted"] == batch["action"] + 2.5).all()
    print("batch", len(batch))
"""


def test_a_script_without_a_guard_loads_with_workers(
    door: str, tmp_path: Path, python: Python
) -> None:
    (tmp_path / "script.py").write_text(WITHOUT_GUARD)
    done = python("script.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n") == ["the script begins", *["batch 8"] * 4, ""]


# Whole numbers: what passes for one, and what is said of anything else.


@pytest.mark.parametrize("value", [3, np.int16(3), np.uint64(3), torch.tensor(3), np.array(3)])
def test_what_is_as_good_as_an_int_becomes_one(value: Any) -> None:
    number = whole_number("length", value, 3)
    assert number == 3
    assert type(number) is int


@pytest.mark.parametrize(
    "value",
    [
        *(0, np.int8(-1), "10", 2.0, True, np.bool_(True), np.float32(2), None),
        *(torch.tensor(2.0), torch.tensor([2, 3]), "1" * 10_000),
    ],
)
def test_anything_else_is_refused_in_one_short_sentence(value: Any) -> None:
    with pytest.raises(UsageError) as caught:
        whole_number("max_size", value, 1)
    assert (caught.value.argument, caught.value.found is value) == ("max_size", True)
    assert len(str(caught.value)) < 300


def test_without_a_limit_a_number_may_be_negative() -> None:
    assert whole_number("seed", -7) == -7
    with refused(UsageError, argument="seed", found="x"):
        whole_number("seed", "x")
