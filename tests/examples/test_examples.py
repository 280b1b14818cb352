"""The example scripts run and print what they promise."""

from __future__ import annotations

import ast
import runpy
import sys
from importlib import import_module

import pytest
import torch
import typer
from typer.testing import CliRunner

from datasets_cli import ExperienceReplay, RldsError, download, record
from examples import (
    behaviour_cloning,
    decision_transformer,
    dqn_cartpole,
    offline_to_online,
    td3_bc,
)
from tests.support.paths import PROJECT

FILES = sorted((PROJECT / "examples").glob("*.py"))
PAGE = (PROJECT / "docs" / "cookbook.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_is_short_says_how_it_is_run_and_is_on_its_page(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 150
    assert f"\npython examples/{path.name}" in (ast.get_docstring(ast.parse(text)) or "")
    assert f"(../examples/{path.name})" in PAGE


def test_behaviour_cloning_is_better_than_the_mean_action_on_demonstrations_held_out(door_minari):
    error, of_mean = behaviour_cloning.main(door_minari, epochs=5)
    assert 0 < error < 0.7 * of_mean


def test_td3_bc_trains_and_saves_its_policy(door_human, capsys, tmp_path):
    assert td3_bc.main(door_human, evaluate=False, steps=20, width=16) is None
    # (260.2 + 56.5) / (2880.6 + 56.5), by the table of D4RL; the file's rewards sum to 2 x 260.2
    assert "recorded policy: 10.8 of 100 (return 260.2)" in capsys.readouterr().out
    saved = torch.load(tmp_path / "td3_bc.pt")
    assert saved["actor"]["0.0.weight"].shape == (16, len(saved["loc"])) == (16, 39)


def test_td3_bc_asks_for_an_environment_before_it_trains(door_human, monkeypatch):
    monkeypatch.setattr(td3_bc, "train", lambda *_: pytest.fail("it trained"))
    with pytest.raises(RldsError, match="--no-evaluate"):
        td3_bc.main(door_human)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_option_of_an_example_has_help_and_no_count_is_negative(path):
    app = typer.Typer(add_completion=False)
    app.command()(import_module(f"examples.{path.stem}").main)
    options = [each for each in typer.main.get_command(app).params if each.name != "help"]
    assert [each.name for each in options if not each.help] == []
    assert "save" in {each.name for each in options}
    counts = [each for each in options if each.name in ("steps", "epochs", "frames")]
    assert counts
    for each in counts:
        assert CliRunner().invoke(app, [f"--{each.name}", "-5"]).exit_code == 2


def test_a_decision_transformer_learns(door_human):
    losses = decision_transformer.main(door_human, steps=40, length=5, width=16, batch_size=16)
    assert sum(losses[-10:]) < 0.7 * sum(losses[:10])


@pytest.mark.parametrize("name", ["behaviour_cloning", "decision_transformer", "td3_bc"])
@pytest.mark.parametrize(
    ("dataset", "words"),
    [("nosuch", "nosuch is not a known dataset"), ("demo/iris", "demo/iris has discrete actions")],
)
def test_an_example_answers_a_wrong_dataset_in_a_sentence(name, dataset, words, monkeypatch):
    download("demo/iris")
    monkeypatch.setattr(sys, "argv", [name, "--dataset", dataset])
    with pytest.raises(SystemExit, match=f"^{words}"):
        runpy.run_path(str(PROJECT / "examples" / f"{name}.py"), run_name="__main__")


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
