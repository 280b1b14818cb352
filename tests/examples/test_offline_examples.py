"""The examples that learn from published datasets run, and learn, on the data that ships."""

from __future__ import annotations

import ast
import runpy
import sys
from importlib import import_module

import pytest
import torch
import typer
from typer.testing import CliRunner

from datasets_cli import RldsError, download
from examples import behaviour_cloning, decision_transformer, td3_bc
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
    # (260.3 + 56.5) / (2880.6 + 56.5), by the table of D4RL
    assert "recorded policy: 10.8 of 100 (return 260.3)" in capsys.readouterr().out
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
