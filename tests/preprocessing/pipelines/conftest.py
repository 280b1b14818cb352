"""A real piece of hopper-medium-v2, installed in both layouts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from datasets_cli.config import Config
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.preprocessing import origin
from tests.support.d4rl_cuts import CUTS

HOPPER = "d4rl/hopper-medium-v2"


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks of few rows, so that there are several."""
    monkeypatch.setattr(origin, "rows_per_block", lambda row_bytes: 100)


@pytest.fixture(scope="session", params=["ted", "compact"])
def root_with_hopper(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    root = tmp_path_factory.mktemp(request.param)
    source = CUTS["hopper-medium-v2"].lay_out(root / "source")
    options = InstallOptions(source=str(source), accept_any=True, layout=request.param)
    install_dataset(HOPPER, Config(root), options)
    shutil.rmtree(source)
    return root


@pytest.fixture
def hopper(config: Config, root_with_hopper: Path) -> str:
    """The id of the dataset: 911 rows, two trajectories of 470 and 441, both terminated."""
    shutil.copytree(root_with_hopper, config.root, dirs_exist_ok=True)
    return HOPPER
