"""The examples that learn from published datasets run, and learn, on the data that ships."""

from __future__ import annotations

import ast
import runpy
import sys

import pytest

from datasets_cli import download
from examples import behaviour_cloning, decision_transformer, td3_bc
from tests.support.paths import PROJECT

FILES = sorted((PROJECT / "examples").glob("*.py"))
PAGE = (PROJECT / "docs" / "examples.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_is_short_says_how_it_is_run_and_is_on_its_page(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 120
    assert f"\npython examples/{path.name}" in (ast.get_docstring(ast.parse(text)) or "")
    assert f"(../examples/{path.name})" in PAGE


def test_behaviour_cloning_is_better_than_the_mean_action_on_demonstrations_held_out(door_minari):
    error, of_mean = behaviour_cloning.main(door_minari, epochs=5)
    assert 0 < error < 0.7 * of_mean


def test_td3_bc_trains_and_says_what_it_needs_to_be_evaluated(door_human, capsys):
    assert td3_bc.main(door_human, steps=20, width=16) is None
    printed = capsys.readouterr().out
    # (260.3 + 56.5) / (2880.6 + 56.5), by the table of D4RL
    assert "recorded policy: 10.8 of 100 (return 260.3)" in printed
    assert f"not evaluated: {door_human} does not say which environment it is of" in printed


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
