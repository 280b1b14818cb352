"""Text in batches: non-tensor entries that follow the rows through everything a buffer does."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import NonTensorStack, TensorDict

from datasets_cli import (
    DistributedSampler,
    FrameStack,
    PrioritizedSampler,
    ReplayBufferEnsemble,
    SamplerWithoutReplacement,
    SliceSampler,
    TensorDictReplayBuffer,
    open_storage,
    split_trajectories,
)
from datasets_cli.errors import UnknownKey, WrongRows
from datasets_cli.experience.qlearning import qlearning_dataset
from datasets_cli.replay.storages.collate import stack_texts
from datasets_cli.replay.storages.dataset import DatasetStorage
from tests.support.refusals import refused
from tests.support.text_rows import LENGTHS, ODD_TEXTS, objects, steps_of, successors, write

MISSION = ("observation", "mission")
NEXT_MISSION = ("next", "observation", "mission")
NUM_ROWS = sum(LENGTHS)


@pytest.fixture(params=["ted", "compact"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    pairs = objects([f"{row}{side}" for row in range(NUM_ROWS) for side in "ab"], (2,))
    frames = np.arange(NUM_ROWS * 1200, dtype=np.uint8).reshape(NUM_ROWS, 1200)
    steps = steps_of(ODD_TEXTS, frame=frames) | {("info", "pair"): pairs}
    return write(tmp_path, request.param, steps)


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


def test_a_pickled_storage_reads_text_if_it_did(folder: Path, storage: DatasetStorage) -> None:
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=4, seed=0)
    copy = pickle.loads(pickle.dumps(buffer))
    batch = copy.sample()
    assert_texts(batch, batch["index"])
    plain = pickle.loads(pickle.dumps(open_storage(folder)))
    assert MISSION not in plain.get(torch.arange(2)).keys(True)


# Where it is not asked for


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


def test_an_entry_of_some_rows_is_that_of_their_batch(folder: Path) -> None:
    storage, rows = open_storage(folder, text=True), torch.tensor([5, 0, 5])
    batch = storage.get(rows)
    for key in [column.key for column in storage.dataset.manifest.columns]:
        found = storage.entry(key, rows)
        assert found is not None and torch.equal(found, batch[key])
    assert storage.entry(MISSION, rows) == batch[MISSION]
    assert storage.entry(("missing",), rows) is None
