"""Columns of a dataset's storage: text, chosen ones, dots in their names."""

from __future__ import annotations

import itertools
import json
import math
import pickle
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tensordict import NonTensorStack, TensorDict

from datasets_cli import (
    DistributedSampler,
    ExperienceReplay,
    FrameStack,
    PrioritizedSampler,
    ReplayBufferEnsemble,
    SamplerWithoutReplacement,
    SliceSampler,
    TensorDictReplayBuffer,
    dataset_stats,
    open_storage,
    peek,
    split_trajectories,
)
from datasets_cli.errors import UnknownKey, Unsupported, UsageError, WrongRows, WrongSize
from datasets_cli.experience.qlearning import qlearning_dataset
from datasets_cli.replay.storages.collate import stack_texts
from datasets_cli.replay.storages.dataset import DatasetStorage
from datasets_cli.replay.storages.description import TAG, VALUES, RowsJson, describe, value_of
from datasets_cli.schema.columns import key_in
from datasets_cli.schema.tree import entry, leaves_in
from tests.support.refusals import refused
from tests.support.text_rows import LENGTHS, ODD_TEXTS, objects, steps_of, successors, write

# Text in batches: non-tensor entries that follow the rows through everything a buffer does.


MISSION = ("observation", "mission")
NEXT_MISSION = ("next", "observation", "mission")
NUM_ROWS = sum(LENGTHS)


each_layout = pytest.mark.parametrize("folder", ["ted", "compact"], indirect=True)


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    pairs = objects([f"{row}{side}" for row in range(NUM_ROWS) for side in "ab"], (2,))
    frames = np.arange(NUM_ROWS * 1200, dtype=np.uint8).reshape(NUM_ROWS, 1200)
    steps = steps_of(ODD_TEXTS, frame=frames) | {("info", "pair"): pairs}
    return write(tmp_path, getattr(request, "param", "compact"), steps)


@pytest.fixture
def storage(folder: Path) -> DatasetStorage:
    return open_storage(folder, text=True)


def missions() -> list[str]:
    return [ODD_TEXTS[row % len(ODD_TEXTS)] for row in range(NUM_ROWS)]


def next_missions() -> list[str]:
    ends = np.zeros(NUM_ROWS, bool)
    ends[np.cumsum(LENGTHS) - 1] = True
    return successors(missions(), ends)


def assert_texts(batch: TensorDict, rows: Any) -> None:
    """Compare the text of a batch with that of its rows."""
    rows = [int(row) for row in rows]
    assert batch[MISSION] == [missions()[row] for row in rows]
    assert batch[NEXT_MISSION] == [next_missions()[row] for row in rows]
    assert batch["info", "pair"] == [[f"{row}a", f"{row}b"] for row in rows]
    assert batch["observation", "x"][:, 0].tolist() == [2 * row for row in rows]
    for key, shape in ((MISSION, []), (("info", "pair"), [2])):
        entry = batch.get(key)
        assert isinstance(entry, NonTensorStack)
        assert list(entry.batch_size) == [len(rows), *shape]


# Batches


@each_layout
@pytest.mark.parametrize(
    "sampler",
    [
        lambda: None,
        SamplerWithoutReplacement,
        lambda: PrioritizedSampler(NUM_ROWS, 0.7, 0.5),
        lambda: DistributedSampler(2, 1),
        lambda: SliceSampler(slice_len=3, truncated_key=None),
        lambda: SliceSampler(slice_len=3),
    ],
)
def test_every_sampler_gives_the_text_of_its_rows(sampler: Any, storage: DatasetStorage) -> None:
    buffer = TensorDictReplayBuffer(storage=storage, sampler=sampler(), batch_size=6)
    for _ in range(3):
        batch = buffer.sample()
        assert_texts(batch, batch["index"])


@pytest.mark.parametrize("depth", [0, 3])
def test_an_epoch_has_every_text_once(depth: int, storage: DatasetStorage) -> None:
    sampler = SamplerWithoutReplacement()
    buffer = TensorDictReplayBuffer(
        storage=storage, sampler=sampler, batch_size=4, prefetch=depth, seed=0
    )
    batches = [*buffer]
    for batch in batches:
        assert_texts(batch, batch["index"])
    seen = itertools.chain.from_iterable(batch[MISSION] for batch in batches)
    assert sorted(seen) == sorted(missions())


@each_layout
def test_rows_and_slices_and_columns_have_it(storage: DatasetStorage) -> None:
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=4)
    assert_texts(buffer[:], range(NUM_ROWS))
    assert_texts(buffer[3:9], range(3, 9))
    assert_texts(buffer[[5, -1, 5]], [5, NUM_ROWS - 1, 5])
    assert_texts(buffer[5:5], [])
    assert buffer[4][MISSION] == missions()[4]
    assert buffer[4]["info", "pair"] == ["4a", "4b"]
    grid = buffer[torch.tensor([[0, 1], [2, 3]])]
    assert grid[MISSION] == [missions()[:2], missions()[2:4]]
    assert buffer[MISSION] == missions()
    assert buffer["info", "pair"] == [[f"{row}a", f"{row}b"] for row in range(NUM_ROWS)]
    assert buffer["observation"]["mission"] == missions()
    assert buffer["next"]["observation", "mission"] == next_missions()
    assert buffer["info"]["pair"][2] == ["2a", "2b"]


def test_a_text_that_is_changed_changes_no_other(storage: DatasetStorage) -> None:
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=4)
    batch = buffer[[2, 2, 2]]
    batch[MISSION][1] = "changed"
    assert batch[MISSION] == [missions()[2], "changed", missions()[2]]
    batch.get(MISSION).tensordicts[0].data = "too"
    assert_texts(buffer[[2, 2, 2]], [2, 2, 2])
    column = buffer[MISSION]
    column[0] = "changed"
    assert buffer[MISSION] == missions()


def test_what_tensordict_does_with_batches_works(storage: DatasetStorage) -> None:
    batch = storage.get(torch.arange(6))
    assert_texts(batch.clone(), range(6))
    assert_texts(torch.cat((batch[:2], batch[2:])), range(6))
    assert_texts(torch.stack((batch, batch))[1], range(6))
    assert_texts(batch.reshape(2, 3).reshape(-1), range(6))
    assert_texts(pickle.loads(pickle.dumps(batch)), range(6))
    assert_texts(batch[torch.tensor([3, 1])], [3, 1])
    assert_texts(batch.to("cpu"), range(6))
    assert [part[MISSION] for part in batch.unbind(0)] == missions()[:6]
    mapped = batch.apply(lambda leaf: leaf + 1 if leaf.is_floating_point() else leaf)
    assert mapped[MISSION] == missions()[:6]
    assert batch.lock_().is_locked
    assert not storage.get(torch.arange(6)).is_locked


def test_entries_are_those_of_tensordicts_own_constructor() -> None:
    own = NonTensorStack("a", "", "é")
    ours = stack_texts(["a", "", "é"], ())
    assert ours.__dict__.keys() == own.__dict__.keys()
    assert (ours.batch_size, ours.device, ours.tolist()) == (
        own.batch_size,
        own.device,
        ["a", "", "é"],
    )
    entry, right = ours.tensordicts[0], own.tensordicts[0]
    assert entry.__dict__.keys() == right.__dict__.keys()
    assert entry._non_tensordict == right._non_tensordict
    assert (entry.batch_size, entry.device, entry.data) == (right.batch_size, right.device, "a")
    assert len({id(each._tensordict) for each in ours.tensordicts}) == 3
    assert stack_texts([], ()).batch_size == (0,)
    assert stack_texts([[], []], (0,)).batch_size == (2, 0)
    assert stack_texts([["a"], ["b"]], (1,)).tolist() == [["a"], ["b"]]


def test_transforms_that_touch_no_text_leave_it(storage: DatasetStorage) -> None:
    def doubled(batch: TensorDict) -> TensorDict:
        batch["observation", "x"] = batch["observation", "x"] * 2
        return batch

    buffer = TensorDictReplayBuffer(storage=storage, batch_size=5, transform=doubled)
    batch = buffer.sample()
    assert batch[MISSION] == [missions()[row] for row in batch["index"]]
    assert buffer[MISSION] == missions()


def test_frame_stacks_have_the_text_of_their_row(storage: DatasetStorage) -> None:
    stack = FrameStack(storage, 3, key=("observation", "frame"))
    buffer = TensorDictReplayBuffer(storage=stack, batch_size=5)
    batch = buffer.sample()
    assert batch["observation", "frame"].shape == (5, 3, 1200)
    assert_texts(batch, batch["index"])
    assert buffer[MISSION] == missions()
    with refused(WrongRows, key=("observation", "mission")):
        FrameStack(storage, 3, key=MISSION)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_text_is_in_memory_whatever_the_device(device: str, folder: Path) -> None:
    storage = open_storage(folder, text=True, device="cpu")
    batch = storage.get(torch.tensor([1, 4])).to(device)
    assert batch[MISSION] == [missions()[1], missions()[4]]


@each_layout
def test_a_pickled_storage_reads_text_if_it_did(folder: Path, storage: DatasetStorage) -> None:
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=4, seed=0)
    copy = pickle.loads(pickle.dumps(buffer))
    batch = copy.sample()
    assert_texts(batch, batch["index"])
    plain = pickle.loads(pickle.dumps(open_storage(folder)))
    assert MISSION not in plain.get(torch.arange(2)).keys(True)


# Where it is not asked for


@each_layout
def test_text_that_is_not_asked_for_is_in_no_batch(folder: Path) -> None:
    storage = open_storage(folder)
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=4)
    assert MISSION not in storage.dataset.keys
    assert not storage.has(MISSION)
    batch = buffer.sample()
    assert {type(entry) for entry in batch.values(True, True)} == {torch.Tensor}
    assert "mission" not in batch["observation"].keys()  # noqa: SIM118
    with refused(UnknownKey, key=("observation", "mission")):
        buffer[MISSION]
    with refused(UnknownKey, key=("observation", "nothing")):
        buffer["observation", "nothing"]


def test_the_storage_says_what_text_it_has(folder: Path, storage: DatasetStorage) -> None:
    assert storage.has(MISSION)
    assert MISSION in storage.dataset.keys
    assert "observation.mission: text [14]\n" in repr(storage)
    assert "info.pair: text [14, 2]" in repr(storage)
    assert "observation.mission: text [14], not read: pass text=True" in repr(open_storage(folder))


def test_text_cannot_tell_trajectories_apart(storage: DatasetStorage) -> None:
    sampler = SliceSampler(slice_len=2, traj_key=MISSION)
    buffer = TensorDictReplayBuffer(storage=storage, sampler=sampler, batch_size=4)
    with refused(WrongRows, key=("observation", "mission")):
        buffer.sample()


def test_a_qlearning_dataset_leaves_text_out(tmp_path: Path) -> None:
    steps = steps_of(["a"])
    del steps["observation", "mission"]
    steps["observation",] = steps.pop(("observation", "x"))
    steps["info", "say"] = objects(["a"] * NUM_ROWS)
    columns = qlearning_dataset(open_storage(write(tmp_path, "ted", steps), text=True))
    assert columns["observations"].shape == (NUM_ROWS, 2)
    assert {array.dtype for array in columns.values()} == {np.dtype("f4"), np.dtype(bool)}


# Trajectories and ensembles


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("as_nested", [False, True, torch.jagged])
def test_split_trajectories_have_their_text(as_nested: Any, storage: DatasetStorage) -> None:
    split = split_trajectories(storage.get(torch.arange(9)), as_nested=as_nested)
    assert len(split) == 3
    ends = [0, 4, 5, 9]
    runs = [missions()[start:stop] for start, stop in itertools.pairwise(ends)]
    pairs = [[[f"{row}a", f"{row}b"] for row in range(*run)] for run in itertools.pairwise(ends)]
    if not as_nested:
        assert split["mask"].sum(1).tolist() == [len(run) for run in runs]
        runs = [run + [""] * (4 - len(run)) for run in runs]
        pairs = [run + [["", ""]] * (4 - len(run)) for run in pairs]
    assert split[MISSION] == runs
    assert split["info", "pair"] == pairs


def test_members_of_an_ensemble_must_agree_on_text(folder: Path, storage: DatasetStorage) -> None:
    with_text = TensorDictReplayBuffer(storage=storage, batch_size=4)
    without = TensorDictReplayBuffer(storage=open_storage(folder), batch_size=4)
    batch = ReplayBufferEnsemble(with_text, with_text, batch_size=8).sample_flat()
    assert batch[MISSION] == [missions()[row] for row in batch["index", "index"]]
    mixed = ReplayBufferEnsemble(with_text, without, batch_size=8, sample_from_all=True)
    names = ["info.pair", "next.observation.mission", "observation.mission"]
    with refused(WrongRows, found=names):
        mixed.sample_flat()


@each_layout
def test_an_entry_of_some_rows_is_that_of_their_batch(folder: Path) -> None:
    storage, rows = open_storage(folder, text=True), torch.tensor([5, 0, 5])
    batch = storage.get(rows)
    for key in [column.key for column in storage.dataset.manifest.columns]:
        found = storage.entry(key, rows)
        assert found is not None and torch.equal(found, batch[key])
    assert storage.entry(MISSION, rows) == batch[MISSION]
    assert storage.entry(("missing",), rows) is None


# Columns that are chosen when a dataset is opened: nothing else is in a batch, in any layout.


SUCCESSOR = ("next", "observation")
CHOICES: list[tuple[Any, set[tuple[str, ...]]]] = [
    ("action", {("action",)}),
    ([("observation", "x")], {("observation", "x")}),
    ([(*SUCCESSOR, "x"), "action"], {(*SUCCESSOR, "x"), ("action",)}),
    ([(*SUCCESSOR, "frame")], {(*SUCCESSOR, "frame")}),
    (
        [("observation", "frame"), ("next", "reward")],
        {("observation", "frame"), ("next", "reward")},
    ),
    ("observation", {("observation", name) for name in ("x", "frame", "mission")}),
]


@pytest.fixture
def folder_of_columns(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    frames = np.arange(NUM_ROWS * 1200, dtype=np.uint8).reshape(NUM_ROWS, 1200)
    layout = getattr(request, "param", "compact")
    return write(tmp_path, layout, steps_of(ODD_TEXTS, frame=frames))


@pytest.mark.parametrize("folder_of_columns", ["ted", "compact"], indirect=True)
@pytest.mark.parametrize(("columns", "expected"), CHOICES)
def test_a_batch_has_the_chosen_columns_and_no_other(
    folder_of_columns: Path, columns: Any, expected: set[tuple[str, ...]]
) -> None:
    has_text = ("observation", "mission") in expected
    whole = open_storage(folder_of_columns, text=has_text)
    part = pickle.loads(
        pickle.dumps(open_storage(folder_of_columns, text=has_text, columns=columns))
    )
    rows = torch.tensor([5, 0, 13, 5])
    batch, other = part.gather(rows), whole.gather(rows)
    assert {key for key, _ in leaves_in(batch)} == set(part.dataset.keys) == expected
    for key, leaf in leaves_in(batch):
        same = entry(other, key)
        assert torch.equal(leaf, same) if isinstance(leaf, torch.Tensor) else leaf[2] == same[2]
        assert part.has(key) and str(key[-1]) in repr(part)
    if not has_text:
        arrays = part.read(rows).arrays(0, 4)
        assert {key for key, _ in leaves_in(arrays)} == expected
        assert all(np.array_equal(leaf, entry(other, key)) for key, leaf in leaves_in(arrays))
    assert part.row_bytes < whole.dataset.row_bytes


def test_stacks_of_frames_come_without_what_is_not_chosen(folder_of_columns: Path) -> None:
    pair = [("observation", "frame"), (*SUCCESSOR, "frame")]
    stack = FrameStack(open_storage(folder_of_columns, columns=pair), 2, key=pair[0])
    batch = stack.gather(torch.tensor([2]))
    assert {key for key, _ in leaves_in(batch)} == set(pair)
    assert batch["observation"]["frame"].shape == (1, 2, 1200)
    with refused(WrongRows, key=("observation", "frame")):
        FrameStack(open_storage(folder_of_columns, columns=pair[:1]), 2, key=pair[0])


@pytest.mark.parametrize(
    ("columns", "error", "key"),
    [
        ("reward", UnknownKey, ("reward",)),
        ("next.rewards", UnknownKey, ("next.rewards",)),
        (("next.reward", "x"), UnknownKey, ("next.reward", "x")),
        (("observation", "mission"), UnknownKey, ("observation", "mission")),
        ([], UsageError, None),
        (5, UsageError, None),
    ],
)
def test_columns_that_cannot_be_read_are_rejected(
    folder_of_columns: Path, columns: Any, error: type[UsageError], key: Any
) -> None:
    with refused(error, argument="columns", key=key):
        open_storage(folder_of_columns, columns=columns)


def test_a_column_that_is_left_out_is_named_so(folder_of_columns: Path) -> None:
    storage = open_storage(folder_of_columns, columns=["observation"])
    with refused(UnknownKey, key=("action",)):
        storage.column(("action",))
    assert storage.column(("observation",))["x"].shape == (NUM_ROWS, 2)


def test_views_specs_and_tables_of_chosen_columns(hopper: str) -> None:
    replay = ExperienceReplay(hopper, batch_size=8, columns=["observation", "action"])
    assert replay.specs.keys() == ["action", "observation"]
    assert np.isfinite(replay.trajectories["return"]).all()
    view = replay.take(1, by="-return")
    assert {*view.sample().keys()} == {"observation", "action", "index"}
    assert {*view.episode(0).keys()} == {"observation", "action"}


def test_jax_takes_a_dataset_with_wide_columns_by_cast_or_by_columns(hopper: str) -> None:
    pytest.importorskip("jax")
    with pytest.raises(Unsupported) as wide:
        ExperienceReplay(hopper, batch_size=8, format="jax")
    assert (wide.value.argument, wide.value.key) == ("format", ("info", "qpos"))
    assert wide.value.found == "float64"
    assert all(word in str(wide.value.advice) for word in ("columns=", "cast=True"))
    chosen = ["observation", "action", "next"]
    few = ExperienceReplay(hopper, batch_size=8, format="jax", columns=chosen, seed=0)
    cast = ExperienceReplay(hopper, batch_size=8, format="jax", cast=True, seed=0)
    assert "info" not in few.sample() and cast.sample()["info"]["qpos"].dtype == "float32"
    sequences = cast.sequences(length=3, batch_size=2)  # in the same format
    assert sequences.sample()["info"]["qvel"].dtype == "float32"
    with refused(UsageError, argument="cast", found="torch"):
        ExperienceReplay(hopper, cast=True)


# Nested keys where columns are chosen: as a tuple, or as text with dots.


WRITTEN = [("next", "reward"), "next.reward"]


@pytest.mark.parametrize("key", WRITTEN)
def test_a_nested_column_is_chosen_by_a_tuple_or_by_dots(
    key: Any, door: str, door_source: str
) -> None:
    with h5py.File(next(Path(door_source).glob("*.hdf5"))) as file:
        rewards = file["rewards"][:][~file["timeouts"][:].astype(bool)].astype(np.float32)
    replay = ExperienceReplay(door, 4, columns=[key])
    assert {*replay.sample().keys(True, True)} == {("next", "reward"), "index"}
    replay = ExperienceReplay(door, 4)
    assert np.array_equal(replay.to_numpy([key])["next.reward"][:, 0], rewards)
    assert np.array_equal(replay.to_pandas([key])["next.reward"], rewards)
    assert replay.to_arrow([key]).schema.names == ["next.reward"]
    assert np.array_equal(np.concatenate([*replay.trajectories.blocks(key)])[:, 0], rewards)
    peaks = rewards.reshape(5, -1).max(1)
    assert np.array_equal(replay.trajectories.reduce(key, "max"), peaks)
    assert np.array_equal(peek(door, n=3, columns=[key]).columns[0].values[:, 0], rewards[:3])
    assert [*dataset_stats(door, columns=[key]).columns] == ["next.reward"]


def test_dots_part_names_only_where_no_column_has_them_as_written() -> None:
    known = [("a.b",), ("a", "b"), ("a", "c", "d")]
    assert key_in(known, ("a.b",)) == ("a.b",)
    assert key_in(known[1:], ("a.b",)) == ("a", "b")
    assert key_in(known, ("a.c",)) == ("a", "c")
    assert key_in(known, ("a.nosuch",)) == ("a.nosuch",)


# Values without tensors are restored from JSON equal and of the same type, or rejected.


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.integers(15_000, 20_000).map(lambda bits: 2**bits)  # more digits than Python prints
)
KEYS = st.text() | st.sampled_from([TAG, "", "data"]) | st.integers() | st.binary() | st.none()
ANY_VALUE = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner) | st.lists(inner).map(tuple),
    max_leaves=20,
)


def described(value: Any) -> RowsJson:
    """The description of a value without tensors."""
    return describe(value, kinds=VALUES)[0]


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal, of the same types, NaN and -0.0 included."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return math.isnan(other) if math.isnan(one) else one.hex() == other.hex()
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        keys = all(map(same, one, other)) and len(one) == len(other)
        return keys and all(map(same, one.values(), other.values()))
    return bool(one == other)


@given(value=ANY_VALUE)
def test_a_value_is_restored_as_it_was(value: Any) -> None:
    text = json.dumps(described(value), allow_nan=False)
    assert same(value_of(json.loads(text)), value)


def test_a_value_that_contains_itself_is_rejected() -> None:
    value: list[Any] = []
    value.append(value)
    with refused(WrongSize, key="rows" + 24 * "[0]"):
        described(value)


@pytest.mark.parametrize(
    "tagged",
    [
        {TAG: 1},
        {TAG: []},
        {TAG: ["bytes"]},
        {TAG: ["bytes", "!"]},
        {TAG: ["bytes", 3]},
        {TAG: ["int", "zz"]},
        {TAG: ["float", []]},
        {TAG: ["dict", [[[], 1]]]},
        {TAG: ["dict", [1]]},
        {TAG: ["eval", "1"]},
        {TAG: [[], "1"]},
        {TAG: ["tuple", None]},
    ],
)
def test_a_tag_that_is_wrong_is_an_error(tagged: Any) -> None:
    with pytest.raises(ValueError, match="a tag is wrong"):
        value_of([tagged])
