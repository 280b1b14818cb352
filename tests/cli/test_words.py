"""Words for those who type commands and for those who call; what ``rlds record`` prints."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import datasets_cli
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import RldsError
from tests.support.origin import closed_port_url

Capture = pytest.CaptureFixture[str]
MAZE = "d4rl/maze2d-open-v0"
POLICY = "def act(batch):\n    return batch['observation'][:, :1] * float('nan')\n"
PENDULUM = ["record", "Pendulum-v1", "--name", "x", "--episodes", "2", "--policy", "far:act"]


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(RldsError) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize("offline", [False, True])
def test_a_download_that_fails_speaks_to_its_reader(
    offline: bool, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    closed = closed_port_url() + "x.hdf5"
    monkeypatch.setattr("datasets_cli.sources.http.Http.candidates", lambda *_: [closed])
    monkeypatch.setattr("datasets_cli.sources.http.Http.pause", lambda *_: None)
    monkeypatch.setenv("RLDS_OFFLINE", "1" if offline else "0")
    in_python = refused(lambda: datasets_cli.download(MAZE, num_workers=0))
    assert "source=" in in_python and "--" not in in_python
    assert main(["download", MAZE]) == 5
    typed = capsys.readouterr().err.rpartition("rlds: ")[2]
    assert "--source" in typed and "--offline" in typed and "source=" not in typed


def test_what_is_not_installed_names_the_command_or_the_function(
    config: Config, capsys: Capture
) -> None:
    in_python = refused(lambda: datasets_cli.dataset_path(MAZE, config=config))
    assert in_python.endswith(f"Run: rlds download {MAZE}, or datasets_cli.download('{MAZE}')")
    assert main(["path", MAZE]) == 3
    assert capsys.readouterr().err.endswith(f"Run: rlds download {MAZE}\n")


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_policy_that_is_refused_names_the_option(
    workers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    (tmp_path / "far.py").write_text(POLICY)
    monkeypatch.chdir(tmp_path)
    assert main([*PENDULUM, "--workers", workers]) == 2
    assert "--check-actions false disables" in capsys.readouterr().err
    call = {"policy": "far:act", "num_episodes": 2, "num_workers": int(workers)}
    in_python = refused(lambda: datasets_cli.record("Pendulum-v1", "x", **call))  # type: ignore[arg-type]
    assert "check_actions=False disables" in in_python


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
