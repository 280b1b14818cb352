"""``rlds record`` in a process that is killed with SIGKILL; the same call makes the same files."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from datasets_cli import record
from datasets_cli.config import Config
from datasets_cli.store.cache_root import CacheRoot
from tests.environments.record.test_record import files_of
from tests.support.paths import PROJECT

ENV, POLICY = "tests.environments.record.toys:Endless-v0", "tests.environments.record.toys:coin"
OPTIONS = {"num_episodes": 30, "max_episode_steps": 500, "policy": POLICY, "num_workers": 0}
COMMAND = f"record {ENV} --out half --episodes 30 --max-episode-steps 500 --policy {POLICY}"


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
