"""Sampling: what is drawn, what it carries, and that the same seed draws the same."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import minari
import numpy as np
import pytest
import torch
from tensordict import TensorDict

from datasets_cli import (
    D4RLExperienceReplay,
    ExperienceReplay,
    RandomSampler,
    ReplayBuffer,
    SamplerWithoutReplacement,
    SliceSampler,
    open_storage,
)
from datasets_cli.errors import (
    DatasetNotInstalled,
    ImmutableError,
    UnknownDataset,
    UnknownKey,
    UsageError,
    WrongSize,
)
from datasets_cli.store import manifest
from tests.support.refusals import refused


@pytest.fixture
def replay(door: str) -> ExperienceReplay:
    return ExperienceReplay(door, batch_size=32, seed=0)


def leaf(folder: Path, name: str, dtype: str, *shape: int) -> torch.Tensor:
    """Read a leaf's file without the project's reader."""
    return torch.from_numpy(np.fromfile(folder / name, dtype).reshape(-1, *shape))


def test_a_batch_holds_the_rows_that_its_index_names(replay: ExperienceReplay) -> None:
    batch = replay.sample()
    rows = leaf(replay.data_path, "observation.memmap", "float32", 39)
    following = leaf(replay.data_path, "next/observation.memmap", "float32", 39)
    assert batch.batch_size == (32,)
    assert batch["index"].dtype == torch.int64
    assert torch.equal(batch["observation"], rows[batch["index"]])
    assert torch.equal(batch["next", "observation"], following[batch["index"]])


def test_the_batch_size_of_the_call_overrides_the_buffers(replay: ExperienceReplay) -> None:
    batch, info = replay.sample(5, return_info=True)
    assert batch.batch_size == (5,)
    assert torch.equal(info["index"], batch["index"])


def test_a_generator_draws_as_its_seed_does(door: str) -> None:
    generator = torch.Generator().manual_seed(7)
    replay = ExperienceReplay(door, batch_size=64, generator=generator)
    seeded = ExperienceReplay(door, batch_size=64, seed=7)
    assert torch.equal(replay.sample()["index"], seeded.sample()["index"])
    with refused(UsageError, argument="seed", found=7):
        ExperienceReplay(door, generator=generator, seed=7)


def test_without_replacement_every_row_comes_once_and_the_last_batch_is_short(door: str) -> None:
    replay = ExperienceReplay(door, batch_size=100, replacement=False, seed=0)
    batches = [batch["index"] for batch in replay]
    assert [len(batch) for batch in batches] == [100] * 14 + [95]
    assert torch.equal(torch.cat(batches).sort().values, torch.arange(1495))
    assert not torch.equal(batches[0], next(iter(replay))["index"])


def test_drop_last_leaves_out_the_short_batch_and_no_shuffle_keeps_the_order(door: str) -> None:
    sampler = SamplerWithoutReplacement(drop_last=True, shuffle=False)
    replay = ExperienceReplay(door, batch_size=100, sampler=sampler)
    drawn = torch.cat([batch["index"] for batch in replay])
    assert torch.equal(drawn, torch.arange(1400))
    with pytest.raises(WrongSize) as error:
        replay.sample(2000)
    assert (error.value.argument, error.value.found) == ("batch_size", 2000)
    assert [len(replay.sample(size)) for size in (700, 900)] == [700, 900]


def check_slices(batch: TensorDict, slice_len: int, offsets: torch.Tensor) -> None:
    slices = batch["index"].view(-1, slice_len)
    assert torch.equal(slices, slices[:, :1] + torch.arange(slice_len))
    episodes = torch.bucketize(slices, offsets, right=True) - 1
    assert bool((episodes == episodes[:, :1]).all())
    assert torch.equal(episodes.flatten(), batch["episode"])
    ends = batch["next", "truncated"].view(-1, slice_len)
    assert bool(ends[:, -1].all())
    assert bool(batch["next", "done"].view(-1, slice_len)[:, -1].all())


@pytest.mark.parametrize("arguments", [{"num_slices": 8}, {"slice_len": 16}])
def test_slices_are_consecutive_rows_of_one_trajectory(door: str, arguments: Any) -> None:
    replay = ExperienceReplay(door, batch_size=128, seed=0, **arguments)
    for _ in range(20):
        check_slices(replay.sample(), 16, replay.storage.offsets)


def test_too_long_slices_are_refused_or_shortened(door: str) -> None:
    size: Any
    for size in {"num_slices": 2}, {"slice_len": 1000}, {"slice_len": 1000, "frame_stack": 2}:
        with refused(WrongSize, argument="slice_len", expected="at most 299", found=1000):
            ExperienceReplay(door, batch_size=2000, **size)
    too_long = SliceSampler(slice_len=300)
    with refused(WrongSize, argument="slice_len", found=300):
        ReplayBuffer(storage=ExperienceReplay(door).storage, sampler=too_long)
    replay = ExperienceReplay(door, batch_size=2000, num_slices=2, strict_length=False, seed=0)
    batch = replay.sample()
    lengths = replay.storage.offsets.diff()
    drawn = batch["episode"][batch["next", "truncated"][:, 0]]
    assert len(drawn) == 2
    assert len(batch) == int(lengths[drawn].sum())


@pytest.mark.parametrize("arguments", [{}, {"num_slices": 2, "slice_len": 3}])
def test_a_slice_sampler_takes_exactly_one_of_its_sizes(arguments: Any) -> None:
    with refused(UsageError, argument="slice_len"):
        SliceSampler(**arguments)


def test_indexing_gives_rows_slices_masks_and_columns(replay: ExperienceReplay) -> None:
    rows = leaf(replay.data_path, "action.memmap", "float32", 28)
    assert torch.equal(replay[3]["action"], rows[3])
    assert torch.equal(replay[-1]["action"], rows[-1])
    assert torch.equal(replay[2:5]["action"], rows[2:5])
    assert torch.equal(replay[5:2:-1]["action"], rows[[5, 4, 3]])
    assert torch.equal(replay[[4, 1]]["action"], rows[[4, 1]])
    grid = torch.tensor([[4, 1], [0, 0]])
    assert torch.equal(replay[grid]["action"], rows[grid])
    assert torch.equal(replay[rows[:, 0] > 0]["action"], rows[rows[:, 0] > 0])
    assert torch.equal(replay["action"], rows)
    assert replay["next", "reward"].shape == (1495, 1)
    assert set(replay["next"].keys()) >= {"observation", "reward", "done"}


@pytest.mark.parametrize("index", [1495, -1496, [0, 5000], 1.5, torch.ones(3, dtype=torch.bool)])
def test_a_row_that_does_not_exist_is_an_index_error(replay: ExperienceReplay, index: Any) -> None:
    with pytest.raises(IndexError):
        replay[index]


def test_a_key_that_does_not_exist_names_those_that_do(replay: ExperienceReplay) -> None:
    with refused(UnknownKey, key=("nosuch",)):
        replay["nosuch"]


def test_a_transform_sees_every_batch_and_may_change_it(door: str) -> None:
    def double(batch: TensorDict) -> TensorDict:
        batch["observation"] *= 2
        return batch

    replay = ExperienceReplay(door, batch_size=8, transform=double)
    replay.append_transform(lambda batch: batch.select("observation", "index"))
    batch = replay.sample()
    rows = leaf(replay.data_path, "observation.memmap", "float32", 39)
    assert set(batch.keys()) == {"observation", "index"}
    assert torch.equal(batch["observation"], 2 * rows[batch["index"]])


def test_a_transform_that_returns_nothing_is_named(door: str) -> None:
    with refused(UsageError, expected="a batch"):
        ExperienceReplay(door, batch_size=8, transform=lambda batch: None).sample()


def test_iteration_without_a_batch_size_is_refused(door: str) -> None:
    for read in (lambda: next(iter(ExperienceReplay(door))), ExperienceReplay(door).sample):
        with pytest.raises(UsageError) as caught:
            read()
        assert caught.value.argument == "batch_size"


def test_iteration_with_replacement_does_not_end(replay: ExperienceReplay) -> None:
    batches: Iterator[Any] = iter(replay)
    assert sum(len(next(batches)) for _ in range(100)) == 3200


def test_a_storage_pickles_by_path_in_a_few_hundred_bytes(replay: ExperienceReplay) -> None:
    pickled = pickle.dumps(replay.storage)
    assert len(pickled) < 500
    copy = pickle.loads(pickled)
    assert torch.equal(copy.get(torch.tensor([7]))["action"], replay[[7]]["action"])


def test_a_plain_replay_buffer_keeps_the_index_apart(replay: ExperienceReplay) -> None:
    buffer = ReplayBuffer(storage=open_storage(replay.data_path), sampler=RandomSampler())
    batch, info = buffer.sample(4, return_info=True)
    assert "index" not in list(batch.keys())
    assert torch.equal(batch["action"], replay[info["index"]]["action"])


def test_the_q_learning_dataset_is_numpy_of_the_whole(replay: ExperienceReplay) -> None:
    columns = replay.qlearning_dataset()
    rows = leaf(replay.data_path, "observation.memmap", "float32", 39)
    assert np.array_equal(columns["observations"], rows.numpy())
    assert {name: (c.dtype.name, c.shape[1:]) for name, c in columns.items()} == {
        "observations": ("float32", (39,)),
        "actions": ("float32", (28,)),
        "next_observations": ("float32", (39,)),
        "rewards": ("float32", ()),
        "terminals": ("bool", ()),
        "timeouts": ("bool", ()),
    }


def test_scores_are_normalised_by_the_published_references(replay: ExperienceReplay) -> None:
    assert replay.get_normalized_score(-56.512833) == pytest.approx(0)
    assert replay.get_normalized_score(2880.5693087298737) == pytest.approx(1)


@pytest.mark.parametrize(
    "returns",
    [
        *(1200, 1200.1, np.float32(1200.1), np.float64(1200.1), np.float32([[1200.1], [7.3]])),
        *(np.array([1200.1, -3.3]), np.arange(3), torch.tensor([1200.1, 7.3])),
    ],
)
def test_scores_are_of_the_kind_and_the_bits_that_minari_gives(
    replay: ExperienceReplay, returns: Any
) -> None:
    theirs = SimpleNamespace(storage=SimpleNamespace(metadata=replay.metadata))
    expected: Any = minari.get_normalized_score(theirs, returns)  # type: ignore[arg-type]
    found = replay.get_normalized_score(returns)
    assert type(found) is type(expected)
    assert getattr(found, "dtype", float) == getattr(expected, "dtype", float)
    assert np.asarray(found).tobytes() == np.asarray(expected).tobytes()
    numbers = np.asarray(returns).tolist()
    assert replay.get_normalized_score([numbers]) == [replay.get_normalized_score(numbers)]


@pytest.mark.parametrize("download", [False, True])
def test_the_manifest_of_what_is_there_is_not_read_again_and_again(
    download: bool, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[bytes] = []
    original = manifest.parse
    monkeypatch.setattr(manifest, "parse", lambda data: parsed.append(data) or original(data))
    ExperienceReplay(door, download=download)
    assert len(parsed) == 1


def test_download_false_opens_only_what_is_installed(door: str) -> None:
    assert len(ExperienceReplay(door, download=False)) == 1495
    with pytest.raises(DatasetNotInstalled):
        ExperienceReplay("pen-human-v1", download=False)
    with pytest.raises(UnknownDataset):
        ExperienceReplay("nosuch", download=False)
    with refused(UsageError, argument="download", found="yes"):
        ExperienceReplay(door, download="yes")


def test_the_family_class_fills_in_its_family(door: str) -> None:
    replay = D4RLExperienceReplay("door-human-v0", batch_size=4)
    assert replay.dataset_id == door
    assert len(D4RLExperienceReplay.available_datasets) == 179


def test_delete_removes_the_dataset_and_leaves_the_open_buffer_valid(
    replay: ExperienceReplay,
) -> None:
    replay.delete()
    assert not replay.data_path.exists()
    assert replay.sample().batch_size == (32,)


def test_a_dataset_is_never_written_to(replay: ExperienceReplay) -> None:
    for write in (replay.add, replay.extend):
        with refused(ImmutableError):
            write(replay[:1])
    with refused(ImmutableError):
        replay[0] = replay[1]


def test_an_index_of_narrow_integers_does_not_wrap_around(replay: ExperienceReplay) -> None:
    last = replay[-1]["action"]
    assert torch.equal(replay[np.array([-1], np.int8)]["action"][0], last)


@pytest.mark.parametrize("index", [slice(None, None, -1), torch.arange(1495), slice(None)])
def test_every_way_to_ask_for_too_many_rows_is_refused(
    replay: ExperienceReplay, index: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets_cli.core.system_errors.free_memory", lambda: 1000)
    monkeypatch.setattr("datasets_cli.core.system_errors.SMALL_BYTES", 0)
    with refused(WrongSize, expected="500 bytes at most"):
        replay[index]


def test_another_layout_than_the_installed_one_is_refused(door: str) -> None:
    for download in (True, False):
        with pytest.raises(UsageError):
            ExperienceReplay(door, layout="compact", download=download)
