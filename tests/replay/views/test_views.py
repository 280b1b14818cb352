"""Views: some trajectories or rows of a dataset."""

from __future__ import annotations

import gc
import pickle
import sys
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets_cli import (
    BatchStream,
    BlockShuffleSampler,
    DistributedSampler,
    ExperienceReplay,
    FrameStack,
    OfflineToOnline,
    PrioritizedSampler,
    PrioritizedSliceSampler,
    SamplerWithoutReplacement,
    SliceSampler,
    SliceSamplerWithoutReplacement,
    TensorDictReplayBuffer,
    open_dataset,
    open_storage,
)
from datasets_cli.errors import (
    EmptyBuffer,
    MissingFile,
    OutOfRange,
    RldsError,
    UnknownKey,
    Unsupported,
    UsageError,
    WrongSize,
    WrongState,
)
from datasets_cli.store import selection as selected_rows
from tests.replay.views.conftest import LENGTHS, MISSIONS, each_layout, install
from tests.support.refusals import check_refused, refused
from tests.support.text_rows import ID

STARTS = np.cumsum([0, *LENGTHS])


def rows_of(numbers: list[int]) -> list[int]:
    """Return the dataset's rows of trajectories, one after the other."""
    return [row for number in numbers for row in range(STARTS[number], STARTS[number + 1])]


def assert_rows(batch: Any, rows: list[int]) -> None:
    """Check a batch, value by value, against what ``conftest.install`` wrote of these rows."""
    assert batch["action"].flatten().tolist() == rows
    right = np.arange(2.0 * STARTS[-1]).reshape(-1, 2)[rows]
    np.testing.assert_array_equal(batch["observation", "x"], right)
    np.testing.assert_array_equal(
        batch["observation", "frame"].flatten(1), np.arange(STARTS[-1] * 8).reshape(-1, 8)[rows]
    )
    assert batch["observation", "mission"] == [MISSIONS[row % len(MISSIONS)] for row in rows]


# Rows


@each_layout
@pytest.mark.parametrize("numbers", [[2], [1, 2], [4, 0], [3, 3, 1], [], [0, 1, 2, 3, 4]])
def test_a_view_has_the_rows_of_its_trajectories_in_its_order(
    replay: ExperienceReplay, numbers: list[int]
) -> None:
    view = replay.episodes_at(numbers)
    rows = rows_of(numbers)
    assert len(view) == len(rows)
    if rows:
        assert_rows(view[:], rows)
        assert_rows(view[[-1, 0]], [rows[-1], rows[0]])
        assert view["action"].flatten().tolist() == rows
    for episode, number in zip(view.episodes(), numbers, strict=True):
        assert_rows(episode, rows_of([number]))


@each_layout
def test_rows_that_a_view_does_not_have_are_refused(replay: ExperienceReplay) -> None:
    for view in replay.episodes_at([1, 2]), replay.episodes_at([4, 0]):
        for row in len(view), -len(view) - 1:
            with pytest.raises(IndexError):
                view[row]
        with pytest.raises(IndexError):
            view.storage.gather(torch.tensor([len(view)]))


@each_layout
def test_a_view_of_many_rows_searches_for_their_trajectory(
    replay: ExperienceReplay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selected_rows, "MAPPED_ROWS", 3)
    view = replay.episodes_at([4, 0, 4, 1])
    assert_rows(view[:], rows_of([4, 0, 4, 1]))
    for row in 17, -1:
        with refused(OutOfRange, expected="0 to 16", found=f"{row} to {row}"):
            view.storage.gather(torch.tensor([row]))


@settings(max_examples=25)
@given(data=st.data())
def test_views_of_views_are_those_of_a_list_of_rows(
    data: st.DataObject, toy: ExperienceReplay
) -> None:
    view = toy
    episodes = [rows_of([number]) for number in range(len(LENGTHS))]  # what a slow view would keep
    for _ in range(data.draw(st.integers(1, 4))):
        if data.draw(st.booleans()):
            places = st.integers(0, max(0, len(episodes) - 1))
            numbers = data.draw(st.lists(places, max_size=6)) if episodes else []
            view = view.episodes_at(numbers)
            episodes = [episodes[number] for number in numbers]
        else:
            total = sum(map(len, episodes))
            start, stop = sorted(data.draw(st.tuples(*[st.integers(0, total)] * 2)))
            view = view.rows(start, stop)
            episodes = _cut(episodes, start, stop)
    assert len(view) == sum(map(len, episodes))
    found = [batch["action"].flatten().tolist() for batch in view.episodes()]
    assert found == episodes
    table = view.trajectories
    assert table["length"].tolist() == [len(rows) for rows in episodes]
    assert table["return"].tolist() == [sum(rows) / 2 for rows in episodes]
    assert table["terminated"].tolist() == [rows[-1] + 1 in STARTS for rows in episodes]


def _cut(episodes: list[list[int]], start: int, stop: int) -> list[list[int]]:
    found, row = [], 0
    for rows in episodes:
        kept = [each for place, each in enumerate(rows, row) if start <= place < stop]
        row += len(rows)
        found += [kept] if kept else []
    return found


def test_a_dataset_that_nobody_has_is_let_go_at_once(root: Path) -> None:
    folder = root / "datasets" / install(root, "ted")
    gc.disable()  # what is part of a circle would wait for it, with its files mapped
    try:
        storage = open_storage(folder)
        seen = weakref.ref(storage.dataset)
        del storage
        assert seen() is None
    finally:
        gc.enable()


# Samplers


SAMPLERS: dict[str, Callable[[], Any]] = {
    "without replacement": SamplerWithoutReplacement,
    "distributed": lambda: DistributedSampler(num_replicas=1, rank=0),
    "blocks": lambda: BlockShuffleSampler(block_len=2, window=2),
    "prioritised": lambda: PrioritizedSampler(40, alpha=0.7, beta=0.5),
    "slices": lambda: SliceSampler(slice_len=3),
    "slices once": lambda: SliceSamplerWithoutReplacement(slice_len=3),
    "prioritised slices": lambda: PrioritizedSliceSampler(40, 0.7, 0.5, slice_len=3),
}


@pytest.mark.parametrize("name", SAMPLERS)
@settings(max_examples=3)
@given(
    numbers=st.lists(st.integers(0, len(LENGTHS) - 1), min_size=1, max_size=5),
    seed=st.integers(0, 9),
)
def test_every_sampler_draws_the_rows_of_a_view_alone(
    name: str, numbers: list[int], seed: int, toy: ExperienceReplay
) -> None:
    long = [number for number in numbers if LENGTHS[number] >= 3]
    drawable = rows_of(long if "slices" in name else numbers)
    view = toy.episodes_at(numbers)
    view.set_sampler(SAMPLERS[name]())
    view.set_rng(torch.Generator().manual_seed(seed))
    rows = rows_of(numbers)
    seen: set[int] = set()
    for _ in range(200 if drawable else 0):  # the first row is one start of six
        batch = view.sample()
        drawn = [rows[place] for place in batch["index"].flatten().tolist()]
        assert batch["action"].flatten().tolist() == drawn
        seen |= {*drawn}
        if "slices" in name:
            assert (np.diff(np.array(drawn).reshape(-1, 3)) == 1).all()
    assert seen == {*drawable}


@each_layout
def test_an_epoch_of_a_view_has_each_of_its_rows_once(replay: ExperienceReplay) -> None:
    replay.set_sampler(SamplerWithoutReplacement())
    next(iter(replay))  # the dataset's own epoch is another one
    view = replay.episodes_at([3, 4])
    drawn = [row for batch in view for row in batch["action"].flatten().tolist()]
    assert sorted(drawn) == rows_of([3, 4])
    assert len([*replay]) == 3  # of 20 rows in batches of 6 the first was drawn before


def test_a_view_draws_by_itself_and_from_the_same_seed(replay: ExperienceReplay) -> None:
    first = [replay.episodes_at([0, 2]).sample()["index"].tolist() for _ in range(2)]
    before = replay.sample()["index"].tolist()
    again = ExperienceReplay(replay.dataset_id, 6, root=replay.config.root, seed=0, download=False)
    assert first[0] == first[1]
    assert before == again.sample()["index"].tolist()


def test_priorities_of_a_view_are_its_own(replay: ExperienceReplay) -> None:
    replay.set_sampler(PrioritizedSampler(20, alpha=1.0, beta=1.0))
    replay.update_priority(torch.arange(20), 1e-9)
    view = replay.episodes_at([2])
    view.update_priority(torch.arange(6), torch.tensor([0.0, 0, 0, 0, 1e6, 0]))
    assert {*view.sample(100)["index"].tolist()} == {4}
    assert len({*replay.sample(100)["index"].tolist()}) > 4


# Formats, frames, workers


@each_layout
@pytest.mark.parametrize("format", ["numpy", "jax"])
def test_a_view_gives_arrays_too(replay: ExperienceReplay, format: str) -> None:
    view = replay.with_format(format, cast=format == "jax").episodes_at([2, 0])
    batch = view.sample()
    rows = rows_of([2, 0])
    right = [rows[place] for place in np.asarray(batch["index"]).tolist()]
    assert np.asarray(batch["action"]).flatten().tolist() == right


def test_stacks_of_a_view_have_no_step_that_is_not_in_it(root: Path) -> None:
    id = install(root, "compact")
    whole = ExperienceReplay(id, 6, root=root, download=False)
    stacks = FrameStack(whole.storage, 3, key=("observation", "x"))
    replay = whole.with_storage(stacks)
    replay._rows, replay._stored = whole._rows, stacks
    view = replay.rows(6, 11)  # from the second step of the trajectory that begins at row 5
    found = view[:]["observation", "x"][:, :, 0].tolist()
    assert found == [[0, 0, 12], [0, 12, 14], [12, 14, 16], [14, 16, 18], [16, 18, 20]]


def test_transforms_of_a_view_are_added_to_it_alone(replay: ExperienceReplay) -> None:
    replay.append_transform(lambda batch: batch.set("twice", batch["action"] * 2))
    view = replay.episodes_at([1, 3])
    view.append_transform(lambda batch: batch.set("thrice", batch["action"] * 3))
    batch = view.sample()
    assert torch.equal(batch["twice"] * 3, batch["thrice"] * 2)
    assert "thrice" not in replay.sample()


def test_a_copy_of_a_stream_draws_from_the_view(replay: ExperienceReplay) -> None:
    stream = BatchStream(replay.episodes_at([2, 4]), num_batches=20, seed=0)
    of_worker = pickle.loads(pickle.dumps(stream))  # as a loader hands it to a worker
    rows = {row for batch in of_worker for row in batch["action"].flatten().tolist()}
    assert rows == {*rows_of([2, 4])}


def test_a_view_pickles_as_numbers_of_trajectories(root: Path) -> None:
    id = install(root, "ted", (3,) * 4000)
    view = ExperienceReplay(id, 6, root=root, download=False).episodes_at(np.arange(0, 4000, 2))
    assert len(pickle.dumps(view.storage)) < 2000 * 5 + 1000
    again = pickle.loads(pickle.dumps(view))
    assert torch.equal(again["action"], view["action"])


def test_a_state_of_another_view_is_refused(replay: ExperienceReplay) -> None:
    state = replay.episodes_at([0, 2]).state_dict()
    replay.episodes_at([0, 2]).load_state_dict(state)
    for other in replay.episodes_at([2, 0]), replay:
        with refused(WrongState, id=ID, expected=state["dataset"]["view"]):
            other.load_state_dict(state)


def test_a_view_is_made_in_few_calls_since_it_shares_what_it_does_not_change(
    toy: ExperienceReplay,
) -> None:
    toy.filter("return > 3")  # the returns are known from now on
    calls: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        # The garbage of other tests may be collected meanwhile.
        is_own = "datasets_cli" in code.co_filename and code.co_name != "__del__"
        if event == "call" and is_own and code.co_name[0] != "<":
            calls.append(code.co_qualname)

    sys.setprofile(note)
    try:
        view = toy.filter("return > 3")
    finally:
        sys.setprofile(None)
    assert 10 < len(calls) <= 55, " ".join(calls)
    assert view.writer is toy.writer
    assert view.sampler is not toy.sampler


# What is refused


@each_layout
def test_an_empty_view_says_so_when_it_is_drawn_from(replay: ExperienceReplay) -> None:
    empty = replay.filter("return > 1000")
    assert len(empty) == 0 == len(empty.trajectories)
    assert "0 transitions in 0 trajectories" in repr(empty)
    assert "chosen by filter('return > 1000')" in repr(empty)
    for sampler in SAMPLERS.values():
        view = replay.episodes_at([])
        view.set_sampler(sampler())
        with pytest.raises(EmptyBuffer) as caught:
            view.sample()
        assert "episodes_at([])" in str(caught.value)
    with pytest.raises(IndexError) as outside:
        empty[0]
    assert "filter('return > 1000')" in str(outside.value)
    online = TensorDictReplayBuffer(batch_size=2)
    with pytest.raises(EmptyBuffer) as caught:
        OfflineToOnline(empty, online, batch_size=2).sample()
    assert "filter('return > 1000')" in str(caught.value)
    assert empty.to_pandas().shape == (0, len(replay.to_pandas().columns))


def test_a_view_s_dataset_is_not_deleted_by_it(replay: ExperienceReplay) -> None:
    with refused(Unsupported, id=ID):
        replay.episodes_at([0]).delete()
    assert replay.data_path.exists()


@each_layout
def test_a_view_stays_readable_after_its_dataset_was_deleted(replay: ExperienceReplay) -> None:
    view = replay.episodes_at([2])
    view.sample()
    replay.delete()
    assert_rows(view[:], rows_of([2]))
    with pytest.raises(FileNotFoundError):
        pickle.loads(pickle.dumps(view.storage))


def test_a_view_of_other_rows_than_the_dataset_s_is_refused(replay: ExperienceReplay) -> None:
    buffer = TensorDictReplayBuffer()
    replay.set_storage(buffer.storage)
    with refused(Unsupported, id=ID):
        replay.episodes_at([0])


# Which trajectories filter, split and take keep.


def numbers_of(view: ExperienceReplay) -> list[int]:
    return view.trajectories["number"].tolist()


# filter


def test_a_function_of_the_table_gives_a_mask_or_numbers(toy: ExperienceReplay) -> None:
    longest = toy.filter(lambda table: table["length"] == table["length"].max())
    assert numbers_of(longest) == [2, 4]
    assert numbers_of(toy.filter(lambda table: np.argsort(-table["return"])[:2])) == [4, 2]
    assert numbers_of(longest.filter("number > 2")) == [4]


@pytest.mark.parametrize("wrong", [3, None, [True] * 5])
def test_a_filter_that_is_neither_text_nor_function_is_refused(
    toy: ExperienceReplay, wrong: Any
) -> None:
    with refused(UsageError, argument="where", found=wrong):
        toy.filter(wrong)


def test_a_function_that_lacks_its_return_is_refused(toy: ExperienceReplay) -> None:
    with refused(UsageError, argument="where", expected="a mask or numbers", found="None"):
        toy.filter(lambda table: None)  # type: ignore[arg-type, return-value]


def test_a_mask_of_another_length_is_refused(toy: ExperienceReplay) -> None:
    expected = "whole numbers, or a mask of 5 bools"
    with refused(UsageError, expected=expected, found="bool [4]"):
        toy.filter(lambda table: np.ones(4, bool))


# split


@pytest.mark.parametrize(
    ("fractions", "sizes"),
    [
        ((0.9,), [90, 10]),
        ((0.8, 0.1), [80, 10, 10]),
        ((0.5, 0.5), [50, 50]),
        ((0.33,) * 3, [33, 33, 33, 1]),
        ((0.0, 1.0), [0, 100]),
    ],
)
def test_parts_of_a_split_are_disjoint_and_together_all(
    root: Path, fractions: tuple[float, ...], sizes: list[int]
) -> None:
    replay = ExperienceReplay(install(root, "ted", (1,) * 100), root=root, download=False)
    parts = replay.split(*fractions)
    assert [len(part) for part in parts] == sizes
    assert sorted(number for part in parts for number in numbers_of(part)) == [*range(100)]
    assert all(numbers_of(part) == sorted(numbers_of(part)) for part in parts)


def test_a_seed_decides_a_split(root: Path) -> None:
    replay = ExperienceReplay(install(root, "ted", (1,) * 100), root=root, download=False)
    first, again, other = (replay.split(0.5, seed=seed)[0] for seed in (0, 0, 1))
    assert numbers_of(first) == numbers_of(again) != numbers_of(other)
    # Kept by everyone who wrote it down, so it never changes.
    assert numbers_of(first)[:8] == SPLIT_OF_SEED_0


def test_a_part_of_a_split_that_is_empty_is_told(toy: ExperienceReplay) -> None:
    with pytest.warns(UserWarning, match=r"Part 1 of split\(0.95, .* 5 traj") as told:
        assert [len(part.trajectories) for part in toy.split(0.95)] == [5, 0]
    assert len(told) == 1 and told[0].filename == __file__
    assert [len(part) for part in toy.take(0).split(0.5)] == [0, 0]  # sampling says why


SPLIT_OF_SEED_0 = [1, 2, 4, 5, 6, 8, 10, 18]


@pytest.mark.parametrize(
    "wrong", [(), (-0.1,), (0.6, 0.6), ("0.5",), (float("nan"),), (True,), ([0.5],)]
)
def test_fractions_that_are_none_are_refused(toy: ExperienceReplay, wrong: Any) -> None:
    with refused(UsageError, argument="fractions"):
        toy.split(*wrong)


# take


@pytest.mark.parametrize(
    ("arguments", "numbers"),
    [
        ({"count": 2}, [0, 1]),
        ({"count": 2, "by": "-length"}, [2, 4]),
        ({"count": 3, "by": "-return"}, [4, 2, 3]),
        ({"count": 2, "by": "return"}, [1, 0]),
        ({"count": 0.4, "by": "-return"}, [4, 2]),
        ({"count": 1.0, "by": "number"}, [0, 1, 2, 3, 4]),
        ({"count": 0}, []),
    ],
)
def test_the_best_are_taken_best_first(
    toy: ExperienceReplay, arguments: Any, numbers: list[int]
) -> None:
    assert numbers_of(toy.take(**arguments)) == numbers


@pytest.mark.parametrize(
    ("arguments", "error", "attributes"),
    [
        ({"count": 6}, WrongSize, {"argument": "count", "expected": "5 at most", "found": 6}),
        ({"count": 0.05}, WrongSize, {"argument": "count", "expected": "0.2 or more"}),
        ({"count": "a"}, UsageError, {"argument": "count", "found": "a"}),
        ({"count": True}, UsageError, {"argument": "count", "found": True}),
        ({"count": -1}, UsageError, {"argument": "count", "found": -1}),
        ({"count": 1.5}, UsageError, {"expected": "a fraction from 0.0 to 1.0", "found": 1.5}),
        ({"count": float("nan")}, UsageError, {"expected": "a fraction from 0.0 to 1.0"}),
        ({"count": 2, "by": "score"}, UnknownKey, {"key": "score"}),
    ],
)
def test_what_cannot_be_taken_is_refused(
    toy: ExperienceReplay, arguments: Any, error: type[UsageError], attributes: dict[str, Any]
) -> None:
    with refused(error, **attributes):
        toy.take(**arguments)


@pytest.mark.parametrize("num_trajectories", [1, 2, 7, 150])
def test_the_least_fraction_that_a_refusal_names_leaves_a_trajectory(
    root: Path, num_trajectories: int
) -> None:
    id = install(root, "ted", (1,) * num_trajectories)
    replay = ExperienceReplay(id, root=root, download=False)
    with pytest.raises(WrongSize) as refusal:
        replay.take(0.001)
    least = float(str(refusal.value.expected).removesuffix(" or more"))
    assert numbers_of(replay.take(least)) == [0]
    assert numbers_of(replay.take(0.0)) == []


# What is not there: an error of this package, which is also the builtin one would expect.


def test_rows_and_trajectories_beyond_the_end_are_an_index_error(door: str) -> None:
    replay, rows = ExperienceReplay(door, 8), open_dataset(door)
    calls: list[Any] = [
        partial(replay.__getitem__, len(replay)),
        partial(replay.__getitem__, torch.ones(3, dtype=torch.bool)),
        partial(replay.episodes_at, [5]),
        partial(replay.episode, 5),
        partial(replay.rows, 10, 5),
        partial(replay.rows, 0, 10**6),
        partial(replay.storage.run, -1, 3),
        partial(rows.run, 5, 3),
        partial(rows.run, 0, 10**6),
        partial(rows.get, torch.tensor([len(rows)])),
    ]
    for error in check_refused(OutOfRange, [("", call) for call in calls]):
        assert isinstance(error, RldsError) and isinstance(error, IndexError)
        assert "bound" not in str(error) and "torch" not in str(error)


def test_columns_that_are_not_there_are_a_key_error(door: str) -> None:
    replay = ExperienceReplay(door, 8)
    calls: list[Any] = [
        partial(replay.__getitem__, "nosuch"),
        partial(replay.trajectories.__getitem__, "retrun"),
        partial(replay.trajectories.reduce, "nosuch", "max"),
        partial(replay.take, 1, "nosuch"),
        partial(replay.specs.__getitem__, "nosuch"),
    ]
    for error in check_refused(UnknownKey, [("nosuch|retrun", call) for call in calls]):
        assert isinstance(error, RldsError) and isinstance(error, KeyError)


def test_files_that_are_not_there_are_a_file_not_found_error(door: str, tmp_path: Path) -> None:
    replay = ExperienceReplay(door, 8)
    calls: list[Any] = [
        partial(replay.loads, tmp_path / "nodump"),
    ]
    for error in check_refused(MissingFile, [("nodump", call) for call in calls]):
        assert isinstance(error, RldsError) and isinstance(error, FileNotFoundError)


def test_fewer_workers_than_none_are_refused_by_name(door: str) -> None:
    with refused(UsageError, argument="num_workers", found=-1):
        BatchStream(ExperienceReplay(door, 8)).loader(num_workers=-1)
