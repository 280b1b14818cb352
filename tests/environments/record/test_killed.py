"""``rlds record`` in a process that is killed, and continues, or interrupted."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from datasets_cli import record
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.manifest import read_manifest
from tests.environments.record.test_record import files_of
from tests.support.killed import run_killed
from tests.support.paths import PROJECT

ENV, POLICY = "tests.environments.record.toys:Endless-v0", "tests.environments.record.toys:coin"
OPTIONS = {"num_episodes": 30, "max_episode_steps": 500, "policy": POLICY, "num_workers": 0}
COMMAND = f"record {ENV} --name half --episodes 30 --max-episode-steps 500 --policy {POLICY}"


@pytest.mark.slow
def test_a_killed_recording_continues_to_the_files_of_one_run(config: Config) -> None:
    work = CacheRoot(config.root).downloads("recorded/half")
    command = [sys.executable, "-m", "datasets_cli", *COMMAND.split(), "--workers", "0"]
    killed = subprocess.Popen(command, cwd=PROJECT)
    # There must be finished episodes on the disk to continue from, and others to record.
    while killed.poll() is None and len(list(work.glob("chunks/0*"))) < 3:
        time.sleep(0.005)
    killed.kill()
    assert killed.wait() == -signal.SIGKILL
    assert 3 <= len(list(work.glob("chunks/0*"))) < 30
    for name in ("half", "whole"):
        record(ENV, name, **OPTIONS)  # type: ignore[arg-type]
    assert files_of("half") == files_of("whole") and not work.exists()


@pytest.mark.parametrize(
    ("call", "stride"),
    [
        ("--episodes 2 --append", 13),
        pytest.param("--episodes 2 --append", 1, marks=pytest.mark.slow),
        pytest.param("--steps 30 --append", 1, marks=pytest.mark.slow),
        pytest.param("--episodes 3", 1, marks=pytest.mark.slow),
    ],
)
def test_killed_at_any_change_of_the_disk_the_same_call_adds_the_episodes_once(
    call: str, stride: int, config: Config, tmp_path: Path
) -> None:
    if "--append" in call:
        record("CartPole-v1", "x", num_episodes=3)
    (config.root / "tmp").mkdir(parents=True, exist_ok=True)
    command, whole = f"record CartPole-v1 --name x --workers 0 {call}", tmp_path / "whole"
    shutil.copytree(config.root, whole)
    assert main([*shlex.split(command), "--root", str(whole)]) == 0
    for step in range(0, 1000, stride):
        root = tmp_path / "copy"
        shutil.copytree(config.root, root)
        if run_killed(command, step, root, tmp_path) == 0:
            break
        assert main([*shlex.split(command), "--root", str(root)]) == 0, step
        for each in (root, whole):
            assert not any((each / "downloads/recorded").iterdir()), step
            assert not any((each / "tmp").iterdir()), step
        made, expected = (read_manifest(each / "datasets/recorded/x") for each in (root, whole))
        assert made == expected, step
        shutil.rmtree(root)
    assert step > 10


@pytest.mark.slow
@pytest.mark.parametrize("tenths", range(5, 55, 5))
def test_ctrl_c_at_any_moment_ends_a_recording_and_its_workers(tenths: int, config: Config) -> None:
    arguments = [*COMMAND.split(), "--episodes", "100000", "--workers", "2"]
    child = subprocess.Popen(
        [sys.executable, "-m", "datasets_cli", *arguments],
        **{"cwd": PROJECT, "stderr": subprocess.PIPE, "text": True, "start_new_session": True},
    )
    time.sleep(tenths / 10)
    os.killpg(child.pid, signal.SIGINT)  # as a terminal does, to the workers too
    _, error = child.communicate(timeout=60)  # until the last process has closed it
    if child.returncode == -signal.SIGABRT and "terminate called" in error:
        pytest.skip("torch ends the process where a signal handler raises during its import")
    assert child.returncode == 130
    assert error in ("", "Interrupted. Finished work is kept; run the same command again.\n")
