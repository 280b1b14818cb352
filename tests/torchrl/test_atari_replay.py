"""AtariDQNExperienceReplay: arguments and attributes that TorchRL's users know, TED's shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from datasets_cli import AtariDQNExperienceReplay, RandomSampler
from datasets_cli.errors import DatasetNotInstalled
from datasets_cli.replay import ImmutableDatasetWriter
from tests.recipes.test_atari import invented
from tests.support.atari_files import Logger, record, runs

EPISODES = invented([40, 25, 60, 33, 20, 31])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Logger:
    """Logs with a seam: one round was stepped over."""
    folder = tmp_path_factory.mktemp("atari")
    for capacity in range(36, 60):
        logger = record(folder / str(capacity), EPISODES, capacity)
        if logger.num_logs < logger.add_count // capacity + 1:
            return logger
    raise AssertionError("no capacity of these is stepped over")


PART = "Pong/5~ckpt0-6"
"""All checkpoints of that run, which is shorter than a published one."""


def test_a_batch_has_ted_s_shapes(run: Logger) -> None:
    """The page has rewards ``[B]``, flags as uint8, metadata in every batch, and no episode."""
    replay = AtariDQNExperienceReplay(PART, batch_size=128, source=str(run.folder))
    batch = replay.sample()
    found = {
        ".".join(key) if isinstance(key, tuple) else key: (str(leaf.dtype)[6:], list(leaf.shape))
        for key, leaf in batch.items(include_nested=True, leaves_only=True)
    }
    flag = ("bool", [128, 1])
    assert found == {
        "observation": ("uint8", [128, 84, 84]),
        "action": ("int32", [128]),
        "episode": ("int64", [128]),
        "index": ("int64", [128]),
        "done": flag,
        "terminated": flag,
        "truncated": flag,
        "next.observation": ("uint8", [128, 84, 84]),
        "next.reward": ("float32", [128, 1]),
        "next.done": flag,
        "next.terminated": flag,
        "next.truncated": flag,
    }


@pytest.mark.filterwarnings("ignore:mp_start_method:UserWarning")
def test_the_attributes_of_torchrl_s_page_are_there(run: Logger) -> None:
    replay = AtariDQNExperienceReplay(
        PART,
        source=str(run.folder),
        sampler=RandomSampler(),
        writer=ImmutableDatasetWriter(),
        mp_start_method="fork",
    )
    assert "Krull/2" in AtariDQNExperienceReplay.available_datasets
    assert replay.dataset_id == f"atari_dqn/{PART}"
    assert (replay.metadata["game"], replay.metadata["run"]) == ("Pong", 5)
    assert [entry["number"] for entry in replay.metadata["checkpoints"]] == list(
        range(run.num_logs)
    )
    episodes = replay.episodes
    assert (episodes.dtype, episodes.shape) == (torch.int64, (len(replay),))
    assert torch.equal(episodes, replay[:]["episode"])
    numbers = [batch["episode"] for batch in replay.iterate_episodes()]
    assert torch.equal(episodes, torch.cat(numbers))
    assert len(numbers) == len(replay.trajectories) == int(episodes[-1]) + 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_slices": 4, "strict_len": False},
        {"slice_len": 8, "strict_length": False},
        {"slice_len": 8},
    ],
)
def test_slices_are_consecutive_steps_of_one_episode(
    run: Logger, arguments: dict[str, Any]
) -> None:
    replay = AtariDQNExperienceReplay(
        PART, batch_size=32, source=str(run.folder), seed=0, **arguments
    )
    for _ in range(20):
        batch = replay.sample()
        cuts = (batch["index"].diff() != 1).nonzero()[:, 0] + 1
        for part in torch.tensor_split(batch["next", "observation"], cuts.tolist()):
            real = part[(part != 0).flatten(1).any(1)]  # zeros follow a terminated step
            assert len(real[:, 0, 0].unique()) <= 1
            steps = real[:, 0, 1].int() + 256 * real[:, 0, 2]
            assert (steps.diff() == 1).all()


def test_no_slice_goes_across_a_seam(run: Logger) -> None:
    replay = AtariDQNExperienceReplay(PART, source=str(run.folder))
    assert not all(entry["follows"] for entry in replay.metadata["checkpoints"])
    pieces = [len(piece) for piece in runs(run.logged)]
    lengths = np.diff(np.load(replay.data_path / "trajectories.npy"))
    assert len(lengths) == len(pieces)
    assert set(np.array(pieces) - lengths) == {0, 1}


def test_a_terminated_step_is_followed_by_zeros_and_no_other(run: Logger) -> None:
    rows = AtariDQNExperienceReplay(PART, source=str(run.folder))[:]
    blank = (rows["next", "observation"] == 0).flatten(1).all(1, keepdim=True)
    assert torch.equal(blank, rows["next", "terminated"])
    assert rows["next", "terminated"].any()
    assert rows["next", "truncated"].any()


def test_stacks_are_made_when_batches_are_drawn(run: Logger) -> None:
    replay = AtariDQNExperienceReplay(
        PART, batch_size=8, source=str(run.folder), frame_stack=4, slice_len=4
    )
    assert replay.sample()["observation"].shape == (8, 4, 84, 84)


def test_a_part_is_asked_for_by_its_checkpoints(run: Logger, tmp_path: Path) -> None:
    part = AtariDQNExperienceReplay("Pong/5", checkpoints="0:1", source=str(run.folder))
    assert part.dataset_id == "atari_dqn/Pong/5~ckpt0-1"
    again = AtariDQNExperienceReplay("Pong/5", checkpoints="0:1", download=False)
    assert len(again) == len(part)
    with pytest.raises(DatasetNotInstalled):
        AtariDQNExperienceReplay("Pong/5", download=False)
