"""Words of messages: options for those who type commands, arguments for those who call."""

from __future__ import annotations

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
