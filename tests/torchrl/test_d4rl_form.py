"""The rows of D4RL in TorchRL's form: a root ``reward``, held against TorchRL's own class."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path

import h5py
import pytest
import torch
from tensordict import TensorDict

from datasets_cli import D4RLExperienceReplay, ExperienceReplay, Mixture
from datasets_cli.config import Config
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.replay import Reward2GoTransform
from tests.support.paths import TEST_DATA

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torchrl.data.datasets import d4rl as theirs
    from torchrl.envs.transforms import Reward2GoTransform as TheirReward2Go

NAME = "hopper-medium-v2"
FILE = TEST_DATA / "d4rl" / "cuts" / "hopper_medium-v2.hdf5"


@pytest.fixture
def their_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TensorDict:
    """All steps but the last, as TorchRL reads them of the same file."""
    monkeypatch.setattr(theirs, "_download_dataset_from_url", lambda url, folder: FILE)
    data = theirs.D4RLExperienceReplay(NAME, 4, direct_download=True, root=tmp_path / "theirs")
    rows: TensorDict = data[:]
    return rows


def expected_rewards() -> torch.Tensor:
    """Of each step of the file, all of which have a successor: the reward before it, or 0."""
    with h5py.File(FILE) as file:
        rewards, ends = file["rewards"][:], file["timeouts"][:] | file["terminals"][:]
    before = [0.0] + [0.0 if end else float(r) for r, end in zip(rewards, ends, strict=True)]
    return torch.tensor(before[:-1]).unsqueeze(1)


@pytest.mark.parametrize("layout", ["ted", "compact"])
def test_the_root_reward_is_that_of_the_step_before(
    layout: str, config: Config, their_rows: TensorDict
) -> None:
    source = InstallOptions(source=str(FILE.parent), accept_any=True, layout=layout)
    install_dataset(f"d4rl/{NAME}", config, source)
    replay, expected = D4RLExperienceReplay(NAME, 16, seed=0), expected_rewards()
    rows = replay[:]
    assert torch.equal(rows["reward"], expected) and torch.equal(replay["reward"], expected)
    arrays = replay.with_format("numpy").sample()
    assert torch.equal(torch.from_numpy(arrays["reward"]), expected[arrays["index"]])
    for batch, _ in zip(replay, range(20), strict=False):
        assert torch.equal(batch["reward"], expected[batch["index"]])
    # TorchRL's is the same but for the first row of a trajectory, where it has the last reward of
    # the one before; it leaves the last step of the file out.
    assert torch.equal(their_rows["action"], rows["action"][:-1])
    differ = (their_rows["reward"] != rows["reward"][:-1]).squeeze(1).nonzero().squeeze(1)
    assert differ.tolist() == replay.storage.offsets[1:-1].tolist()


def test_views_pickles_mixtures_and_chosen_columns_have_the_root_reward(hopper: str) -> None:
    replay, expected = D4RLExperienceReplay(NAME, 8), expected_rewards()
    first = int(replay.storage.offsets[1])
    view = pickle.loads(pickle.dumps(replay.episodes_at([1])))
    assert torch.equal(view["reward"], expected[first:])
    mixed = Mixture([replay, view], batch_size=8)[:]
    assert torch.equal(mixed["reward"], torch.cat([expected, expected[first:]]))
    only = D4RLExperienceReplay(NAME, 8, columns=["reward"])
    assert {*only.sample().keys()} == {"reward", "index"} and "next" not in only.specs
    assert torch.equal(only[:]["reward"], expected) and only.specs["reward"].shape == (1,)
    assert "reward" not in D4RLExperienceReplay(NAME, 8, columns=["action"])[:]
    stacks = D4RLExperienceReplay(NAME, 8, frame_stack=2)[:]
    assert torch.equal(stacks["reward"], expected)
    assert "reward" not in ExperienceReplay(hopper)[:] and not view.storage.has(("re",))


@pytest.mark.parametrize("transform", [Reward2GoTransform, TheirReward2Go])
def test_the_decision_transformer_has_returns_to_go_at_the_root(
    transform: type, hopper: str
) -> None:
    data = D4RLExperienceReplay(NAME, 4, split_trajs=True, direct_download=True)
    keys = [("next", "reward"), "reward"], [("next", "return_to_go"), "return_to_go"]
    rows = data[:]
    with rows.unlock_():
        made = transform(gamma=1.0, in_keys=keys[0], out_keys=keys[1]).inv(rows)
    for number, trajectory in enumerate(D4RLExperienceReplay(NAME).episodes()):
        for reward, to_go in zip(("reward", ("next", "reward")), keys[1][::-1], strict=True):
            rest = trajectory[reward].flip(0).cumsum(0).flip(0)
            found = made[number][to_go][: len(rest)]
            torch.testing.assert_close(found, rest, rtol=1e-4, atol=1e-2)
