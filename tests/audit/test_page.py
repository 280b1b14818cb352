"""docs/errata.md is what the generator makes of the rules, the facts and the real cuts."""

from __future__ import annotations

import runpy
from pathlib import Path

import h5py
import numpy as np
import pytest

from datasets_cli.audit.rules.registry import RULES
from tests.support.d4rl_cuts import CUTS, DOOR, FOLDER
from tests.support.d4rl_readers import READERS, qlearning_dataset, torchrl
from tests.support.paths import PROJECT


def test_the_page_is_what_is_made_now() -> None:
    page = runpy.run_path(str(PROJECT / "scripts" / "errata"))["page"]
    text = (PROJECT / "docs" / "errata.md").read_text(encoding="utf-8")
    assert page([FOLDER, DOOR.parent], READERS) == text, "run scripts/errata"
    assert all(f"| {rule.name} | {rule.version} |" in text for rule in RULES)


def laid_out(cut: str, folder: Path) -> Path:
    (path,) = CUTS[cut].lay_out(folder).iterdir()
    return path


def test_d4rl_joins_two_episodes_of_an_ant_that_was_reset(tmp_path: Path) -> None:
    path = laid_out("ant-medium-v0", tmp_path)
    made = qlearning_dataset(path)
    with h5py.File(path) as file:
        timeouts, count = file["timeouts"][:], len(file["rewards"])
    expected = [step for step in range(count - 1) if not timeouts[step]]
    assert made["step"].tolist() == expected and 210 in expected and 999 not in expected
    assert not made["terminated"].any() and made["follows"].all()


@pytest.mark.parametrize(("cut", "step"), [("ant-medium-v0", 210), ("antmaze-large-play-v0", 1000)])
def test_torchrl_joins_the_same_steps(cut: str, step: int, tmp_path: Path) -> None:
    made = torchrl(laid_out(cut, tmp_path))
    at = np.flatnonzero(made["step"] == step)
    assert made["follows"][at].all() and not made["done"][at].any() and len(at) == 1
