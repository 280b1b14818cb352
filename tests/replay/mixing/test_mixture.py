"""Mixtures of datasets: shares, columns, and how they differ."""

from __future__ import annotations

import ast
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict

import datasets_cli
from datasets_cli import (
    BlockShuffleSampler,
    DistributedSampler,
    ExperienceReplay,
    LazyTensorStorage,
    Mixture,
    OfflineToOnline,
    PrioritizedSampler,
    PrioritizedSliceSampler,
    RandomSampler,
    RenameTransform,
    SamplerWithoutReplacement,
    SliceSampler,
    SliceSamplerWithoutReplacement,
    TensorDictReplayBuffer,
    open_storage,
)
from datasets_cli.config import Config
from datasets_cli.errors import (
    EmptyBuffer,
    UnknownKey,
    Unsupported,
    UsageError,
    WrongRows,
    WrongSize,
    WrongState,
)
from datasets_cli.replay import Member
from datasets_cli.replay.mixing.column_mapping import difference_table, different_keys
from datasets_cli.replay.storages.dataset import DatasetStorage
from tests.replay.mixing.conftest import LENGTHS
from tests.replay.mixing.test_offline_to_online import buffer, rows
from tests.support.mixture_members import MEMBER_STEP, member, rows_of, write
from tests.support.refusals import refused
from tests.support.trajectory_rows import chi_square_score

# What a mixture draws: rows of its members, by their weights, compared with slow loops.


Members = list[DatasetStorage]
Rows = list[tuple[int, int]]
"""Member and row in it of every row of a mixture, in order."""


def rows_in(chosen: list[int]) -> Rows:
    return [(number, row) for number in chosen for row in range(sum(LENGTHS[number]))]


ROWS = rows_in([*range(len(LENGTHS))])


def check_batch(batch: Any, rows: Rows, places: list[int]) -> None:
    """Compare every row with the member and row that its index names, one by one."""
    for at, index in enumerate(batch["index"].tolist()):
        member, row = rows[index]
        mark = member * MEMBER_STEP + row
        assert batch["member"][at].item() == places[index]
        assert batch["mark"][at].item() == mark
        assert batch["observation"][at].tolist() == [mark] * 3
        assert batch["next", "observation"][at].tolist() == [mark + 1] * 3
        assert batch["next", "reward"][at].item() == mark / 2


def check_slices(batch: Any, rows: Rows, places: list[int], slice_len: int) -> None:
    """Check that slices are consecutive rows of one trajectory of one member."""
    ends = {
        (member, end - 1)
        for member, lengths in enumerate(LENGTHS)
        for end in np.cumsum(lengths).tolist()
    }
    for index in batch["index"].reshape(-1, slice_len).tolist():
        assert index == [*range(index[0], index[0] + slice_len)]
        assert len({places[row] for row in index}) == 1
        assert not ends & {rows[row] for row in index[:-1]}


SAMPLERS: dict[str, tuple[Callable[[int], Any], int]] = {
    "uniform": (lambda _: RandomSampler(), 0),
    "each once": (lambda _: SamplerWithoutReplacement(), 0),
    "shared": (lambda _: DistributedSampler(2, 1), 0),
    "blocks": (lambda _: BlockShuffleSampler(4, 2), 0),
    "slices": (lambda _: SliceSampler(slice_len=3), 3),
    "slices once": (lambda _: SliceSamplerWithoutReplacement(slice_len=3), 3),
    "priorities": (lambda num_rows: PrioritizedSampler(num_rows, 0.7, 0.5), 0),
    "slices by priority": (
        lambda num_rows: PrioritizedSliceSampler(num_rows, alpha=0.7, beta=0.5, slice_len=3),
        3,
    ),
}


@pytest.mark.parametrize("name", SAMPLERS)
@settings(max_examples=5)
@given(
    chosen=st.lists(st.integers(0, 3), min_size=1, max_size=5),
    size=st.integers(1, 5),
    seed=st.integers(0, 1000),
)
def test_every_sampler_draws_a_mixture_as_a_slow_loop_reads_it(
    members: Members, name: str, chosen: list[int], size: int, seed: int
) -> None:
    make, slice_len = SAMPLERS[name]
    rows = rows_in(chosen)
    places = [at for at, number in enumerate(chosen) for _ in range(sum(LENGTHS[number]))]
    sampler = make(len(rows))
    mixture = Mixture([members[number] for number in chosen], 3 * size, sampler=sampler, seed=seed)
    for _ in range(8):  # past the end of an epoch, and of what is read ahead
        batch = mixture.sample()
        check_batch(batch, rows, places)
        if slice_len:
            check_slices(batch, rows, places, slice_len)


@settings(max_examples=15)
@given(
    chosen=st.lists(st.integers(0, 3), min_size=1, max_size=6),
    seed=st.integers(0, 1000),
    size=st.integers(1, 40),
    as_arrays=st.booleans(),
)
def test_rows_of_any_members_come_in_the_order_asked_for(
    members: Members, chosen: list[int], seed: int, size: int, as_arrays: bool
) -> None:
    mixture = Mixture([members[number] for number in chosen], format="numpy")
    marks = [number * MEMBER_STEP + row for number in chosen for row in range(sum(LENGTHS[number]))]
    index = torch.randint(len(marks), (size,), generator=torch.Generator().manual_seed(seed))
    storage = mixture.storage
    if as_arrays:
        block = storage.read(index)
        assert block is not None
        found = block.arrays(0, size)["mark"]
    else:
        found = storage.gather(index)["mark"].numpy()
    assert found.ravel().tolist() == [marks[row] for row in index.tolist()]


@pytest.mark.parametrize("format", ["torch", "numpy"])
def test_weights_are_kept_and_rows_of_a_member_are_alike(members: Members, format: str) -> None:
    weights = [0.5, 0.2, 0.3, 0.0]
    mixture = Mixture(members, 500, weights=weights, seed=0, format=format)
    counts = np.zeros(len(ROWS))
    for _ in range(120):
        np.add.at(counts, np.asarray(mixture.sample()["index"]), 1)
    by_member = [counts[[at for at, (m, _) in enumerate(ROWS) if m == n]] for n in range(4)]
    total = counts.sum()
    drawn = np.array([part.sum() for part in by_member])
    assert drawn[3] == 0
    assert abs(chi_square_score(drawn[:3], total * np.array(weights[:3]))) < 4
    for part, weight in zip(by_member[:3], weights, strict=False):
        assert abs(chi_square_score(part, np.full(len(part), part.mean()))) < 4, weight


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ("rows", [24, 30, 58, 6]),
        ("trajectories", [3, 1, 6, 2]),
        ([2, 0.5, 0.5, 1], [2, 0.5, 0.5, 1]),
    ],
)
@pytest.mark.parametrize("slice_len", [None, 3])
def test_slices_and_rows_have_the_weights_that_are_asked_for(
    members: Members, weights: Any, expected: list[float], slice_len: int | None
) -> None:
    mixture = Mixture(members, 600, weights=weights, slice_len=slice_len, seed=0)
    counts = np.zeros(4)
    for _ in range(40):
        batch = mixture.sample()
        counts += np.bincount(batch["member"][:: slice_len or 1], minlength=4)
    shares = np.array(expected) / sum(expected)
    assert abs(chi_square_score(counts, counts.sum() * shares)) < 4


def test_trajectories_and_starts_of_weighted_slices_are_as_in_the_member_alone(
    members: Members,
) -> None:
    mixture = Mixture({members[0]: 1, members[2]: 0}, 300, slice_len=5, seed=0)
    counts = np.zeros(24)
    for _ in range(60):
        np.add.at(counts, mixture.sample()["index"][::5], 1)
    starts = {0: 3, 7: 8, 19: 1}  # trajectories of 7, 12 and 5 rows leave so many starts
    expected = np.zeros(24)
    for first, room in starts.items():
        expected[first : first + room] = 60 * 60 / 3 / room
    assert (counts[expected == 0] == 0).all()
    drawn = expected > 0
    assert abs(chi_square_score(counts[drawn], expected[drawn])) < 4


@pytest.mark.parametrize(
    "arguments", [{}, {"weights": [1, 2, 3, 4]}, {"weights": "trajectories", "slice_len": 3}]
)
def test_a_seed_gives_the_same_batches_read_ahead_or_one_by_one(
    members: Members, arguments: dict[str, Any]
) -> None:
    ahead = Mixture(members, 6, seed=5, **arguments)
    single = Mixture(members, 6, seed=5, **arguments, prefetch=1)
    generator = torch.Generator().manual_seed(5)
    for _ in range(40):
        batch, other = ahead.sample(), single.sample()
        index, _ = ahead.sampler.sample(ahead.storage, 6, generator)
        assert torch.equal(batch["index"], other["index"])
        assert torch.equal(batch["index"], index)
        assert torch.equal(batch["mark"], other["mark"])


def test_a_state_continues_with_the_same_draws_and_refuses_other_weights(members: Members) -> None:
    mixture = Mixture(members, 8, weights=[1, 2, 3, 4], seed=0)
    for _ in range(7):
        mixture.sample()
    state = mixture.state_dict()
    expected = [mixture.sample()["index"] for _ in range(5)]
    again = Mixture(members, 8, weights=[1, 2, 3, 4], seed=9)
    again.load_state_dict(state)
    assert all(torch.equal(again.sample()["index"], each) for each in expected)
    settings = {"expected": "weights=[4.0, 3.0, 2.0, 1.0]", "found": "weights=[1.0, 2.0, 3.0, 4.0]"}
    with refused(WrongState, argument="sampler", **settings):
        Mixture(members, 8, weights=[4, 3, 2, 1]).load_state_dict(state)
    with pytest.raises(WrongState):
        Mixture(members[::-1], 8, weights=[1, 2, 3, 4]).load_state_dict(state)


def test_a_dump_names_the_datasets_and_has_no_rows(members: Members, tmp_path: Any) -> None:
    mixture = Mixture(members, 8, weights=[1, 2, 3, 4], seed=0)
    mixture.sample()
    mixture.dumps(tmp_path / "dump")
    expected = mixture.sample()["index"]
    assert "rows" not in torch.load(tmp_path / "dump" / "buffer.pt")
    again = Mixture(members, 8, weights=[1, 2, 3, 4])
    again.loads(tmp_path / "dump")
    assert torch.equal(again.sample()["index"], expected)


def test_a_mixture_pickles_by_its_datasets(members: Members) -> None:
    mixture = Mixture(members, 8, weights=[1, 2, 3, 4], seed=0)
    mixture.sample()
    pickled = pickle.dumps(mixture)
    again = pickle.loads(pickled)
    assert len(pickled) < 30_000
    assert torch.equal(again.sample()["mark"], mixture.sample()["mark"])


def test_columns_and_rows_are_read_as_of_one_buffer(members: Members) -> None:
    mixture = Mixture(members[:2])
    marks = [*range(24), *range(MEMBER_STEP, MEMBER_STEP + 30)]
    assert mixture["mark"].flatten().tolist() == marks
    assert mixture["member"].tolist() == [0] * 24 + [1] * 30
    assert mixture[20:30]["mark"].flatten().tolist() == marks[20:30]
    assert mixture.members == tuple(storage.dataset.manifest.id for storage in members[:2])
    for row in (54, -1):
        with pytest.raises(IndexError):
            mixture.storage.gather(torch.tensor([3, row]))
        with pytest.raises(IndexError):
            mixture.storage.read(torch.tensor([3, row]))


def test_a_buffer_that_is_written_is_mixed_as_it_is_at_each_draw(members: Members) -> None:
    online = TensorDictReplayBuffer(storage=LazyTensorStorage(100))
    rows = Mixture(members[:1])[:].exclude("member", "index")
    online.extend(rows[:2])
    mixture = Mixture([members[0], online], 64, weights=[1, 1], seed=0)
    assert set(mixture.sample()["index"].tolist()) <= set(range(26))
    online.extend(rows[:20])
    drawn = torch.cat([mixture.sample()["index"] for _ in range(30)])
    assert set(drawn.tolist()) == set(range(24 + 22))
    online.empty()
    with refused(EmptyBuffer, found=["buffer 1"]):
        mixture.sample()
    with refused(Unsupported, found=["buffer 1"]):
        mixture.state_dict()
    with refused(UsageError, argument="epoch", found=("buffer 1",)):
        online.extend(rows[:2])
        Mixture([members[0], online], epoch="all")


def test_slices_of_a_full_ring_are_its_own(members: Members) -> None:
    online = TensorDictReplayBuffer(storage=LazyTensorStorage(10))
    rows = Mixture(members[:1])[:].exclude("member", "index")
    online.extend(rows[:14])  # rows 4 to 13, of trajectories that end at 6 and 18
    mixture = Mixture({members[0]: 0, online: 1}, 30, slice_len=3, seed=0)
    starts = {int(mark) for _ in range(40) for mark in mixture.sample()["mark"][::3]}
    assert starts == {4, *range(7, 12)}


def test_slices_of_environments_side_by_side_stay_in_theirs(members: Members) -> None:
    online = TensorDictReplayBuffer(storage=LazyTensorStorage(40, ndim=2))
    rows = Mixture(members[:1])[:].exclude("member", "index")
    online.extend(torch.stack([rows[:12], rows[12:]]))  # trajectories of 7, 5 and of 7, 5 rows
    mixture = Mixture({members[0]: 1, online: 1}, 60, slice_len=4, seed=0)
    ends = [6, 18, 23]  # the last marks of trajectories; at 11 and 12 an environment ends, begins
    for _ in range(20):
        batch = mixture.sample()
        for number, marks in zip(batch["member"][::4], batch["mark"].view(-1, 4), strict=True):
            assert (marks.diff() == 1).all()
            assert not any(end in marks[:-1] for end in ends)
            assert number == 0 or not {11, 12} <= set(marks.tolist())


WRONG: dict[str, tuple[dict[str, Any], type[UsageError], dict[str, Any]]] = {
    "no weights": ({"weights": [0] * 4}, UsageError, {"found": (0, 0, 0, 0)}),
    "negative": ({"weights": [1, -1, 1, 1]}, UsageError, {"found": (1, -1, 1, 1)}),
    "infinite": ({"weights": [1e308] * 4}, UsageError, {"found": (1e308,) * 4}),
    "too large": ({"weights": [10**400, 1, 1, 1]}, UsageError, {"found": [10**400, 1, 1, 1]}),
    "too few": ({"weights": [1, 2]}, WrongSize, {"expected": 4, "found": 2}),
    "a word": ({"weights": "size"}, UsageError, {"argument": "weights", "found": "size"}),
    "weights of all": (
        {"weights": [1, 1, 1, 1], "epoch": "all"},
        UsageError,
        {"argument": "weights", "found": [1, 1, 1, 1]},
    ),
    "an epoch": ({"epoch": "some"}, UsageError, {"argument": "epoch", "found": "some"}),
    "a sampler, too": (
        {"weights": "rows", "sampler": RandomSampler()},
        UsageError,
        {"argument": "sampler", "found": ["weights"]},
    ),
    "a seed": ({"seed": "0"}, UsageError, {"argument": "seed", "found": "0"}),
    "ranks": ({"num_replicas": 2}, UsageError, {"argument": "num_replicas"}),
    "a generator": (
        {"epoch": "all", "generator": torch.Generator()},
        UsageError,
        {"argument": "generator"},
    ),
    "long slices": ({"slice_len": 4}, WrongSize, {}),
}


@pytest.mark.parametrize("name", WRONG)
def test_arguments_that_make_no_mixture_are_refused(members: Members, name: str) -> None:
    arguments, error, attributes = WRONG[name]
    with refused(error, **attributes):
        Mixture(members, 12, **arguments).sample()


def test_one_member_that_is_not_in_a_list_is_refused(members: Members) -> None:
    buffer = TensorDictReplayBuffer(storage=members[0], batch_size=4)  # iterable, without an end
    for wrong in (buffer, Member(buffer), None):
        with refused(UsageError, argument="members", found=type(wrong).__name__):
            Mixture(wrong)  # type: ignore[arg-type]


def test_what_a_member_would_lose_is_refused(members: Members) -> None:
    def buffer(**arguments: Any) -> TensorDictReplayBuffer:
        return TensorDictReplayBuffer(storage=members[0], **arguments)

    for lost in ({"transform": abs}, {"sampler": SamplerWithoutReplacement()}, {"collate_fn": abs}):
        with refused(Unsupported, argument="members"):
            Mixture([buffer(**lost)])
    with refused(UsageError, argument="members"):
        Mixture([])
    with refused(UsageError, argument="members", found="str"):
        Mixture(["d4rl/hopper-medium-v2"])  # type: ignore[list-item]
    with refused(EmptyBuffer, argument="members"):
        Mixture([TensorDictReplayBuffer(storage=LazyTensorStorage(5))])
    with refused(Unsupported, found="LazyTensorStorage"):
        Mixture([LazyTensorStorage(5)])
    with refused(UsageError, argument="weights", found=[1.0]):
        Mixture({buffer(): 1.0}, weights=[1.0])
    assert Mixture([buffer(), Member(buffer(), name="expert")]).members[1] == "expert"


# Members with other columns, or other meanings of their numbers: mapped, or refused.


@pytest.fixture
def first(tmp_path: Path) -> DatasetStorage:
    return member(tmp_path, 0, [5, 6])


@pytest.fixture
def other(tmp_path: Path) -> DatasetStorage:
    """Wider observations of another type and name, half of the actions, and one column more."""
    rows = rows_of(1, [4, 4])
    for successor in ((), ("next",)):
        wide = rows.pop((*successor, "observation")).astype(np.float64)
        rows[*successor, "state"] = wide[:, :2]
    rows["info", "success"] = rows["next", "done"]
    rows["action",] = rows["action",] / 2
    return open_storage(write(tmp_path / "other", rows))


MAPPED: dict[str, Any] = {
    "drop": ["info"],
    "rename": {"state": "observation", ("next", "state"): ("next", "observation")},
    "scale": {"action": 2.0},
    "cast": {"observation": torch.float32, ("next", "observation"): "float32"},
    "pad": {"observation": 3, ("next", "observation"): 3},
}


def test_columns_that_differ_are_refused_with_a_table(
    first: DatasetStorage, other: DatasetStorage
) -> None:
    with pytest.raises(UsageError) as caught:
        Mixture([first, other])
    told = str(caught.value)
    names = [storage.dataset.manifest.id for storage in (first, other)]
    lines = [line.split("  ") for line in told.splitlines() if line.startswith("  ")]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    assert cells[:-1] == [
        ["column", *names],
        ["info.success", "-", "bool [1]"],
        ["next.observation", "float32 [3]", "-"],
        ["next.state", "-", "float64 [2]"],
        ["observation", "float32 [3]", "-"],
        ["state", "-", "float64 [2]"],
    ]
    assert "rename={old: new}" in told


def test_declared_columns_are_those_of_the_others(
    first: DatasetStorage, other: DatasetStorage
) -> None:
    mixture = Mixture([first, Member(other, **MAPPED)], 64, seed=0)
    for _ in range(4):  # one by one, and read ahead
        batch = mixture.sample()
        mine = batch["member"] == 1
        mark = batch["mark"].float()
        expected = mark.expand(-1, 3).clone()
        expected[mine, 2] = 0  # padded
        assert torch.equal(batch["observation"], expected)
        assert torch.equal(batch["action"], -mark)
        assert batch["next", "observation"].dtype == torch.float32
        assert 0 < mine.sum() < 64


def test_a_column_is_filled_as_another_member_has_it(
    first: DatasetStorage, other: DatasetStorage
) -> None:
    declared = {**MAPPED, "drop": []}
    filling = Member(first, fill={("info", "success"): True})
    mixture = Mixture([filling, Member(other, **declared)], 64, seed=0)
    batch = mixture.sample()
    done = batch["next", "done"]
    expected = torch.where(batch["member"].unsqueeze(1) == 0, torch.ones_like(done), done)
    assert torch.equal(batch["info", "success"], expected)
    assert torch.equal(
        mixture.storage.scalar_column(("info", "success"))[:11, 0], torch.ones(11) > 0
    )


def test_slices_and_states_of_mapped_members(first: DatasetStorage, other: DatasetStorage) -> None:
    def mixture(**changed: Any) -> Mixture:
        members = [first, Member(other, **(MAPPED | changed))]
        return Mixture(members, 12, slice_len=4, seed=0, epoch="all")

    running = mixture()
    state = running.state_dict()
    marks = torch.cat([batch["mark"].view(-1, 4) for batch in pickle.loads(pickle.dumps(running))])
    assert (marks.diff() == 1).all() and len(marks) == 4
    mixture().load_state_dict(state)
    scaled = mixture(scale={"action": 3.0})
    with pytest.raises(WrongState) as error:
        scaled.load_state_dict(state)
    contents = [each["dataset"]["content"] for each in (state, scaled.state_dict())]
    assert [error.value.expected, error.value.found] == contents


WRONG_COLUMNS: dict[str, tuple[dict[str, Any], type[UsageError], tuple[str, ...] | None]] = {
    "no such column": ({"cast": {"reward": "float32"}}, UnknownKey, ("reward",)),
    "no such group": ({"drop": ["infos"]}, UnknownKey, ("infos",)),
    "twice one key": ({"rename": {"mark": "action"}}, UsageError, ("action",)),
    "filled though there": ({"fill": {"mark": 0}}, UsageError, ("mark",)),
    "filled by nothing": ({"fill": {"goal": 0}}, UnknownKey, ("goal",)),
    "a filled row of another shape": ({"fill": {"extra": [1, 2, 3]}}, WrongSize, ("extra",)),
    "no dtype": ({"cast": {"action": "float33"}}, UsageError, None),
    "whole numbers scaled": ({"scale": {"mark": 0.5}}, WrongRows, ("mark",)),
    "other factors": ({"scale": {"action": [1.0, 2.0]}}, WrongSize, ("action",)),
    "cut": ({"pad": {"observation": 2}}, WrongSize, ("observation",)),
}


@pytest.mark.parametrize("name", WRONG_COLUMNS)
def test_what_cannot_be_mapped_is_refused(first: DatasetStorage, tmp_path: Path, name: str) -> None:
    arguments, error, key = WRONG_COLUMNS[name]
    rows = rows_of(2, [3]) | {("extra",): np.zeros((3, 2), np.float32)}
    with refused(error, key=key):
        Mixture([Member(first, **arguments), open_storage(write(tmp_path / "more", rows))])


def test_a_column_of_the_name_member_is_refused(tmp_path: Path) -> None:
    rows = rows_of(2, [3]) | {("member",): np.zeros((3, 1), np.float32)}
    storage = open_storage(write(tmp_path / "more", rows))
    with refused(WrongRows, key=("member",)):
        Mixture([storage])
    mixture = Mixture([Member(storage, rename={"member": "team"})], 4)
    assert mixture.sample()["team"].shape == (4, 1)


def test_rows_of_other_kinds_are_refused(first: DatasetStorage) -> None:
    plain = TensorDictReplayBuffer(storage=LazyTensorStorage(5))
    plain.reader.storage.write(slice(0, 5), plain.reader.storage.flatten(torch.zeros(5, 2)))
    with refused(WrongRows, argument="members", found="not TensorDicts"):
        Mixture([first, plain])


# Real datasets


def test_door_of_d4rl_and_of_minari_are_mixed(config: Config) -> None:
    names = ["demo/door-human", "demo/door-minari"]
    datasets_cli.download(names, verify=False)
    human, minari = (ExperienceReplay(name, download=False) for name in names)
    with pytest.raises(WrongRows) as caught:
        Mixture([human, minari])
    assert "observation" in caught.value.found
    keys = ["observation", ("next", "observation"), ("next", "reward")]
    mapped = Member(minari, drop=["info", ("next", "info")], cast=dict.fromkeys(keys, "float32"))
    mixture = Mixture({Member(human, drop=["info"]): 0.5, mapped: 0.5}, 64, seed=0)
    batch = mixture.sample()
    source = [human, minari]
    for at, (number, index) in enumerate(zip(batch["member"], batch["index"], strict=True)):
        row = source[number][int(index) - 299 * int(number)]
        assert torch.equal(batch["observation"][at], row["observation"].float())
        assert torch.equal(batch["next", "reward"][at], row["next", "reward"].float())


@pytest.mark.parametrize("wrong", [{"drop": "action"}, {"drop": 3}, {"rename": "x"}, {"scale": 3}])
def test_mappings_that_do_not_go_by_column_are_refused(wrong: Any) -> None:
    (name,) = wrong
    with refused(UsageError, argument=name, found=wrong[name]):
        Member(TensorDictReplayBuffer(), **wrong)


# Offline and online rows that differ: refused with both named, or their common entries chosen.


def online_of(data: TensorDict) -> TensorDictReplayBuffer:
    made = TensorDictReplayBuffer(storage=LazyTensorStorage(1000))
    made.extend(data)
    return made


def test_each_difference_is_named_with_what_both_have() -> None:
    number = torch.arange(5)
    odd = TensorDict(
        {"number": number.float(), ("next", "number"): torch.ones(5, 3), "action": number}, [5]
    )
    both = OfflineToOnline(buffer(5), online_of(odd), batch_size=4)
    with pytest.raises(UsageError) as caught:
        both.sample()
    for line in (
        "The rows of offline and online differ in action, next.number, number",
        "  column       offline   online",
        "  action       -         int64 []",
        "  next.number  int64 []  float32 [3]",
        "  number       int64 []  float32 []",
        "DoubleToFloat or RenameTransform",
    ):
        assert line in str(caught.value)


def test_rows_of_a_loop_with_fewer_entries_than_the_dataset_are_mixed_by_keys(door: str) -> None:
    replay = ExperienceReplay(door)
    online = online_of(replay[:50].select("observation", "action", ("next", "reward")))
    with pytest.raises(WrongRows) as caught:
        OfflineToOnline(replay, online).sample(8)
    assert "next.done" in caught.value.found
    told = str(caught.value).partition("keys=")[2].removesuffix(".")
    keys = ast.literal_eval(told)  # as the message says, to be pasted
    assert set(keys) == {"observation", "action", ("next", "reward")}
    batch = OfflineToOnline(replay, online, keys=keys).sample(8)
    assert set(batch.exclude("index").keys(True, True)) == set(keys)
    right = replay[batch["index", "index"]]  # rows of both are those of the dataset
    assert torch.equal(batch["next", "reward"], right["next", "reward"])


def test_keys_choose_entries_of_batches_that_are_all_offline_too() -> None:
    both = OfflineToOnline(buffer(5), buffer(0), keys="number")
    assert set(both.sample(4).keys()) == {"number", "index"}
    with refused(UnknownKey, argument="keys", key=("action",)):
        OfflineToOnline(buffer(5), buffer(0), keys=["number", "action"]).sample(4)


def test_a_group_among_the_keys_is_whole() -> None:
    both = OfflineToOnline(buffer(5), buffer(5), keys=["next"])
    assert set(both.sample(4).exclude("index").keys(True, True)) == {("next", "number")}


def test_a_transform_of_one_buffer_makes_both_alike() -> None:
    online = online_of(rows(range(500, 505)).rename_key_("number", "count"))
    with refused(WrongRows, found=["count", "number"]):
        OfflineToOnline(buffer(5), online).sample(4)
    online.append_transform(RenameTransform(["count"], ["number"]))
    assert OfflineToOnline(buffer(5), online).sample(4)["number"][2:].min() >= 500


def test_rows_on_different_devices_differ() -> None:
    here, there = ({("x",): torch.ones(2, 3, device=name)} for name in ("cpu", "meta"))
    assert different_keys(here, there) == [("x",)] and different_keys(here, {**here}) == []
    told = difference_table([("x",)], ["offline", "online"], [here, there])
    assert told.splitlines()[1] == "  x       float32 [3]  float32 [3] on meta"


def test_text_and_tensors_under_one_key_differ() -> None:
    words = [TensorDict({"x": "word"}, []) for _ in range(3)]
    text = TensorDictReplayBuffer(batch_size=2)
    text.extend(words)
    both = OfflineToOnline(online_of(TensorDict({"x": torch.ones(3)}, [3])), text)
    with refused(WrongRows, key=("x",)):
        both.sample(4)


def test_text_of_both_is_joined() -> None:
    made = [TensorDictReplayBuffer() for _ in range(2)]
    for word, each in zip(("old", "new"), made, strict=True):
        each.extend([TensorDict({"x": word}, []) for _ in range(3)])
    assert OfflineToOnline(*made).sample(4)["x"] == ["old", "old", "new", "new"]


@pytest.mark.parametrize("keys, found", [([], []), ([3], 3)])
def test_keys_that_name_no_entry_are_refused(keys: Any, found: object) -> None:
    with refused(UsageError, found=found):
        OfflineToOnline(buffer(5), buffer(5), keys=keys)
