"""The examples of TorchRL's pages on buffers and datasets, with nothing but the imports changed.

Where a page prints another structure than ours, the test names the difference: TED's flags are bool
``[N, 1]`` at the root too, rewards are ``[N, 1]``, every dataset has ``episode``, and ``index`` of
a sample is never stored with the rows.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict

from datasets_cli import (
    AtariDQNExperienceReplay,
    CatTensors,
    Compose,
    LazyMemmapStorage,
    LazyTensorStorage,
    MinariExperienceReplay,
    PrioritizedSampler,
    ReplayBuffer,
    ReplayBufferEnsemble,
    SliceSampler,
    TensorDictReplayBuffer,
)
from datasets_cli.build import Wish, get
from datasets_cli.config import Config
from tests import minari_files
from tests.conftest import DEMO
from tests.minari_files import box


def rollout(*shape: int, trajectory: int = 25) -> TensorDict:
    """What a collector yields: time last, trajectories of 25 steps, numbered over environments."""
    time = torch.arange(shape[-1]).expand(shape)
    environment = torch.arange(time.numel() // shape[-1]).view(*shape[:-1], 1)
    return TensorDict(
        {
            "observation": (1000 * environment + time).float().unsqueeze(-1),
            ("collector", "traj_ids"): 100 * environment + time // trajectory,
            ("next", "done"): (time % trajectory == trajectory - 1).unsqueeze(-1),
            ("next", "reward"): torch.ones(*shape, 1),
        },
        shape,
    )


def test_single_transitions_of_a_collector_are_flattened_by_a_transform() -> None:
    N = 100  # noqa: N806 (the page's name)
    memory = ReplayBuffer(storage=LazyTensorStorage(N), transform=lambda data: data.reshape(-1))
    for data in [rollout(4, 50)]:
        memory.extend(data)
    assert memory.sample(3).shape == (150,)


@pytest.mark.parametrize(
    ("shape", "ndim"),
    [((200,), 1), ((4, 50), 2), ((4, 2, 25), 3)],
)
def test_slices_of_one_environment_a_batch_of_them_or_several_batches(
    shape: tuple[int, ...], ndim: int
) -> None:
    N = 200  # noqa: N806
    memory = ReplayBuffer(
        storage=LazyTensorStorage(N, ndim=ndim),
        sampler=SliceSampler(num_slices=4, trajectory_key=("collector", "traj_ids")),
    )
    for data in [rollout(*shape)]:
        memory.extend(data)
    slices = memory.sample(80).reshape(4, -1)
    assert bool((slices["observation"].diff(dim=1) == 1).all())
    assert all(len(ids.unique()) == 1 for ids in slices["collector", "traj_ids"])


def test_a_transform_that_is_inverted_acts_on_what_is_written() -> None:
    rb = ReplayBuffer(storage=LazyMemmapStorage(10), batch_size=4)
    data = TensorDict({"a": torch.zeros(10)}, [10])

    def t(data):  # type: ignore[no-untyped-def]
        data += 1
        return data

    rb.append_transform(t, invert=True)
    rb.extend(data)
    assert (data == 1).all()
    assert bool((rb.sample()["a"] == 1).all())


def test_a_prioritised_buffer_is_saved_and_loaded() -> None:
    S = 1_000_000  # noqa: N806
    sampler = PrioritizedSampler(S, 1.1, 1.0)
    storage = LazyMemmapStorage(S)
    rb = TensorDictReplayBuffer(storage=storage, sampler=sampler)

    for _ in range(10):  # 100 on the page
        td = TensorDict(
            {
                "obs": torch.randn(100, 3, 4),
                "next": {"obs": torch.randn(100, 3, 4)},
                "td_error": torch.rand(100),
            },
            [100],
        )
        rb.extend(td)
        sample = rb.sample(32)
        rb.update_tensordict_priority(sample)
    with tempfile.TemporaryDirectory() as tmpdir:
        rb.dumps(tmpdir)

        sampler = PrioritizedSampler(S, 1.1, 1.0)
        storage = LazyMemmapStorage(S)
        rb_load = TensorDictReplayBuffer(storage=storage, sampler=sampler)
        rb_load.loads(tmpdir)
        assert len(rb) == len(rb_load)
    assert bool((rb_load[:] == rb[:]).all())


def test_the_tutorials_buffer_gives_what_its_collector_gave() -> None:
    data = rollout(200)
    buffer = ReplayBuffer(storage=LazyMemmapStorage(max_size=1000))
    indices = buffer.extend(data)
    assert len(buffer) == 200 and torch.equal(indices, torch.arange(200))
    sample = buffer.sample(batch_size=30)
    assert sample.shape == (30,)
    assert set(sample.keys(True, True)) == set(data.keys(True, True))
    assert sample["observation"].dtype == torch.float32


@pytest.fixture
def pong(config: Config) -> None:
    logs = DEMO / "atari_dqn" / "Pong" / "5" / "replay_logs"
    get("atari_dqn/Pong/5", config, Wish(source=str(logs), accept_any=True))


def structure(data: TensorDict) -> dict[Any, tuple[torch.Size, torch.dtype]]:
    return {key: (leaf.shape, leaf.dtype) for key, leaf in data.items(True, True)}


FLAG = (torch.Size([128, 1]), torch.bool)  # uint8 [128] at the page's root
SCREEN = (torch.Size([128, 84, 84]), torch.uint8)
NUMBER = (torch.Size([128]), torch.int64)
PONG = {
    "action": (torch.Size([128]), torch.int32),
    "done": FLAG,
    "episode": NUMBER,  # not on the page
    "index": NUMBER,
    "observation": SCREEN,
    "terminated": FLAG,
    "truncated": FLAG,
    ("next", "done"): FLAG,
    ("next", "observation"): SCREEN,
    ("next", "reward"): (torch.Size([128, 1]), torch.float32),  # [128] on the page
    ("next", "terminated"): FLAG,
    ("next", "truncated"): FLAG,
}  # "metadata" of the page is an attribute of the dataset


@pytest.mark.usefixtures("pong")
def test_a_run_of_atari_is_iterated() -> None:
    dataset = AtariDQNExperienceReplay("Pong/5", batch_size=128)
    for data in dataset:
        assert structure(data) == PONG
        break
    assert {"checkpoints"} <= set(dataset.metadata)


@pytest.mark.usefixtures("pong")
def test_slices_of_a_run_of_atari_are_groups_of_consecutive_rows() -> None:
    dataset = AtariDQNExperienceReplay("Pong/5", batch_size=128, slice_len=64)
    for data in dataset:
        assert structure(data) == PONG
        assert bool((data.get("index").view(2, 64).diff() == 1).all())
        break


@pytest.mark.usefixtures("pong")
def test_two_runs_of_atari_are_sampled_as_one() -> None:
    AtariDQNExperienceReplay._max_runs = 2  # type: ignore[attr-defined]
    dataset_asterix = AtariDQNExperienceReplay("Pong/5", batch_size=128, slice_len=64, num_procs=4)
    dataset_pong = AtariDQNExperienceReplay("Pong/5", batch_size=128, slice_len=64, num_procs=4)
    dataset = ReplayBufferEnsemble(
        dataset_pong, dataset_asterix, batch_size=128, sample_from_all=True
    )
    sample = dataset.sample()
    assert sample.shape == (2, 64) and sample[0]["observation"].shape == (64, 84, 84)
    assert set(sample[1]["index"].keys()) == {"buffer_ids", "index"}
    del AtariDQNExperienceReplay._max_runs  # type: ignore[attr-defined]


cat_tensors = CatTensors(
    in_keys=[
        ("observation", "observation"),
        ("observation", "achieved_goal"),
        ("observation", "desired_goal"),
    ],
    out_key="obs",
)
cat_next_tensors = CatTensors(
    in_keys=[
        ("next", "observation", "observation"),
        ("next", "observation", "achieved_goal"),
        ("next", "observation", "desired_goal"),
    ],
    out_key=("next", "obs"),
)
t = Compose(cat_tensors, cat_next_tensors)


def func(td: Any) -> Any:
    td = td.select(
        "action",
        "episode",
        ("next", "done"),
        ("next", "observation"),
        ("next", "reward"),
        ("next", "terminated"),
        ("next", "truncated"),
        "observation",
    )
    return t(td)


def test_goals_are_joined_by_preprocessing(config: Config, tmp_path: Path) -> None:
    goals = spaces.Dict({"observation": box(27), "achieved_goal": box(2), "desired_goal": box(2)})
    source = minari_files.build(goals, box(8), (30, 20))
    get(f"minari/{minari_files.NAME}", config, Wish(source=str(source)))
    data = MinariExperienceReplay(minari_files.NAME, batch_size=32)
    assert len(list(MinariExperienceReplay.available_datasets)) > 300
    new_storage = data.preprocess(
        func, num_workers=0, pbar=True, mp_start_method="fork", dest=tmp_path / "new"
    )
    rb = ReplayBuffer(storage=new_storage)
    rows, source_rows = rb[:], data[:]
    joined = torch.cat(
        [
            source_rows["next", "observation", key]
            for key in ("observation", "achieved_goal", "desired_goal")
        ],
        -1,
    )
    # CatTensors sorts its keys, as TorchRL's does.
    assert rows["obs"].shape == rows["next", "obs"].shape == (50, 31)
    assert torch.equal(rows["next", "obs"].sort().values, joined.sort().values)
    # The page shows emptied groups beside it; a dataset keeps no empty group.
    assert set(rows.keys(True, True)) == {
        "action",
        "episode",
        "obs",
        *(("next", name) for name in ("done", "obs", "reward", "terminated", "truncated")),
    }
