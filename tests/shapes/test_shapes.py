"""Programs in the shape of TorchRL's scripts, which import ours instead, line after line."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from torchrl.data.datasets import d4rl

from tests.shapes.homes import ADDRESSES, made_home
from tests.shapes.table import cells, read
from tests.shapes.variants import NAMES, Swap, run_all

ALWAYS = {"dqn", "iql_offline"}


def changed(part: str) -> str:
    lines = "from torchrl.data import Composite, SliceSampler\nfrom torchrl.envs import GymEnv"
    return ast.unparse(ast.fix_missing_locations(Swap((part,)).visit(ast.parse(lines))))


def test_import_lines_are_changed_part_by_part() -> None:
    theirs, ours = "from torchrl.data import", "from datasets_cli.torchrl.data import"
    rest = "from torchrl.envs import GymEnv"
    assert changed("data") == f"{theirs} Composite\n{ours} SliceSampler\n{rest}"
    assert changed("specs") == f"{ours} Composite\n{theirs} SliceSampler\n{rest}"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return made_home(tmp_path_factory.mktemp("home"))


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in ALWAYS else pytest.mark.slow) for n in NAMES]
)
def test_the_page_says_what_comes_of_a_program(
    name: str, home: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in home.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setenv("HOME", str(tmp_path))  # TorchRL opens what is there, split or not
    monkeypatch.setattr(d4rl, "D4RL_DATASETS", d4rl.D4RL_DATASETS | ADDRESSES)
    assert cells(run_all(name)) == read(name)
