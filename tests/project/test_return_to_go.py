"""The return to go by the command's defaults is right for a dataset of every family and layout."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from datasets_cli import open_dataset
from datasets_cli.cli.main import main
from datasets_cli.preprocessing import origin
from tests.support.paths import DEMO_DATA

FUNCTION = """
import torch
from tensordict import TensorDict

def return_to_go(batch):
    rewards, done = batch["next", "reward"].double(), batch["next", "done"]
    togo = torch.zeros_like(rewards)
    later = torch.zeros(())
    for row in reversed(range(len(batch))):
        later = togo[row] = rewards[row] + (0 if done[row] else later)
    return TensorDict({"togo": togo}, batch.batch_size)
"""


@pytest.mark.parametrize("layout", ["ted", "compact"])
@pytest.mark.parametrize("name", ["door-human", "door-minari", "iris", "pong"])
def test_it_is_the_sum_of_the_rewards_that_follow(
    here: Path, monkeypatch: pytest.MonkeyPatch, name: str, layout: str
) -> None:
    """By a loop over the rewards and flags of the dataset, which knows nothing of chunks."""
    monkeypatch.setattr(origin, "rows_per_block", lambda row_bytes: 100)
    (here / "togo_functions.py").write_text(FUNCTION)
    assert main(["download", f"demo/{name}", "--layout", layout, "-q"]) == 0
    call = ["preprocess", f"demo/{name}", "--fn", "togo_functions:return_to_go", "--name", "togo"]
    assert main([*call, "--workers", "0"]) == 0
    rows = open_dataset(f"demo/{name}")
    rewards = np.asarray(rows.column(("next", "reward")), np.float64)
    done = np.asarray(rows.column(("next", "done")))
    expected, later = np.zeros_like(rewards), 0.0
    for row in range(len(rewards) - 1, -1, -1):
        later = rewards[row, 0] + (0 if done[row, 0] else later)
        expected[row] = later
    found = np.asarray(open_dataset("derived/togo").column(("togo",)))
    assert np.abs(found - expected).max() < 1e-9 and len(found) > 100


def test_it_is_the_return_of_each_episode_in_the_file(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(origin, "rows_per_block", lambda row_bytes: 100)
    (here / "togo_functions.py").write_text(FUNCTION)
    assert main(["download", "demo/door-minari", "-q"]) == 0
    call = ["preprocess", "demo/door-minari", "--fn", "togo_functions:return_to_go"]
    assert main([*call, "--name", "togo", "--workers", "0"]) == 0
    path = DEMO_DATA / "minari" / "D4RL" / "door" / "human-v2" / "data" / "main_data.hdf5"
    with h5py.File(path) as file:
        episodes = sorted(file.values(), key=lambda group: group.attrs["id"])
        returns = [float(np.sum(group["rewards"][:], dtype=np.float64)) for group in episodes]
    derived = open_dataset("derived/togo")
    first = np.asarray(derived.column(("togo",)))[np.asarray(derived.offsets)[:-1], 0]
    assert np.allclose(first, returns, rtol=0, atol=1e-6)
