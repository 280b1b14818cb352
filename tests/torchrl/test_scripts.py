"""The replay parts of TorchRL's off-policy and offline scripts, run with ours and with TorchRL's.

Each is written from the public signatures as its script makes and uses its buffer, with small
sizes. Batches are compared with a plain model, row by row and by value, in every call:
while it fills, after the ring has wrapped, and after a checkpoint.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import h5py
import pytest
import torch
from tensordict import TensorDict

from datasets_cli import (
    D4RLExperienceReplay,
    DoubleToFloat,
    ExcludeTransform,
    ExperienceReplay,
    ObservationNorm,
    RandomSampler,
    RenameTransform,
    RewardScaling,
    RoundRobinWriter,
    TensorStorage,
)
from datasets_cli.config import Config
from datasets_cli.replay import RandomCropTensorDict, Reward2GoTransform
from tests.support.scripts import (
    BATCH,
    CAPACITY,
    FRAMES,
    LIBRARIES,
    ONLINE,
    Ring,
    collected,
    rows_of,
)
from tests.support.torchrl_trees import trees  # noqa: F401

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
    pytest.mark.usefixtures("trees"),
]
# That TorchRL does what the model says needs no proof each time.
each_library = pytest.mark.parametrize(
    "library", ["ours", pytest.param("theirs", marks=pytest.mark.slow)]
)
CALLS = 5  # of the collector; the ring is full after 2 and a half


def assert_rows(found: Any, numbers: list[int], pixels: bool) -> None:
    """Check every entry of rows ``[n]`` against what a collector gave under these numbers."""
    expected = rows_of(torch.tensor(numbers), pixels)
    for key, leaf in expected.items(True, True):
        assert torch.equal(found[key], leaf), key


class Run:
    """A script's buffer, what it is used for, and a model of it."""

    def __init__(self, name: str, buffer: Any, *, ahead: bool = False) -> None:
        self.buffer, self.model = buffer, Ring()
        self.pixels, self.by_priority = "atari" in name, "priority" in name
        self.ahead = ahead  # then a batch is drawn before the last one hands its errors back
        self.call = 0

    def collect(self) -> None:
        data = collected(self.call, self.pixels).reshape(-1)
        self.model.extend(data["number"].tolist())
        self.buffer.extend(data)
        self.call += 1

    def train(self) -> TensorDict:
        """Draw a batch, check it, and hand its errors back."""
        batch = self.buffer.sample()
        assert batch.shape == (BATCH,)
        rows = batch["index"].flatten().tolist()
        assert_rows(batch, [self.model.numbers[row] for row in rows], self.pixels)
        if self.by_priority:
            weights = batch["priority_weight"].flatten().tolist()
            expected = pytest.approx(self.model.weights(rows), rel=1e-4)
            assert weights == expected or self.ahead
            errors = 0.1 + (batch["number"] % 13).float()
            self.buffer.update_tensordict_priority(batch.set("td_error", errors))
            self.model.update(rows, errors.tolist())
        return batch

    def check(self) -> None:
        assert len(self.buffer) == len(self.model.numbers)
        assert_rows(self.buffer[:], self.model.numbers, self.pixels)


def use(run: Run, calls: int) -> list[TensorDict]:
    batches = []
    for _ in range(calls):
        run.collect()
        batches += [run.train() for _ in range(2)]
        run.check()
    return batches


@each_library
@pytest.mark.parametrize("name", ONLINE)
def test_a_script_that_collects_trains_on_what_was_collected(
    name: str, library: str, tmp_path: Path
) -> None:
    run = Run(name, ONLINE[name](LIBRARIES[library], tmp_path, None))
    use(run, CALLS)
    assert run.call * FRAMES > CAPACITY == len(run.buffer)
    assert run.buffer.write_count == CALLS * FRAMES


@pytest.mark.parametrize("name", ONLINE)
def test_batches_made_ahead_are_of_the_rows_that_are_there(name: str, tmp_path: Path) -> None:
    use(Run(name, ONLINE[name](LIBRARIES["ours"], tmp_path, 3), ahead=True), CALLS)


# TorchRL draws rows by priority from numpy's generator.
@pytest.mark.parametrize("name", [name for name in ONLINE if "priority" not in name])
def test_both_libraries_draw_the_same_batches(name: str, tmp_path: Path) -> None:
    drawn = {}
    for library in LIBRARIES:
        torch.manual_seed(3)
        made = ONLINE[name](LIBRARIES[library], tmp_path / library, None)
        drawn[library] = [batch["number"].tolist() for batch in use(Run(name, made), CALLS)]
    assert drawn["ours"] == drawn["theirs"] and len(drawn["ours"]) == 2 * CALLS


def dumped(buffer: Any, other: Any, folder: Path) -> None:
    buffer.dumps(folder)
    other.loads(folder)


def saved(buffer: Any, other: Any, folder: Path) -> None:
    if not type(buffer).__module__.startswith("datasets_cli"):
        other.load_state_dict(deepcopy(buffer.state_dict()))  # the stand-ins are not saved
        return
    torch.save(buffer.state_dict(), folder.with_suffix(".pt"))
    other.load_state_dict(torch.load(folder.with_suffix(".pt")))


@pytest.mark.filterwarnings("ignore:Loading the storage on an uninitialized TensorDict")
@each_library
@pytest.mark.parametrize("name", ONLINE)
def test_a_script_continues_from_a_checkpoint_of_a_ring_that_has_wrapped(
    name: str, library: str, tmp_path: Path
) -> None:
    run = Run(name, ONLINE[name](LIBRARIES[library], tmp_path / "first", None))
    use(run, 4)
    for restart in (dumped, saved):
        assert 0 < run.model.cursor < CAPACITY == len(run.buffer)
        other = ONLINE[name](LIBRARIES[library], tmp_path / restart.__name__, None)
        restart(run.buffer, other, tmp_path / f"{restart.__name__} files")
        run.buffer = other
        use(run, 2)


def pickled(buffer: Any, folder: Path) -> Any:
    return pickle.loads(pickle.dumps(buffer))


def copied(buffer: Any, folder: Path) -> Any:
    torch.save(buffer, folder / "buffer.pt")
    return torch.load(folder / "buffer.pt", weights_only=False)


@pytest.mark.parametrize("copy", [pickled, copied])
@pytest.mark.parametrize("name", ["sac", "td3, by priority", "crossq"])
def test_a_pickled_or_saved_buffer_continues_its_draws(
    name: str, copy: Callable[[Any, Path], Any], tmp_path: Path
) -> None:
    run = Run(name, ONLINE[name](LIBRARIES["ours"], tmp_path, None))
    run.buffer.set_rng(torch.Generator().manual_seed(5))
    use(run, 4)
    other = copy(run.buffer, tmp_path)
    for _ in range(3):
        assert torch.equal(other.sample()["index"], run.buffer.sample()["index"])


@each_library
def test_gail_trains_on_every_frame_of_a_call_once_an_epoch(library: str) -> None:
    names = LIBRARIES[library]
    buffer = names.TensorDictReplayBuffer(
        storage=names.LazyTensorStorage(FRAMES),
        sampler=names.SamplerWithoutReplacement(),
        batch_size=4,
    )
    for call in range(3):
        data = collected(call).reshape(-1)
        buffer.extend(data)
        for _ in range(2):
            batches = list(buffer)
            assert [len(batch) for batch in batches] == [4, 4, 4]
            numbers = torch.cat(batches)["number"]
            assert sorted(numbers.tolist()) == sorted(data["number"].tolist())
            assert_rows(torch.cat(batches), numbers.tolist(), pixels=False)


@each_library
@pytest.mark.parametrize("storage", ["LazyMemmapStorage", "LazyTensorStorage"])
def test_dreamer_draws_runs_of_frames_of_one_environment(
    library: str, storage: str, tmp_path: Path
) -> None:
    names, length = LIBRARIES[library], 5
    buffer = names.TensorDictReplayBuffer(
        pin_memory=False,
        prefetch=None,
        storage=getattr(names, storage)(40, ndim=2, device="cpu"),
        sampler=names.SliceSampler(
            slice_len=length,
            strict_length=False,
            traj_key=("collector", "traj_ids"),
            cache_values=False,
            compile=False,
        ),
        transform=names.Compose(names.ToTensorImage(in_keys=["pixels", ("next", "pixels")])),
        batch_size=4 * length,
    )
    for call in range(6):  # the ring of 20 steps a environment is full after 4
        rows = collected(call, pixels=True)
        for place in (rows, rows["next"]):
            place["pixels"] = place["pixels"].unsqueeze(-1)  # one channel, last
        buffer.extend(rows)
        oldest = max(0, (call + 1) * FRAMES // 2 - 20)
        for _ in range(5):
            batch = buffer.sample()
            numbers, ends = batch["number"], batch["next", "truncated"].flatten()
            assert int((numbers % 70_000).min()) >= oldest
            steps = numbers.diff()[~ends[:-1]]  # inside of a slice
            assert bool((steps == 1).all()) and len(numbers) <= 4 * length
            right = rows_of(numbers, pixels=True)
            assert torch.equal(batch["pixels"][:, 0], right["pixels"] / 255)
            assert torch.equal(batch["action"], right["action"])
            assert bool((batch["collector", "traj_ids"] == numbers // 7).all())


OFFLINE: dict[str, dict[str, Any]] = {
    "iql": {"drop_last": False},
    "cql": {"drop_last": True},
    "td3+bc": {"drop_last": False},
    "gail": {"drop_last": False},
}


def file_rows(folder: str) -> dict[Any, torch.Tensor]:
    """Return the rows that the publisher's file has a successor for."""
    with h5py.File(next(Path(folder).glob("*.hdf5"))) as file:
        names = ("observations", "actions", "rewards", "timeouts")
        observations, actions, rewards, timeouts = (torch.from_numpy(file[n][:]) for n in names)
    kept = (~timeouts.bool()).nonzero().flatten()
    return {
        "observation": observations[kept].float(),
        "action": actions[kept].float(),
        ("next", "reward"): rewards[kept].float().unsqueeze(-1),
        ("next", "observation"): observations[kept + 1].float(),
    }


@pytest.fixture
def sources(door: str, config: Config, tmp_path: Path) -> dict[str, Any]:
    """How each library opens the dataset: TorchRL's class finds ours as a folder of its own."""
    ours = ExperienceReplay(door, batch_size=1)
    (tmp_path / "door-human-v0").symlink_to(ours.data_path)
    return {"ours": {}, "theirs": {"root": tmp_path}}


@pytest.mark.parametrize("name", OFFLINE)
def test_an_offline_script_takes_every_row_of_its_dataset_once_an_epoch(
    name: str, sources: dict[str, Any], door_source: str
) -> None:
    given = file_rows(door_source)
    drawn = {}
    for library, where in sources.items():
        names = LIBRARIES[library]
        data = names.D4RLExperienceReplay(
            dataset_id="door-human-v0",
            split_trajs=False,
            batch_size=64,
            sampler=names.SamplerWithoutReplacement(**OFFLINE[name]),
            prefetch=4 if library == "ours" else None,  # TorchRL's threads may swap batches
            direct_download=True,
            **where,
        )
        data.append_transform(names.DoubleToFloat())
        batches = [batch for _, batch in zip(range(len(data) // 64 + 1), data, strict=False)]
        index = torch.cat([batch["index"].flatten() for batch in batches])
        assert (
            len(index)
            == len(index.unique())
            == len(data) // 64 * 64 + (0 if OFFLINE[name]["drop_last"] else len(data) % 64)
        )
        for key, column in given.items():
            found = torch.cat([batch[key] for batch in batches])
            assert torch.equal(found, column[index]) and found.dtype != torch.float64
        drawn[library] = [len(batch) for batch in batches]
    assert drawn["ours"] == drawn["theirs"]


def test_the_decision_transformer_crops_whole_trajectories(door: str, door_source: str) -> None:
    frames, given = 20, file_rows(door_source)
    data = D4RLExperienceReplay(
        dataset_id="door-human-v0",
        split_trajs=True,
        batch_size=8,
        sampler=RandomSampler(),
        transform=None,
        use_truncated_as_done=True,
        direct_download=True,
        prefetch=4,
        writer=RoundRobinWriter(),
    )
    to_go = Reward2GoTransform(
        gamma=1.0, in_keys=[("next", "reward")], out_keys=[("next", "return_to_go")]
    )
    rows = data[:]
    with rows.unlock_():
        data._storage = TensorStorage(to_go.inv(rows))  # as the script adds an entry
    loc = data[:]["observation"].flatten(0, -2).mean(dim=0).float()
    std = data[:]["observation"].flatten(0, -2).std(dim=0).float() + 1e-3
    for transform in (
        RandomCropTensorDict(sub_seq_len=frames, sample_dim=-1),
        RewardScaling(loc=0, scale=0.01, in_keys=[("next", "return_to_go")], standard_normal=False),
        DoubleToFloat(),
        RenameTransform(
            in_keys=["observation", "action"], out_keys=["observation_cat", "action_cat"]
        ),
        ExcludeTransform("info", ("next", "info")),
        ObservationNorm(loc=loc, scale=std, in_keys=["observation_cat"], standard_normal=True),
    ):
        data.append_transform(transform)
    for _ in range(3):
        batch = data.sample()
        assert batch.shape == (8, frames) and "info" not in batch["next"].keys()  # noqa: SIM118
        for row in batch:
            number = int(row["index"].flatten()[0])
            whole = {key: column.view(5, 299, -1)[number] for key, column in given.items()}
            same = (whole["action"] == row["action_cat"][0]).all(-1).nonzero()
            start = int(same[0])
            cut = slice(start, start + frames)
            assert torch.equal(row["action_cat"], whole["action"][cut])
            observed = (whole["observation"][cut] - loc) / std
            torch.testing.assert_close(row["observation_cat"], observed)
            rest = whole[("next", "reward")].flip(0).cumsum(0).flip(0)[cut] * 0.01
            torch.testing.assert_close(row["next", "return_to_go"], rest, rtol=1e-4, atol=1e-4)
