"""Normalised scores, beside D4RL's formula on the reference scores of its table."""

from __future__ import annotations

import csv
import json
import math

import pytest

import datasets_cli
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import UnknownDataset, UsageError
from tests.support.paths import PROJECT
from tests.support.refusals import refused

Capture = pytest.CaptureFixture[str]


def test_scores_of_every_d4rl_dataset_are_by_its_table(config: Config) -> None:
    with (PROJECT / "recipes/d4rl/catalogue.tsv").open() as file:
        for row in csv.DictReader(file, delimiter="\t"):
            if not row["ref_min_score"]:
                with refused(UsageError, expected=("ref_min_score", "ref_max_score")):
                    datasets_cli.normalised_scores(f"d4rl/{row['name']}", [0], config=config)
                continue
            low, high = float(row["ref_min_score"]), float(row["ref_max_score"])
            found = datasets_cli.normalised_scores(
                f"d4rl/{row['name']}", [low, high, 7.5], config=config
            )
            expected = (0, 100, 100 * (7.5 - low) / (high - low))
            assert found.scores == pytest.approx(expected), row["name"]
            assert found.source == "the catalogue of d4rl"


def test_the_command_says_where_the_scores_are_from(config: Config, capsys: Capture) -> None:
    assert main(["score", "hopper-medium-v2", "3234.3", "-20.272305"]) == 0
    out = capsys.readouterr().out
    assert out.split()[:6] == ["RETURN", "SCORE", "3234.3", "100", "-20.2723", "0"]
    assert "by the catalogue of d4rl" in out
    assert main(["score", "hopper-medium-v2", "3234.3", "-q"]) == 0
    assert capsys.readouterr().out == "100\n"
    assert main(["score", "hopper-medium-v2", "0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["random"] == -20.272305


def test_an_installed_copy_has_those_of_its_manifest(config: Config, hopper: str) -> None:
    found = datasets_cli.normalised_scores(hopper, [0], config=config)
    replay = datasets_cli.ExperienceReplay(hopper, download=False)
    assert found.scores[0] / 100 == pytest.approx(replay.get_normalized_score(0))


def test_wrong_scores_are_refused(config: Config, capsys: Capture) -> None:
    def score(id: str, *returns: object) -> object:
        return datasets_cli.normalised_scores(id, returns, config=config)  # type: ignore[arg-type]

    with refused(UsageError, id="demo/iris", expected=("ref_min_score", "ref_max_score")):
        score("demo/iris", 1)
    for value in ("x", math.inf, None, 1e308):
        with refused(UsageError, argument="returns", found=value):
            score("hopper-medium-v2", value)
    with refused(UnknownDataset, id="nosuch"):
        score("nosuch", 1)
    assert main(["score", "hopper-medium-v2"]) == 2
    assert "needs RETURN" in capsys.readouterr().err
    assert main(["score", "hopper-medium-v2", "inf"]) == 2
    assert main(["score", "hopper-medium-v2", "-5", "--jsn"]) == 2
