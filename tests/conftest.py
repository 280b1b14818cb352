"""A cache root, a configuration folder and an environment of its own for every test."""

from __future__ import annotations

import gc
import os
import shutil
import socket
import sys
from collections.abc import Generator, Iterator
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from datasets_cli.config import Config, load_config
from tests.support.disks import Disks
from tests.support.interpreters import PreloadedPopen, Python, preloaded, started
from tests.support.paths import DEMO_DATA, TEST_DATA

# How long an example takes says how busy the machine is.
settings.register_profile("tests", deadline=None, max_examples=25)
settings.load_profile("tests")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Collect tests without garbage collection: what they import stays to the end."""
    gc.disable()
    result = yield
    gc.freeze()
    gc.enable()
    return result


@pytest.fixture(autouse=True)
def clean_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("RLDS_", "HF_", "MINARI_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.delenv("D4RL_DATASET_DIR", raising=False)  # TorchRL's reader of D4RL sets it
    monkeypatch.setenv("RLDS_HOME", str(tmp_path / "root"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    # What killed processes of others left on this machine.
    monkeypatch.setattr("datasets_cli.verbs.prune.abandoned_folders", list)


@pytest.fixture(autouse=True)
def trajectories_from_zero() -> None:
    """Number the trajectories of each test's collectors as those of a new process."""
    if seams := sys.modules.get("datasets_cli.replay.trajectories.seams"):
        seams._counter.__init__()


@pytest.fixture(autouse=True)
def loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: object) -> None:
        host = address[0] if isinstance(address, tuple) else None
        assert host in (None, "127.0.0.1", "localhost", "::1"), f"a test connects to {address}"
        connect(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.fixture
def config(clean_environment: None) -> Config:
    return load_config()


@pytest.fixture
def disks() -> Iterator[Disks]:
    """Real disks, which are gone after the test."""
    disks = Disks()
    yield disks
    disks.close()


@pytest.fixture(autouse=True)
def preloaded_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that a test spawns have imported torch already; ``started`` ones have not."""
    monkeypatch.setattr(SpawnProcess, "_Popen", staticmethod(PreloadedPopen))


@pytest.fixture(params=[preloaded, pytest.param(started, marks=pytest.mark.slow)])
def python(request: pytest.FixtureRequest) -> Python:
    """A way to run a Python; the slow tests start what the others fork."""
    run: Python = request.param
    return run


DEMO = DEMO_DATA
DOOR = "d4rl/door-human-v0"
HOPPER = "d4rl/hopper-medium-v2"


@pytest.fixture(scope="session")
def door_source() -> str:
    """The folder of a small file in D4RL's layout: 5 demonstrations of door, 1,500 steps."""
    return str(TEST_DATA / "d4rl" / "demonstrations")


def root_with(id: str, source: str, root: Path) -> Path:
    """Return a cache root with a dataset, to be copied: an installation waits for the disk."""
    from datasets_cli.install.installation import install_dataset
    from datasets_cli.install.options import InstallOptions

    install_dataset(id, Config(root), InstallOptions(source=source, accept_any=True))
    return root


@pytest.fixture(scope="session")
def root_with_door(door_source: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return root_with(DOOR, door_source, tmp_path_factory.mktemp("door"))


@pytest.fixture
def door(config: Config, root_with_door: Path) -> str:
    """The id of that dataset, installed."""
    shutil.copytree(root_with_door, config.root, dirs_exist_ok=True)
    return DOOR


@pytest.fixture(scope="session")
def root_with_hopper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache root with the first two episodes of a published file, under its id."""
    return root_with(HOPPER, str(TEST_DATA / "d4rl" / "cuts"), tmp_path_factory.mktemp("hopper"))


@pytest.fixture
def hopper(config: Config, root_with_hopper: Path) -> str:
    """The id of that dataset, installed."""
    shutil.copytree(root_with_hopper, config.root, dirs_exist_ok=True)
    return HOPPER
