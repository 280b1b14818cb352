"""Rows with their neighbours: sequences and stacked frames."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets_cli import (
    Compose,
    ExperienceReplay,
    FrameStack,
    LazyTensorStorage,
    ObservationNorm,
    PrioritizedSampler,
    RandomSampler,
    RewardScaling,
    Sequences,
    SliceSampler,
    TensorDictReplayBuffer,
    open_storage,
)
from datasets_cli.config import Config
from datasets_cli.errors import (
    EmptyBuffer,
    NoRewards,
    Unsupported,
    UsageError,
    WrongRows,
    WrongSize,
    WrongState,
)
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.replay.storages import sequences as returns_module
from datasets_cli.replay.trajectories.bounds import TrajectoryIndex
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.layouts.compact_writer import CompactWriter
from datasets_cli.store.layouts.ted_writer import TedWriter
from tests.store.test_compact import Rows, pixel_rows, transitions, write
from tests.support import minari_files, text_rows
from tests.support.d4rl_files import DEMONSTRATIONS
from tests.support.decision_transformer import (
    Trajectory,
    begins_of,
    make_batch,
    read_d4rl,
    read_minari,
)
from tests.support.read_only_rows import Columns, columns_of, random_trajectories
from tests.support.refusals import refused
from tests.support.trajectory_rows import chi_square_score

# Sequences are those of a loader written by hand, on real files and on rows of any kind.


KEYS: dict[str, Any] = {
    "states": "observation",
    "actions": "action",
    "rewards": ("next", "reward"),
    "returns_to_go": "returns_to_go",
    "timesteps": "timesteps",
    "attention_mask": "attention_mask",
}


def assert_same(
    batch: Any, expected: dict[str, np.ndarray], keys: Mapping[str, Any] | None = None
) -> None:
    """Compare a batch with that of the loader; sums may differ in their last digits."""
    for name, right in expected.items():
        found = np.asarray(batch[(KEYS | dict(keys or {}))[name]])
        if name == "returns_to_go":
            scale = np.abs(right).max() + 1
            np.testing.assert_allclose(found, right.reshape(found.shape), atol=1e-6 * scale, rtol=0)
        else:
            assert found.dtype == right.dtype
            np.testing.assert_array_equal(found, right.reshape(found.shape), name)


# Against a loader written by hand


@settings(max_examples=25)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    length=st.integers(1, 12),
    gamma=st.sampled_from([0.0, 0.5, 0.99, 1.0]),
    pad_left=st.booleans(),
    rewards=st.integers(1, 2),
    data=st.data(),
)
def test_sequences_are_those_of_a_slow_loop(
    lengths: list[int], length: int, gamma: float, pad_left: bool, rewards: int, data: Any
) -> None:
    trajectories = random_trajectories(lengths, rewards)
    side: Any = "left" if pad_left else "right"
    storage = Sequences(
        columns_of(trajectories), length, gamma=gamma, padding=side, action_padding=-10
    )
    rows = data.draw(st.lists(st.integers(0, len(storage) - 1), max_size=8))
    batch = storage.get(torch.tensor(rows, dtype=torch.int64))
    assert batch.batch_size == (len(rows), length)
    if rows:
        begins = begins_of(trajectories, rows)
        options: Any = {"gamma": gamma, "pad_left": pad_left, "action_padding": -10}
        assert_same(batch, make_batch(trajectories, begins, length, **options))


@pytest.fixture(params=["minari", "d4rl"])
def real(
    request: pytest.FixtureRequest, tmp_path: Path, config: Config
) -> tuple[ExperienceReplay, list[Trajectory]]:
    """A real dataset, and its file read by hand."""
    if request.param == "d4rl":
        door: str = request.getfixturevalue("door")
        return ExperienceReplay(door, download=False), read_d4rl(DEMONSTRATIONS)
    folder = minari_files.unpack_door(tmp_path / "minari")
    id = "minari/D4RL/door/human-v2"
    options = InstallOptions(source=str(folder), layout="compact")
    install_dataset(id, config, options)
    return ExperienceReplay(id, download=False), read_minari(folder / "main_data.hdf5")


@pytest.mark.parametrize("gamma", [1.0, 0.99])
@pytest.mark.parametrize("padding", ["left", "right"])
def test_sequences_of_a_real_file_are_those_of_a_loader_written_by_hand(
    real: tuple[ExperienceReplay, list[Trajectory]], gamma: float, padding: Any
) -> None:
    replay, trajectories = real
    options: Any = {"gamma": gamma, "action_padding": -10}
    buffer = replay.sequences(20, 64, padding=padding, seed=0, **options)
    batch = buffer.sample()
    begins = begins_of(trajectories, batch["index"][:, 0].tolist())
    assert_same(batch, make_batch(trajectories, begins, 20, pad_left=padding == "left", **options))
    assert len(buffer) == len(replay) == sum(len(part["rewards"]) for part in trajectories)
    padded = ~batch["attention_mask"]
    assert padded.any() and bool((batch["action"][padded] == -10).all())
    for key in batch.keys(True, True):
        if key not in ("action", "index"):
            assert not bool(batch[key][padded].any()), key


def test_a_trajectory_is_drawn_by_its_length_and_a_step_of_it_uniformly() -> None:
    trajectories = random_trajectories([2, 30, 7, 1])
    storage = Sequences(columns_of(trajectories), 5)
    buffer = TensorDictReplayBuffer(storage=storage, batch_size=4000, seed=0)
    counts = np.zeros(40)
    for _ in range(5):
        counts += np.bincount(buffer.sample()["index"][:, 0], minlength=40)
    assert abs(chi_square_score(counts, np.full(40, 500.0))) < 4


# As a buffer


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> ExperienceReplay:
    """Trajectories of 4, 1, 6, 3 and 6 rows, installed."""
    root = tmp_path_factory.mktemp("toy")
    folder = text_rows.write(root, "compact", text_rows.steps_of([""], (4, 1, 6, 3, 6)))
    (root / "datasets" / "toy").mkdir(parents=True)
    folder.rename(root / "datasets" / text_rows.ID)
    return ExperienceReplay(text_rows.ID, 6, root=root, download=False, seed=0)


@pytest.fixture
def replay(door: str) -> ExperienceReplay:
    return ExperienceReplay(door, download=False)


def firsts(batches: Any) -> list[int]:
    return torch.cat([batch["index"][:, 0] for batch in batches]).tolist()


def test_every_row_begins_a_sequence_once_an_epoch(replay: ExperienceReplay) -> None:
    found = firsts(replay.sequences(20, 64, replacement=False, seed=0))
    assert sorted(found) == [*range(len(replay))] != found


def test_a_state_continues_with_the_same_sequences(replay: ExperienceReplay) -> None:
    for options in ({}, {"replacement": False}):
        buffer = replay.sequences(7, 32, seed=3, **options)  # type: ignore[arg-type]
        buffer.sample()
        state = buffer.state_dict()
        right = buffer.sample()
        other = replay.sequences(7, 32, seed=4, **options)  # type: ignore[arg-type]
        other.load_state_dict(state)
        assert bool((other.sample() == right).all())


def test_a_dump_names_the_dataset_and_another_one_is_refused(
    replay: ExperienceReplay, tmp_path: Path
) -> None:
    buffer = replay.sequences(7, 32, seed=3)
    buffer.dumps(tmp_path / "dump")
    right = buffer.sample()
    buffer.loads(tmp_path / "dump")
    assert bool((buffer.sample() == right).all())
    rows = text_rows.write(tmp_path, "ted", text_rows.steps_of([""]))
    other = TensorDictReplayBuffer(storage=Sequences(open_storage(rows), 7))
    with pytest.raises(WrongState) as error:
        other.loads(tmp_path / "dump")
    assert error.value.found == other.storage.dataset.manifest.content  # type: ignore[attr-defined]


def test_a_pickle_goes_by_path_and_continues_the_draws(replay: ExperienceReplay) -> None:
    buffer = replay.sequences(20, 64, gamma=0.9, action_padding=2, padding="right", seed=1)
    buffer.sample()
    pickled = pickle.dumps(buffer)
    assert len(pickled) < 8000  # 1,495 returns to go would be 5,980 bytes more
    copy = pickle.loads(pickled)
    assert bool((copy.sample() == buffer.sample()).all())


@pytest.mark.parametrize("name", ["numpy", "jax"])
def test_formats_have_the_values_of_torch(replay: ExperienceReplay, name: str) -> None:
    right = replay.sequences(20, 64, seed=2).sample()
    found = replay.sequences(20, 64, seed=2, format=name).sample()
    assert found.keys() == set(right.keys())
    for key in ("observation", "action", "returns_to_go", "timesteps", "attention_mask"):
        np.testing.assert_array_equal(np.asarray(found[key]), right[key].numpy())
        assert found[key].shape[:2] == (64, 20)


def test_the_format_and_the_transform_are_those_of_the_buffer(door: str) -> None:
    replay = ExperienceReplay(
        door, download=False, transform=ObservationNorm(1.0, 2.0, ["observation"]), format="numpy"
    )
    scaled = replay.sequences(20, 64, padding="right", seed=2).sample()
    plain = replay.sequences(20, 64, padding="right", seed=2, transform=Compose()).sample()
    assert isinstance(scaled["observation"], np.ndarray)
    np.testing.assert_allclose(scaled["observation"], plain["observation"] * 2 + 1, rtol=1e-6)


def test_returns_are_scaled_by_a_transform(replay: ExperienceReplay) -> None:
    scale = RewardScaling(0.0, 0.001, ["returns_to_go"])
    found = replay.sequences(20, 64, seed=2, transform=scale).sample()
    right = replay.sequences(20, 64, seed=2).sample()
    torch.testing.assert_close(found["returns_to_go"], right["returns_to_go"] * 0.001)
    assert torch.equal(found["next", "reward"], right["next", "reward"])


def test_sequences_are_drawn_by_priorities_that_a_batch_hands_back() -> None:
    storage = Sequences(columns_of(random_trajectories([10, 10])), 4)
    buffer = TensorDictReplayBuffer(
        storage=storage, sampler=PrioritizedSampler(20, 1.0, 1.0), batch_size=8, seed=0
    )
    batch = buffer.sample()
    batch["td_error"] = (batch["index"] == batch["index"][0, 0]).float()
    buffer.update_tensordict_priority(batch)
    buffer.update_priority(torch.arange(20), (torch.arange(20) == 13).float())
    assert (buffer.sample(200)["index"] == 13).float().mean() > 0.99


def test_a_row_is_one_sequence(replay: ExperienceReplay) -> None:
    buffer = replay.sequences(20, 64)
    assert buffer[3].batch_size == (20,)
    assert buffer[3]["timesteps"].tolist() == [*range(3, 23)]
    assert buffer[-2:]["attention_mask"].sum(1).tolist() == [2, 1]


# Rows of other kinds


def test_frames_are_stacked_in_sequences(replay: ExperienceReplay) -> None:
    stacked = ExperienceReplay(replay.dataset_id, download=False, frame_stack=3)
    batch = stacked.sequences(5, 64, padding="right", seed=0).sample()
    assert batch["observation"].shape[:3] == (64, 5, 3)
    real = batch["attention_mask"]
    rows = (batch["index"] + torch.arange(5))[real]
    assert torch.equal(batch["observation"][real], stacked[rows]["observation"])
    assert not bool(batch["observation"][~real].any())


@pytest.mark.parametrize("layout", ["ted", "compact"])
def test_text_is_padded_with_empty_text(tmp_path: Path, layout: str) -> None:
    missions = [f"go {step}" for step in range(14)]  # trajectories of 4, 1, 6 and 3 steps
    folder = text_rows.write(tmp_path, layout, text_rows.steps_of(missions))
    storage = Sequences(open_storage(folder, text=True), 3)
    batch = storage.get(torch.tensor([2, 4, 5]))
    assert batch["observation", "mission"] == [
        ["", "go 2", "go 3"],
        ["", "", "go 4"],
        ["go 5", "go 6", "go 7"],
    ]
    assert batch["attention_mask"].sum(1).tolist() == [2, 1, 3]


# Views


@settings(max_examples=15)
@given(data=st.data(), gamma=st.sampled_from([1.0, 0.5]), is_kept=st.booleans())
def test_sequences_of_a_view_are_those_of_its_own_trajectories(
    toy: ExperienceReplay, data: Any, gamma: float, is_kept: bool
) -> None:
    numbers = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=6))
    view = toy.episodes_at(numbers)
    start = data.draw(st.integers(0, len(view) - 1))
    view = view.rows(start, data.draw(st.integers(start + 1, len(view))))
    trajectories = [
        {
            "states": episode["observation", "x"].numpy(),
            "actions": episode["action"].numpy(),
            "rewards": episode["next", "reward"].numpy(),
        }
        for episode in view.episodes()
    ]
    root = CacheRoot(toy.config.root) if is_kept else None
    batch = Sequences(view.storage, 4, gamma=gamma, root=root).get(torch.arange(len(view)))
    right = make_batch(trajectories, begins_of(trajectories, range(len(view))), 4, gamma=gamma)
    assert_same(batch, right, {"states": ("observation", "x")})


def test_a_view_reads_what_was_kept_of_its_dataset(
    toy: ExperienceReplay, monkeypatch: pytest.MonkeyPatch
) -> None:
    toy.sequences(4)
    monkeypatch.setattr(returns_module, "returns_in_blocks", None)
    best = toy.take(2, by="-return").sequences(4, 5, padding="right")
    batch, numbers = best[:], toy.take(2, by="-return").trajectories["number"].tolist()
    assert len(numbers) == 2 and set(batch["episode"][:, 0].tolist()) == {*numbers}
    firsts = batch[batch["timesteps"][:, 0] == 0]
    returns = toy.trajectories["return"][numbers]
    assert firsts["returns_to_go"][:, 0, 0].tolist() == returns.tolist()


def test_a_state_of_sequences_of_another_view_is_refused(toy: ExperienceReplay) -> None:
    first, second = toy.episodes_at([0, 2]).sequences(4, 5), toy.episodes_at([2, 3]).sequences(4, 5)
    views = [each.state_dict()["dataset"]["view"] for each in (first, second)]
    with refused(WrongState, expected=views[0], found=views[1]):
        second.load_state_dict(first.state_dict())


def test_an_empty_view_has_no_sequences(toy: ExperienceReplay) -> None:
    with refused(EmptyBuffer):
        toy.episodes_at([]).sequences(4)


# What is refused


def test_arguments_out_of_range_are_refused(replay: ExperienceReplay) -> None:
    for name, value in (
        ("length", 0),
        ("padding", "middle"),
        ("gamma", 1.5),
        ("gamma", float("nan")),
        ("gamma", "1"),
        ("action_padding", None),
    ):
        with refused(UsageError, argument=name, found=value):
            replay.sequences(**{"length": 5, name: value})  # type: ignore[arg-type]
    with refused(UsageError, argument="batch_size"):
        replay.sequences(5).sample()


def test_a_padding_that_actions_cannot_have_is_refused() -> None:
    rows = columns_of(random_trajectories([3]))
    for dtype, value in ((torch.uint8, -10), (torch.int64, 0.5), (torch.bool, 2)):
        rows.columns["action"] = torch.zeros(3, 2).to(dtype)
        with refused(WrongRows, key=("action",)):
            Sequences(rows, 2, action_padding=value)
    rows.columns["action"] = {"arm": torch.zeros(3, 2), "hand": torch.zeros(3, dtype=torch.int8)}
    batch = Sequences(rows, 4, action_padding=-1).get(torch.tensor([0]))
    assert batch["action", "arm"][0, 0].tolist() == [-1, -1]
    assert batch["action", "hand"][0].tolist() == [-1, 0, 0, 0]
    del rows.columns["action"]
    with refused(WrongRows, key=("action",)):
        Sequences(rows, 2, action_padding=-1)


def test_slices_of_sequences_are_refused(replay: ExperienceReplay) -> None:
    with refused(Unsupported, argument="sampler"):
        replay.sequences(5, 20, sampler=SliceSampler(slice_len=4)).sample()


def test_rows_that_sequences_cannot_be_made_of_are_refused() -> None:
    rows = columns_of(random_trajectories([3, 2]))
    with refused(Unsupported):
        Sequences(LazyTensorStorage(10), 2)
    with refused(WrongRows, found="TensorDicts [2]"):
        Sequences(Sequences(rows, 2), 2)
    with refused(EmptyBuffer):
        Sequences(Columns({"next": {"done": torch.zeros(0, 1)}}), 2)
    rows.columns["timesteps"] = torch.zeros(5)
    with refused(WrongRows, key="timesteps"):
        Sequences(rows, 2)
    del rows.columns["timesteps"], rows.columns["next"]["reward"]
    with refused(NoRewards, key=("next", "reward")):
        Sequences(rows, 2)


@pytest.mark.parametrize(
    "found",
    [
        TrajectoryIndex(torch.tensor([0, 1]), torch.tensor([4, 4]), 2, 8),  # side by side
        TrajectoryIndex(torch.tensor([0, 4]), torch.tensor([4, 4]), 1, 8, torch.arange(8).flip(0)),
        TrajectoryIndex(torch.tensor([6, 2]), torch.tensor([4, 4]), 1, 8),  # a ring
    ],
)
def test_trajectories_whose_rows_are_apart_are_refused(found: TrajectoryIndex) -> None:
    rows = columns_of(random_trajectories([4, 4]))
    rows.trajectories = lambda keys: found  # type: ignore[method-assign]
    with refused(WrongRows):
        Sequences(rows, 2)


def test_a_batch_that_does_not_fit_into_memory_is_refused(
    replay: ExperienceReplay, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffer = replay.sequences(1000, 4)
    monkeypatch.setattr("datasets_cli.core.system_errors.free_memory", lambda: 1 << 28)
    with refused(WrongSize, expected=f"{1 << 27:,} bytes at most"):
        buffer[:]


# Frame stacks against a slow loop over the source frames, on both layouts.


LENGTHS = [7, 1, 2, 12]


def slow_stack(rows: Rows, key: Any, row: int, length: int, padding: str) -> np.ndarray:
    """The last ``length`` steps up to ``row`` of its trajectory, by hand."""
    start = max(s for s in np.cumsum([0, *LENGTHS]) if s <= row)
    observations = rows[key]
    steps = []
    for step in range(row - length + 1, row + 1):
        if step >= start:
            steps.append(observations[step])
        else:
            first = observations[start]
            steps.append(first if padding == "repeat" else np.zeros_like(first))
    return np.stack(steps)


def slow_next(rows: Rows, key: Any, row: int, length: int, padding: str) -> np.ndarray:
    behind = slow_stack(rows, key, row, length, padding)[1:]
    return np.concatenate([behind, rows["next", *key][row][None]])


@pytest.mark.parametrize("kind", [TedWriter, CompactWriter])
@pytest.mark.parametrize("pixels", [True, False])
def test_stacks_are_the_last_steps_of_their_trajectory(
    tmp_path: Path, pixels: bool, kind: Any
) -> None:
    rows = pixel_rows(LENGTHS) if pixels else transitions(LENGTHS, 0)
    key = ("observation",) if pixels else ("observation", "float64")
    write(kind, tmp_path / "rows", rows)
    index = torch.tensor([0, 3, 6, 7, 8, 9, 10, 21, 5, 5])
    paddings: Any = ("zeros", "repeat")
    for length, padding in itertools.product((1, 2, 4, 9), paddings):
        stack = FrameStack(open_storage(tmp_path / "rows"), length, key=key, padding=padding)
        batch = stack.get(index)
        for position, row in enumerate(index.tolist()):
            right = slow_stack(rows, key, row, length, padding)
            assert batch[key][position].numpy().tobytes() == right.tobytes()
            following = slow_next(rows, key, row, length, padding)
            assert batch["next", *key][position].numpy().tobytes() == following.tobytes()
        assert torch.equal(batch["action"], torch.from_numpy(rows["action",][index.numpy()]))


def test_a_buffer_samples_stacks(tmp_path: Path) -> None:
    write(CompactWriter, tmp_path / "rows", pixel_rows(LENGTHS))
    stack = FrameStack(open_storage(tmp_path / "rows"), 4)
    buffer = TensorDictReplayBuffer(storage=stack, sampler=RandomSampler(), batch_size=8)
    batch = buffer.sample()
    assert batch["observation"].shape == batch["next", "observation"].shape == (8, 4, 36, 36)
    assert buffer[0:3]["observation"].shape == (3, 4, 36, 36)
    assert buffer["observation"].shape == (22, 36, 36)
    copy = pickle.loads(pickle.dumps(stack))
    assert torch.equal(copy.get(batch["index"])["observation"], batch["observation"])


@pytest.mark.parametrize(
    ("arguments", "argument"),
    [
        ({"length": 0}, "length"),
        ({"length": 2, "key": ("nosuch",)}, "key"),
        ({"length": 2, "padding": "x"}, "padding"),
    ],
)
def test_a_stack_that_makes_no_sense_is_refused(
    tmp_path: Path, arguments: Any, argument: str
) -> None:
    write(TedWriter, tmp_path / "rows", pixel_rows([3]))
    with refused(UsageError, argument=argument):
        FrameStack(open_storage(tmp_path / "rows"), **arguments)
