"""Returns to go of all rows: their sums, how they are kept, and what memory they take."""

from __future__ import annotations

import itertools
import logging
import math
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict

from datasets_cli import ExperienceReplay, FrameStack, Reward2Go, Sequences, open_storage
from datasets_cli.config import Config
from datasets_cli.errors import WrongRows, WrongSize
from datasets_cli.replay.storages import sequences as returns_module
from datasets_cli.replay.storages.sequences import returns_dtype, returns_in_blocks, returns_to_go
from datasets_cli.sources import new_files
from datasets_cli.store import cache_root
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.layouts.ted_writer import TedWriter
from datasets_cli.store.manifest import Manifest, write_manifest
from tests.support.read_only_rows import columns_of, random_trajectories
from tests.support.refusals import refused
from tests.support.text_rows import LENGTHS, steps_of, write

OFFSETS = np.cumsum([0, *LENGTHS])


@pytest.fixture
def root(tmp_path: Path) -> CacheRoot:
    return CacheRoot(tmp_path / "root")


def found_of(rewards: np.ndarray, lengths: list[int], gamma: float, block: int) -> np.ndarray:
    offsets, columns = np.cumsum([0, *lengths]), torch.from_numpy(rewards)
    blocks = returns_in_blocks(lambda *rows: columns[slice(*rows)], offsets, gamma, block)
    found = np.full(rewards.shape, np.nan)
    for first, rows in blocks:
        found[first : first + len(rows)] = rows
    return found


# Sums


@settings(max_examples=25)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    gamma=st.floats(0, 1),
    block=st.integers(1, 12),
    width=st.integers(1, 3),
)
def test_returns_in_blocks_are_the_sums_of_a_slow_loop(
    lengths: list[int], gamma: float, block: int, width: int
) -> None:
    rewards = np.random.default_rng(0).normal(size=(sum(lengths), width))
    found = found_of(rewards, lengths, gamma, block)
    stop = 0
    for length in lengths:
        start, stop = stop, stop + length
        for row in range(start, stop):
            for place in range(width):
                parts = [gamma ** (late - row) * rewards[late, place] for late in range(row, stop)]
                assert found[row, place] == pytest.approx(math.fsum(parts), abs=1e-12)


@pytest.mark.parametrize("gamma", [1.0, 0.999])
def test_a_long_trajectory_is_summed_to_the_last_digits(gamma: float) -> None:
    """Sums that are subtracted from one another would lose six digits to the first reward."""
    rewards = np.random.default_rng(0).normal(size=(50_000, 1))
    rewards[0] = 1e10
    found = found_of(rewards, [50_000], gamma, 4096)
    for row in (1, 4095, 4096, 49_990):
        powers = gamma ** np.arange(50_000 - row)
        assert found[row, 0] == pytest.approx(math.fsum(powers * rewards[row:, 0]), abs=1e-10)


def test_nothing_gets_past_the_end_of_a_trajectory() -> None:
    rewards = np.array([1, 2, np.nan, 4, np.inf, 6, 7.0])[:, None]
    for block in range(1, 8):
        found = found_of(rewards, [2, 2, 2, 1], 0.5, block)[:, 0]
        np.testing.assert_array_equal(found, [2, 2, np.nan, 4, np.inf, 6, 7])


@pytest.mark.parametrize("gamma", [1.0, 0.99])
def test_they_are_those_of_the_transform_that_sums_what_is_written(door: str, gamma: float) -> None:
    replay = ExperienceReplay(door, download=False)
    rows: TensorDict = replay[:]
    # The file ends the recording of a demonstration without a flag; the transform needs one.
    rows["next", "done"][replay.storage.offsets[1:] - 1] = True  # type: ignore[attr-defined]
    rows["next", "reward"] = rows["next", "reward"].double()  # it sums in the rewards' own type
    # The final step of each demonstration is not among the rows.
    final = torch.tensor(replay.storage.dataset.final["next", "reward"])  # type: ignore[attr-defined]
    rows["next", "reward"][replay.storage.offsets[1:] - 1] += gamma * final  # type: ignore[attr-defined]
    right = Reward2Go(gamma, out_keys=["to_go"]).inv(rows)["to_go"].float()
    found = replay.sequences(1, len(rows), gamma=gamma)[:]["returns_to_go"][:, 0]
    torch.testing.assert_close(found, right, rtol=1e-6, atol=1e-6)


def test_without_final_steps_a_cut_off_trajectory_counts_its_rows(tmp_path: Path) -> None:
    steps = steps_of([""])
    steps["next", "terminated"][:] = False
    steps["next", "truncated"] = np.isin(np.arange(14), OFFSETS[1:] - 1)
    folder = write(tmp_path, "ted", steps)
    storage = open_storage(folder)
    found = returns_to_go(storage, storage.offsets.numpy(), 1.0, None)[:, 0]
    rewards = storage.dataset.columns(("next", "reward"))["next", "reward"][:, 0].numpy()
    stops = storage.offsets.tolist()[1:]
    right = [rewards[row : min(s for s in stops if s > row)].sum() for row in range(len(rewards))]
    assert len(rewards) < 14 and found.tolist() == right


@pytest.mark.parametrize(
    ("dtype", "expected"),
    {torch.float32: "float32", torch.float64: "float64", torch.bfloat16: "float32"}.items(),
)
def test_they_have_the_type_that_has_every_reward(dtype: torch.dtype, expected: str) -> None:
    rows = columns_of(random_trajectories([3, 4]))
    rows.columns["next"]["reward"] = torch.ones(7, dtype=dtype)
    batch = Sequences(rows, 2).get(torch.tensor([0, 6]))
    assert str(batch["returns_to_go"].dtype) == f"torch.{expected}"
    assert batch["returns_to_go"].tolist() == [[[3], [2]], [[0], [1]]]


@pytest.mark.parametrize("name", ["complex64", "float4_e2m1fn_x2"])
def test_rewards_that_are_no_real_numbers_are_refused(name: str) -> None:
    rewards = torch.empty(7, 1, dtype=getattr(torch, name))
    with refused(WrongRows, key=("next", "reward")):
        returns_dtype(rewards)


# Kept


@pytest.fixture(params=["ted", "compact"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write(tmp_path, request.param, steps_of(["go"]))


def expected(gamma: float = 1.0) -> list[float]:
    """Return the returns to go of rewards 0, 0.5, 1 ..., from the first row on."""
    return [
        sum(gamma ** (late - row) * late / 2 for late in range(row, stop))
        for start, stop in itertools.pairwise(OFFSETS)
        for row in range(start, stop)
    ]


def returns_of(folder: Path, root: CacheRoot | None, gamma: float = 1.0) -> np.ndarray:
    storage = open_storage(folder)
    return returns_to_go(storage, storage.offsets.numpy(), gamma, root)


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Calling it makes every further sum a failure."""

    def refuse(*_: Any) -> Any:
        raise AssertionError("rows are summed, where all was kept")

    yield lambda: monkeypatch.setattr(returns_module, "returns_in_blocks", refuse)


def test_they_are_worked_out_once_for_each_gamma(
    folder: Path, root: CacheRoot, no_work: Any
) -> None:
    for gamma in (1.0, 0.9):
        assert returns_of(folder, root, gamma)[:, 0].tolist() == pytest.approx(expected(gamma))
    no_work()
    for gamma in (1.0, 0.9):
        found = returns_of(folder, root, gamma)
        assert found[:, 0].tolist() == pytest.approx(expected(gamma))
        with pytest.raises(ValueError, match="read-only"):
            found[0] = 1
    with pytest.raises(AssertionError, match="rows are summed"):
        returns_of(folder, root, 0.8)


def test_another_layout_and_frame_stacks_read_what_was_kept(
    tmp_path: Path, root: CacheRoot, no_work: Any
) -> None:
    steps = steps_of(["go"])
    folders = [write(tmp_path / layout, layout, steps) for layout in ("ted", "compact")]
    found = [Sequences(open_storage(folders[0]), 3, root=root)]
    no_work()
    found.append(Sequences(open_storage(folders[1]), 3, root=root))
    found.append(
        Sequences(FrameStack(open_storage(folders[1]), 2, key=("observation", "x")), 3, root=root)
    )
    rows = torch.arange(14)
    right, *others = (each.get(rows)["returns_to_go"] for each in found)
    assert all(torch.equal(each, right) for each in others)


@pytest.mark.parametrize("damage", ["a bit", "the end", "everything"])
def test_kept_returns_that_were_changed_are_worked_out_again(
    folder: Path, root: CacheRoot, damage: str
) -> None:
    returns_of(folder, root)
    (path,) = root.path.rglob("*.array")
    right = path.read_bytes()
    wrong = {"a bit": right[:-1] + b"\1", "the end": right[:-3], "everything": b""}[damage]
    path.write_bytes(wrong)
    assert returns_of(folder, root)[:, 0].tolist() == expected()
    assert path.read_bytes() == right


def test_a_root_that_cannot_be_written_leaves_them_in_memory(
    folder: Path, root: CacheRoot, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError("read-only")

    monkeypatch.setattr(new_files, "make_folder", refuse)
    with caplog.at_level(logging.DEBUG):
        assert returns_of(folder, root)[:, 0].tolist() == expected()
    (record,) = [each for each in caplog.records if "is not cached" in each.message]
    assert "returns-to-go-1.0" in record.message
    assert not root.path.exists()


def test_nothing_is_kept_of_a_dataset_that_was_deleted(door: str, config: Config) -> None:
    replay = ExperienceReplay(door, download=False)
    replay.sequences(5)
    assert [*config.root.glob("tables/*/returns-to-go-1.0.array")]
    replay.delete()
    assert replay.sequences(5, 4).sample().shape == (4, 5)
    assert not [*config.root.glob("tables/*")]


def test_two_rewards_a_row_are_kept_each_by_itself(tmp_path: Path, root: CacheRoot) -> None:
    rewards = np.arange(10.0).reshape(5, 2)
    done = np.array([0, 0, 1, 0, 1], bool)[:, None]
    writer = TedWriter(tmp_path / "two", "toy/two")
    writer.write({("next", "reward"): rewards, ("next", "done"): done})
    write_manifest(tmp_path / "two", Manifest(id="toy/two", **vars(writer.finish({}))))
    for _ in range(2):
        batch = Sequences(open_storage(tmp_path / "two"), 3, root=root).get(torch.tensor([0, 4]))
        assert batch["returns_to_go"][0].tolist() == [[6, 9], [6, 8], [4, 5]]
        assert batch["returns_to_go"][1].tolist() == [[0, 0], [0, 0], [8, 9]]


# Memory


def test_memory_does_not_grow_with_the_rows(
    tmp_path: Path, root: CacheRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(returns_module, "BLOCK_ROWS", 500)
    peaks = []
    for times in (1, 20):
        steps = steps_of(["go"], (1000 * times,) * 4)
        storage = open_storage(write(tmp_path / str(times), "ted", steps))
        tracemalloc.start()
        found = returns_to_go(storage, storage.offsets.numpy(), 0.9, root)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(found) == 4000 * times
    assert peaks[1] < 1.5 * peaks[0] < 200_000, peaks  # the returns alone are 640,000 bytes


def test_what_does_not_fit_into_memory_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets_cli.core.system_errors.SMALL_BYTES", 0)
    monkeypatch.setattr("datasets_cli.core.system_errors.free_memory", lambda: 100)
    with refused(WrongSize, found=112):
        returns_of(folder, None)
    assert cache_root.MANIFEST_FILENAME in [path.name for path in folder.iterdir()]
