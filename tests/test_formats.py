"""What earlier versions installed, dumped and saved still opens, and continues as it would have."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from datasets_cli import (
    DistributedSampler,
    ExperienceReplay,
    LazyTensorStorage,
    ListStorage,
    PrioritizedSampler,
    ReplayBuffer,
    SamplerWithoutReplacement,
    TensorDictReplayBuffer,
)
from datasets_cli.config import Config
from datasets_cli.install.installed import verify
from tests.support.paths import TEST_DATA

OLD = TEST_DATA / "formats" / "0.1"
EXPECTED: dict[str, Any] = json.loads((OLD / "expected.json").read_text(encoding="utf-8"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLD / "root", tmp_path / "old"))  # a lock may be made beside it


@pytest.mark.parametrize("name", ["vectors", "packed", "frames"])
def test_a_dataset_of_0_1_opens_with_every_value(root: Path, name: str) -> None:
    verify(f"toy/{name}", Config(root))
    replay = ExperienceReplay(f"toy/{name}", root=root, download=False)
    found = {".".join(key): replay[key] for key in replay.storage.dataset.keys}
    assert found.keys() == EXPECTED[name].keys()
    for key, column in found.items():
        is_frame = name == "frames" and "observation" in key
        values = [int(frame.sum()) for frame in column] if is_frame else column.tolist()
        assert values == EXPECTED[name][key], key


def test_a_ring_with_priorities_that_0_1_dumped_is_read() -> None:
    sampler = PrioritizedSampler(10, 0.7, 0.5)
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(10), sampler=sampler)
    buffer.loads(OLD / "dump_priorities")
    assert buffer[:]["number"].tolist() == EXPECTED["ring"]
    assert sampler.priorities.known.tolist() == EXPECTED["priorities"]
    assert buffer.extend(buffer[:1]).tolist() == [4]


def test_an_epoch_that_0_1_dumped_continues() -> None:
    sampler = SamplerWithoutReplacement()
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(10), sampler=sampler, batch_size=4)
    buffer.loads(OLD / "dump_epoch")
    assert buffer.sample()["number"].tolist() == EXPECTED["epoch"]


@pytest.mark.parametrize("name", ["epoch", "list", "dataset", "shared"])
def test_a_state_that_0_1_saved_continues(root: Path, name: str) -> None:
    tensors = LazyTensorStorage(10)
    buffers: dict[str, ReplayBuffer] = {
        "epoch": TensorDictReplayBuffer(
            storage=tensors, sampler=SamplerWithoutReplacement(), batch_size=4, seed=0
        ),
        "list": ReplayBuffer(storage=ListStorage(5), batch_size=2, seed=0),
        "dataset": ExperienceReplay(
            "toy/vectors", 3, root=root, download=False, replacement=False, seed=0
        ),
        "shared": TensorDictReplayBuffer(
            storage=tensors, sampler=DistributedSampler(2, 1), batch_size=2
        ),
    }
    states = torch.load(OLD / "states.pt", weights_only=False)
    buffers[name].load_state_dict(states[name])
    batch = buffers[name].sample()
    key = "index" if name == "dataset" else "number"
    assert (batch.tolist() if name == "list" else batch[key].tolist()) == EXPECTED[name]
