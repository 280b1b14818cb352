"""Tables of trajectories and their reductions."""

from __future__ import annotations

import itertools
import logging
import pickle
import tracemalloc
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict

import datasets_cli
from datasets_cli import ExperienceReplay, open_storage
from datasets_cli.config import Config
from datasets_cli.errors import NoRewards, UnknownKey, UsageError, WrongRows
from datasets_cli.replay.goals.sampler import TrajectoryPlaces
from datasets_cli.replay.trajectories import trajectory_table as reductions
from datasets_cli.replay.trajectories.bounds import (
    TrajectoryIndex,
    fragmented_index,
    index_from_ends,
)
from datasets_cli.replay.trajectories.trajectory_table import (
    REDUCTIONS,
    Trajectories,
    reduce_blocks,
    reduced_dtype,
)
from datasets_cli.schema.columns import REWARD
from datasets_cli.store import cache_root
from datasets_cli.store.cache_root import CacheRoot
from tests.support.refusals import refused
from tests.support.text_rows import LENGTHS, steps_of, write

# The table of trajectories: its columns, how they are kept, and what it refuses.


STARTS = np.cumsum([0, *LENGTHS])
NUM_ROWS = sum(LENGTHS)
NAMES = ["number", "start", "length", "num_transitions", "return", "terminated", "truncated"]


@pytest.fixture
def root(tmp_path: Path) -> CacheRoot:
    return CacheRoot(tmp_path / "root")


each_layout = pytest.mark.parametrize("folder", ["ted", "compact"], indirect=True)


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    frames = np.arange(NUM_ROWS * 1200, dtype=np.uint8).reshape(NUM_ROWS, 1200)
    more = {
        ("info", "success"): np.arange(NUM_ROWS)[:, None] == 6,
        ("info", "wave"): np.ones(NUM_ROWS, np.complex64),
        ("info", "half"): np.full(NUM_ROWS, 0x3FC0, "<u2").view([("bfloat16", "<u2")]),
    }
    layout = getattr(request, "param", "compact")
    return write(tmp_path, layout, steps_of(["go"], frame=frames) | more)


@pytest.fixture
def table(folder: Path, root: CacheRoot) -> Trajectories:
    return Trajectories(open_storage(folder), root)


def no_reading(*_: Any) -> Any:
    raise AssertionError("rows are read, where all was kept")


# Columns


def test_the_table_of_real_demonstrations_is_that_of_their_file(
    door: str, door_source: str
) -> None:
    (path,) = Path(door_source).iterdir()
    with h5py.File(path) as file:
        rewards, ends = file["rewards"][()], file["terminals"][()] | file["timeouts"][()]
    table = ExperienceReplay(door, 4, download=False).trajectories
    lengths = np.diff([-1, *np.flatnonzero(ends)])
    assert list(table) == NAMES
    assert len(table) == len(lengths) == 5
    parts = np.split(rewards.astype(np.float64), np.flatnonzero(ends)[:-1] + 1)
    np.testing.assert_allclose(table["return"], [part.sum() for part in parts], rtol=1e-12)
    np.testing.assert_array_equal(table["length"], lengths)
    # A time limit ends each, so its last step is not a row.
    np.testing.assert_array_equal(table["num_transitions"], lengths - 1)
    np.testing.assert_array_equal(table["start"], np.cumsum([0, *lengths[:-1] - 1]))


@each_layout
def test_columns_are_read_only_arrays_by_name(table: Trajectories) -> None:
    right = {
        "number": [0, 1, 2, 3],
        "start": STARTS[:-1].tolist(),
        "length": list(LENGTHS),
        "num_transitions": list(LENGTHS),
        "return": [3.0, 2.0, 22.5, 18.0],
        "terminated": [True] * 4,
        "truncated": [False] * 4,
        "success": [False, False, True, False],
    }
    assert {name: values.tolist() for name, values in dict(table).items()} == right
    assert [table[name].dtype.kind for name in table] == list("iiiifbbb")
    assert len(table) == 4
    with pytest.raises(ValueError, match="read-only"):
        table["return"][0] = 1


@each_layout
@pytest.mark.parametrize("block_rows", [1, 3, 65_536])
def test_every_reduction_of_every_leaf_is_that_of_its_rows(
    block_rows: int, table: Trajectories, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reductions, "BLOCK_ROWS", block_rows)
    for key in (("observation", "x"), ("observation", "frame"), ("action",), ("next", "reward")):
        rows = open_storage(folder).column(key).numpy()
        parts = [rows[start : start + n] for start, n in zip(STARTS, LENGTHS, strict=False)]
        for name in ("max", "min", "sum", "mean", "any", "all"):
            right = np.array([getattr(np, name)(part, axis=0) for part in parts])
            found = table.reduce(key, name)
            np.testing.assert_allclose(found, right[:, 0] if rows.shape[1:] == (1,) else right)
        ends = table.reduce(key, "first"), table.reduce(key, "last")
        for found, place in zip(ends, (0, -1), strict=True):
            right = np.array([part[place] for part in parts])
            np.testing.assert_array_equal(found.reshape(right.shape), right)
            assert found.dtype == rows.dtype


@each_layout
def test_numbers_that_numpy_has_no_type_for_become_float32(table: Trajectories) -> None:
    found = table.reduce(("info", "half"), "max")
    assert found.dtype == np.float32
    assert found.tolist() == [1.5] * 4


def test_nan_makes_a_return_nan_and_no_other(tmp_path: Path, root: CacheRoot) -> None:
    steps = steps_of(["go"])
    steps["next", "reward"][5] = np.nan
    table = Trajectories(open_storage(write(tmp_path, "compact", steps)), root)
    assert np.isnan(table["return"]).tolist() == [False, False, True, False]


def two_rewards(batch: TensorDict) -> TensorDict:
    reward = batch["next", "reward"]
    return batch.set(("next", "reward"), torch.cat((reward, 2 * reward), -1))


def no_reward(batch: TensorDict) -> TensorDict:
    return batch.exclude(("next", "reward"))


def test_a_reward_of_two_numbers_has_two_returns(
    config: Config, tmp_path: Path, root: CacheRoot
) -> None:
    steps = {"observation": np.ones((6, 1)), "action": np.ones(6), "reward": np.arange(6.0)}
    steps["terminated"] = np.arange(6) % 3 == 2
    datasets_cli.create_dataset("mine/rewards", steps, lengths=[3, 3])
    replay = ExperienceReplay("mine/rewards", 4)
    derived = replay.preprocess(two_rewards, dest=tmp_path / "two", num_workers=0)
    table = Trajectories(derived, root)
    right = replay.trajectories["return"]
    np.testing.assert_allclose(table["return"], np.stack((right, 2 * right), 1))
    frame = table.to_pandas()
    assert [*frame][4:6] == ["return.0", "return.1"]
    assert frame["return.1"].tolist() == table["return"][:, 1].tolist()


def test_data_without_a_reward_has_no_return(door: str, tmp_path: Path, root: CacheRoot) -> None:
    replay = ExperienceReplay(door, 4, download=False)
    derived = replay.preprocess(no_reward, dest=tmp_path / "none", num_workers=0)
    table = Trajectories(derived, root)
    assert [*table.to_pandas()] == [*table] == [name for name in NAMES if name != "return"]
    with pytest.raises(NoRewards):
        table["return"]


def test_pandas_has_the_same_columns(table: Trajectories) -> None:
    frame = table.to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert {name: frame[name].tolist() for name in frame} == {
        name: table[name].tolist() for name in table
    }


def test_a_short_table_is_shown(table: Trajectories) -> None:
    first, names, *rows = repr(table).splitlines()
    assert first == "Trajectories of toy/missions, 4 rows:"
    assert names.split() == list(table)
    assert rows[2].split() == ["2", "5", "6", "6", "22.5", "True", "False", "True"]
    assert len(rows) == 4


def test_a_long_table_shows_its_ends(tmp_path: Path, root: CacheRoot) -> None:
    steps = steps_of(["go"], (1,) * 1000)
    table = Trajectories(open_storage(write(tmp_path, "ted", steps)), root)
    lines = repr(table).splitlines()
    assert [line.split()[0] for line in lines[2:]] == [*"0123", "...", "996", "997", "998", "999"]


# Refused


@pytest.mark.parametrize(
    ("key", "reduction", "kind", "attributes"),
    [
        (("observation", "mission"), "max", WrongRows, {"found": "text"}),
        (("info", "wave"), "sum", WrongRows, {"found": "complex64"}),
        ("observation", "max", UnknownKey, {"expected": "observation.frame, observation.x"}),
        ("nosuch", "max", UnknownKey, {"key": ("nosuch",)}),
        ("action", "median", UsageError, {"argument": "reduction", "found": "median"}),
    ],
)
def test_a_reduction_that_is_not_possible_is_refused(
    table: Trajectories, key: Any, reduction: Any, kind: type[UsageError], attributes: Any
) -> None:
    with pytest.raises(kind) as error:
        table.reduce(key, reduction)
    assert {name: getattr(error.value, name) for name in attributes} == attributes


def test_an_unknown_column_is_refused_with_those_there_are(table: Trajectories) -> None:
    with refused(UnknownKey, key="score", expected=[*table]):
        table["score"]


@pytest.mark.parametrize("rows", [0, slice(3), ("next", "reward")])
def test_rows_of_the_table_are_not_columns(table: Trajectories, rows: Any) -> None:
    with refused(UnknownKey, found=rows, expected=[*table]):
        table[rows]


# Kept


def test_what_was_worked_out_is_read_again_in_either_layout(
    tmp_path: Path, root: CacheRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = steps_of(["go"])
    storages = {
        layout: open_storage(write(tmp_path / layout, layout, steps))
        for layout in ("ted", "compact")
    }
    before = {
        name: values.copy() for name, values in dict(Trajectories(storages["ted"], root)).items()
    }
    monkeypatch.setattr(reductions, "leaf_blocks", no_reading)
    after = dict(Trajectories(storages["compact"], root))
    assert {name: values.tobytes() for name, values in after.items()} == {
        name: values.tobytes() for name, values in before.items()
    }


@pytest.mark.parametrize(
    ("change", "place"), [("flip", 0), ("flip", 40), ("flip", -1), ("cut", 0), ("more", 0)]
)
def test_a_kept_column_that_was_changed_is_worked_out_again(
    table: Trajectories, root: CacheRoot, folder: Path, place: int, change: str
) -> None:
    right = table["return"].tolist()
    (path,) = (root.path / "tables").glob("*/trajectories-sum-*.array")
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes({"flip": data, "cut": data[:-3], "more": data + b"x"}[change])
    assert Trajectories(open_storage(folder), root)["return"].tolist() == right


def test_where_nothing_can_be_written_it_works_and_says_so_to_who_debugs(
    table: Trajectories,
    root: CacheRoot,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(cache_root.os, "access", lambda path, mode: False)
    with caplog.at_level(logging.DEBUG, "datasets_cli"):
        assert table["return"].tolist() == [3.0, 2.0, 22.5, 18.0]
    (record,) = [each for each in caplog.records if "is not cached" in each.message]
    assert record.levelno == logging.DEBUG
    assert not root.path.exists()


def test_kept_columns_go_with_the_dataset_and_do_not_come_back(door: str, config: Config) -> None:
    replay = ExperienceReplay(door, 4, download=False)
    audited = datasets_cli.disk_usage(door).datasets[0].table_bytes
    right = replay.trajectories.reduce("action", "max")
    (usage,) = datasets_cli.disk_usage(door).datasets
    assert usage.table_bytes == audited + 32 + right.nbytes
    replay.delete()
    assert not list((config.root / "tables").iterdir())
    copy = Trajectories(replay.storage, CacheRoot(config.root))
    np.testing.assert_array_equal(copy.reduce("action", "max"), right)
    assert not list((config.root / "tables").iterdir())


def test_a_buffer_s_pickle_has_no_column_of_the_table(door: str) -> None:
    replay = ExperienceReplay(door, 4, download=False)
    assert "return" in {*replay.trajectories}
    before = len(pickle.dumps(replay))
    right = replay.trajectories["return"]
    replay.trajectories.reduce("action", "mean")  # 5 times 28 numbers
    pickled = pickle.dumps(replay)
    assert len(pickled) == before
    copy = pickle.loads(pickled)
    assert copy.trajectories["return"].tolist() == right.tolist()


def test_memory_does_not_grow_with_the_rows(
    tmp_path: Path, root: CacheRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    peaks = []
    for times in (1, 20):
        steps = steps_of(["go"], (1000 * times,) * 4)
        table = Trajectories(open_storage(write(tmp_path / str(times), "ted", steps)), root)
        with monkeypatch.context() as context:
            context.setattr(reductions, "BLOCK_ROWS", 500)
            tracemalloc.start()
            found = table["return"]
            peaks.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
        assert found.tolist() == [part.sum() for part in np.split(steps["next", "reward"], 4)]
    assert peaks[1] < 1.5 * peaks[0] < 200_000, peaks  # the rewards alone are 640,000 bytes


def test_blocks_of_a_leaf_are_small_where_rows_are_large(tmp_path: Path, root: CacheRoot) -> None:
    # 64 KiB of each row beside the reward, which the compact layout copies with it.
    wide = np.random.default_rng(0).normal(size=(300, 4096))
    steps = steps_of(["go"], (100,) * 3, wide=wide)
    dataset = open_storage(write(tmp_path, "compact", steps)).dataset
    (reward,) = (column for column in dataset.manifest.columns if column.key == REWARD)
    sizes = [len(block) for block in reductions.leaf_blocks(dataset, reward)]
    assert sum(sizes) == 300
    assert max(sizes) <= (8 << 20) // (2 * 8 * 4096)


# Rows are found in their trajectories: in rings, side by side, apart, and where some are given.


def check(index: TrajectoryIndex) -> None:
    """Every row is found where the trajectories have it, walked step by step."""
    places = TrajectoryPlaces(index)
    walked = {}
    for number, length in enumerate(index.lengths.tolist()):
        for step in range(length):
            place = (int(index.starts[number]) + step * index.stride) % index.capacity
            row = place if index.order is None else int(index.order[place])
            walked[row] = number, step
    rows = torch.tensor(list(walked))
    number, step = places.of(rows)
    assert (
        dict(zip(walked, zip(number.tolist(), step.tolist(), strict=True), strict=True)) == walked
    )
    assert torch.equal(places.row(number, step), rows)


@settings(max_examples=40)
@given(data=st.data(), num_steps=st.integers(1, 30), width=st.integers(1, 4))
def test_rows_of_a_ring_are_found(data: st.DataObject, num_steps: int, width: int) -> None:
    flags = st.lists(st.booleans(), min_size=num_steps * width, max_size=num_steps * width)
    is_end = torch.tensor(data.draw(flags)).view(num_steps, width)
    index = index_from_ends(is_end, data.draw(st.integers(0, num_steps - 1)))
    assert int(index.lengths.sum()) == num_steps * width
    check(index)


@settings(max_examples=20)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=30))
def test_rows_that_are_apart_are_found(numbers: list[int]) -> None:
    steps = [numbers[:place].count(number) for place, number in enumerate(numbers)]
    check(fragmented_index(torch.tensor(numbers), torch.tensor(steps), ("number",)))


def test_trajectories_without_rows_are_passed_over() -> None:
    starts, lengths = torch.tensor([0, 0, 3, 3, 5]), torch.tensor([0, 3, 0, 2, 0])
    number, step = TrajectoryPlaces(TrajectoryIndex(starts, lengths, 1, 5)).of(torch.arange(5))
    assert number.tolist() == [1, 1, 1, 3, 3] and step.tolist() == [0, 1, 2, 0, 1]


@pytest.mark.parametrize("starts, row", [([0, 6], 4), ([2, 6], 1), ([], 0)])
def test_a_row_outside_of_those_that_were_given_is_refused(starts: list[int], row: int) -> None:
    lengths = torch.full((len(starts),), 3)
    places = TrajectoryPlaces(TrajectoryIndex(torch.tensor(starts).long(), lengths, 1, 20))
    with refused(WrongRows, argument="trajectories", row=row if starts else None):
        places.of(torch.tensor([row]))


# Reductions of trajectories that blocks cut anywhere, against one loop a trajectory.


WHOLE = [name for name in REDUCTIONS if name not in ("first", "last")]
VALUES = [-3.0, -0.0, 0.0, 0.5, 7.0, np.inf, -np.inf, np.nan]


@settings(max_examples=60)
@given(reduction=st.sampled_from(WHOLE), data=st.data())
def test_blocks_cut_anywhere_give_what_a_loop_gives(reduction: str, data: Any) -> None:
    lengths = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=6))
    rows = np.array(
        data.draw(st.lists(st.sampled_from(VALUES), min_size=(n := sum(lengths)), max_size=n))
    )
    rows = rows.astype(data.draw(st.sampled_from([np.float32, np.float64]))).reshape(-1, 1)
    cuts = data.draw(st.sets(st.integers(1, n - 1), max_size=5)) if n > 1 else ()
    offsets = np.cumsum([0, *lengths])
    found = np.empty((len(lengths), 1), reduced_dtype(reduction, rows.dtype))
    reduce_blocks(reduction, np.split(rows, sorted(cuts)), offsets, found)
    each = [rows[start:stop] for start, stop in itertools.pairwise(offsets)]
    with np.errstate(invalid="ignore"):  # of inf - inf
        right = [getattr(np, reduction)(part.astype(np.float64), axis=0) for part in each]
    np.testing.assert_array_equal(found, np.array(right))


@pytest.mark.parametrize("reduction", WHOLE)
def test_rows_of_several_numbers_are_reduced_one_by_one(reduction: str) -> None:
    rows = np.arange(24, dtype=np.int16).reshape(6, 2, 2) % 5
    found = np.empty((2, 2, 2), reduced_dtype(reduction, rows.dtype))
    reduce_blocks(reduction, [rows[:3], rows[3:]], np.array([0, 4, 6]), found)
    right = [getattr(np, reduction)(part, axis=0) for part in (rows[:4], rows[4:])]
    np.testing.assert_array_equal(found, np.array(right))
