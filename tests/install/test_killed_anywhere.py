"""Commands that are killed at any change of the disk: what is there is whole."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.install.installation import install_dataset
from tests.support.killed import run_killed

IRIS = "demo/iris"


@pytest.mark.parametrize("stride", [17, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("call", "is_there"),
    [
        ("download demo/iris -q", False),
        ("download demo/iris --force -q", True),
        ("convert demo/iris --layout compact -q", True),
        ("delete demo/iris --yes", True),
    ],
)
def test_killed_at_any_change_of_the_disk_the_same_command_goes_on(
    call: str, is_there: bool, stride: int, config: Config, tmp_path: Path
) -> None:
    if is_there:
        install_dataset(IRIS, config)
    (config.root / "tmp").mkdir(parents=True, exist_ok=True)
    for step in range(0, 1000, stride):
        root = tmp_path / "copy"
        shutil.copytree(config.root, root)
        if run_killed(call, step, root, tmp_path) == 0:
            break
        at_root = ["--root", str(root)]
        assert main(["verify", *at_root]) == 0  # what is listed is whole
        code = main([*shlex.split(call), *at_root])
        assert code == 0 or (call.startswith("delete") and code == 3), step  # it was deleted
        assert main(["download", IRIS, "-q", *at_root]) == 0 and main(["verify", *at_root]) == 0
        assert not list((root / "tmp").iterdir()), step
        shutil.rmtree(root)
    assert step > 0
