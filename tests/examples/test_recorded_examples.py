"""The examples that record datasets of their own."""

from __future__ import annotations

import pytest
import torch

from datasets_cli import ExperienceReplay, record
from examples import dqn_cartpole, offline_to_online, td3_bc


def test_dqn_records_its_dataset_once_and_draws_what_it_learned(tmp_path, capsys):
    options = {"steps": 20, "recorded_steps": 300, "episodes": 1}
    (curve,) = dqn_cartpole.main(**options, plot=tmp_path / "curve.svg")
    path = ExperienceReplay("recorded/cartpole-lean-300").data_path / "manifest.json"
    written = path.stat().st_mtime_ns
    assert dqn_cartpole.main(**options) == [curve], "the same seed, the same draws"
    assert path.stat().st_mtime_ns == written, "it was recorded again"
    assert [step for step, _ in curve] == [*range(2, 22, 2)]
    assert all(8 <= value <= 500 for _, value in curve)
    assert (tmp_path / "curve.svg").read_text().count("<polyline") == 1


def test_the_policy_that_records_cartpole_is_a_poor_one():
    dataset = record("CartPole-v1", "poor", policy=dqn_cartpole.lean, num_steps=2000, num_envs=4)
    assert 30 < ExperienceReplay(dataset.id).trajectories["return"].mean() < 50


def test_an_agent_learns_from_recorded_and_collected_rows():
    (found,) = offline_to_online.main(frames=200, recorded_steps=300)
    assert 8 <= found <= 500


@pytest.mark.slow
def test_recorded_and_collected_rows_teach_an_agent_to_balance():
    assert offline_to_online.main(frames=2000)[-1] > 100  # random actions: 22


def swing_up(rows):
    """Swing a pendulum up and hold it in three of ten steps, and do anything in the others."""
    cosine, sine, speed = rows["observation"].unbind(-1)
    missing = 5 - 5 * cosine - speed**2 / 6  # energy: none is missing where it stands upright
    swing = 2 * torch.sign(speed * missing)
    hold = -10 * torch.atan2(sine, cosine) - 2 * speed
    good = torch.where(cosine > 0.9, hold, swing).clamp(-2, 2)
    anything = 4 * torch.rand(good.shape) - 2
    return torch.where(torch.rand(good.shape) < 0.3, good, anything).unsqueeze(-1)


@pytest.mark.slow
def test_td3_bc_beats_the_policy_that_recorded_its_dataset():
    dataset = record("Pendulum-v1", "pendulum", policy=swing_up, num_steps=10_000, num_envs=8)
    recorded = ExperienceReplay(dataset.id).trajectories["return"].mean()
    found = td3_bc.main(dataset.id, steps=5000, width=64, alpha=40)
    # Imitation alone, alpha=0, gains less than 100; the returns are near -800, and -200 at best.
    assert found > recorded + 300
