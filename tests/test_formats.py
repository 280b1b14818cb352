"""What earlier versions installed, dumped and saved still opens, and continues as it would have."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
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
from datasets_cli.installed.verification import verify
from tests.support.paths import TEST_DATA

OLD = TEST_DATA / "formats" / "0.1"
VERSION_1 = TEST_DATA / "formats" / "version-1"
FAMILIES = {
    "d4rl": "d4rl/hopper-medium-v2",
    "minari": "minari/test/built-v0",
    "openml": "openml/61",
    "atari_dqn": "atari_dqn/Pong/5",
}
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


def values_of(family: str) -> dict[str, np.ndarray]:
    return dict(np.load(VERSION_1 / "expected" / f"{family}.npz"))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_dataset_of_format_version_1_opens_with_every_value(tmp_path: Path, family: str) -> None:
    root = shutil.copytree(VERSION_1 / "root", tmp_path / "old")
    verify(FAMILIES[family], Config(root))
    replay = ExperienceReplay(FAMILIES[family], root=root, download=False)
    expected = values_of(family)
    assert {".".join(key) for key in replay.storage.dataset.keys} == expected.keys()
    for key in replay.storage.dataset.keys:
        found = replay[key].numpy()
        assert found.dtype == expected[".".join(key)].dtype
        assert found.tobytes() == expected[".".join(key)].tobytes(), key


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_of_format_version_1_that_were_dumped_are_read(family: str) -> None:
    expected = values_of(family)
    picked = slice(None) if family == "openml" else [0, 3, 5, 2]
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(150), batch_size=2)
    buffer.loads(VERSION_1 / "dumps" / family)
    for name, values in expected.items():
        found = buffer[:][tuple(name.split("."))]
        assert found.numpy().tobytes() == np.ascontiguousarray(values[picked]).tobytes(), name
