"""``rlds record``: what it prints, and what it says to wrong calls."""

from __future__ import annotations

import json

import pytest

from datasets_cli.cli.main import main
from datasets_cli.config import Config

Capture = pytest.CaptureFixture[str]
CALL = ["record", "CartPole-v1", "--name", "x", "--workers", "0"]


def test_record_prints_the_folder_of_the_dataset(config: Config, capsys: Capture) -> None:
    assert main([*CALL, "--episodes", "3", "--envs", "2"]) == 0
    out, err = capsys.readouterr()
    assert out.strip() == str(config.root / "datasets/recorded/x")
    assert "recorded/x: " in err and "3 trajectories" in err
    assert main(["--json", *CALL, "--episodes", "2", "--append"]) == 0
    assert json.loads(capsys.readouterr().out)["num_trajectories"] == 5
    assert main(["list", "--installed", "recorded/*", "-q"]) == 0
    assert capsys.readouterr().out == "recorded/x\n"


def test_options_of_the_environment_are_json_or_text(capsys: Capture) -> None:
    call = ["record", "CartPole-v1", "--name", "x", "--workers", "0", "--steps", "5"]
    assert main([*call, "-o", "sutton_barto_reward=true", "-o", "render_mode=rgb_array"]) == 0
    assert main([*call, "-o", "sutton"]) == 2
    assert "-o sutton is not NAME=VALUE" in capsys.readouterr().err
