"""Mixtures of what datasets can be: views, stacks of frames, text, in every format of batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import datasets_cli
from datasets_cli import ExperienceReplay, Mixture, open_storage
from datasets_cli.config import Config
from tests.support.text_rows import steps_of, write


def test_rows_of_views_are_those_of_their_dataset(door: str) -> None:
    replay = ExperienceReplay(door)
    table = replay.trajectories
    best, run = replay.take(2, by="-return"), replay.rows(100, 250)
    source = [
        row
        for k in np.argsort(-table["return"], kind="stable")[:2]
        for row in range(table["start"][k], table["start"][k] + table["length"][k])
    ]
    source += range(100, 250)
    mixture = Mixture({best: 0.5, run: 0.5}, 64, seed=0)
    for _ in range(5):
        batch = mixture.sample()
        rows = [source[index] for index in batch["index"].tolist()]
        assert torch.equal(batch["observation"], replay[rows]["observation"])


@pytest.mark.parametrize("format", ["torch", "numpy", "jax"])
def test_batches_of_every_format_say_the_member(door: str, format: str) -> None:
    replay = ExperienceReplay(door)
    mixture = Mixture([replay, replay.rows(0, 500)], 32, weights=[1, 1], seed=0, format=format)
    plain = Mixture([replay, replay.rows(0, 500)], 32, weights=[1, 1], seed=0)
    for _ in range(4):  # one by one, and read ahead
        batch, right = mixture.sample(), plain.sample()
        for key in ("member", "index", "action"):
            assert np.array_equal(np.asarray(batch[key]), right[key].numpy())


def test_stacks_of_frames_are_mixed(config: Config) -> None:
    datasets_cli.download("demo/pong", verify=False)
    replay = ExperienceReplay("demo/pong", frame_stack=3)
    mixture = Mixture([replay.rows(0, 100), replay.rows(500, 900)], 16, weights=[1, 1], seed=0)
    batch = mixture.sample()
    assert batch["observation"].shape == (16, 3, 84, 84)
    for at, (number, index) in enumerate(zip(batch["member"], batch["index"], strict=True)):
        view, row = [(replay.rows(0, 100), index), (replay.rows(500, 900), index - 100)][number]
        assert torch.equal(batch["observation"][at], view[int(row)]["observation"])


def test_text_is_mixed_row_by_row(tmp_path: Path) -> None:
    folders = [
        write(tmp_path / name, layout, steps_of([f"{name} {step}" for step in range(14)]))
        for name, layout in (("left", "ted"), ("right", "compact"))
    ]
    storages = [open_storage(folder, text=True) for folder in folders]
    mixture = Mixture(storages, 12, weights=[1, 1], seed=0)
    batch = mixture.sample()
    for at, (number, index) in enumerate(zip(batch["member"], batch["index"], strict=True)):
        row = storages[number].get(index[None] - len(storages[0]) * number)
        assert batch["observation", "mission"][at] == row["observation", "mission"][0]
        assert str(batch["observation", "mission"][at]).startswith(["left", "right"][number])
