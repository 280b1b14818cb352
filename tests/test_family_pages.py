"""What the pages of families say of published files is so of real cuts of them."""

from __future__ import annotations

import re
import runpy
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import h5py
import numpy as np
import pytest

from datasets_cli.recipes.atari_dqn.catalogue import TRAPS as ATARI_TRAPS
from datasets_cli.recipes.d4rl.traps import TRAPS
from tests.support.paths import PROJECT, TEST_DATA

CUTS = TEST_DATA / "d4rl" / "cuts"
FAMILIES = PROJECT / "docs" / "families"


@pytest.mark.parametrize(
    ("name", "timeouts", "jumps"),
    [("antmaze-large-play-v0", [998, 1997], [1000]), ("antmaze-umaze-v0", [700, 1401], [700])],
)
def test_timeouts_of_antmaze_are_in_the_rows_that_the_page_names(
    name: str, timeouts: list[int], jumps: list[int]
) -> None:
    with h5py.File(CUTS / f"{name}.hdf5") as file:
        steps = np.linalg.norm(np.diff(file["observations"][:, :2], axis=0), axis=1)
        assert np.flatnonzero(file["timeouts"]).tolist() == timeouts
    assert np.flatnonzero(steps > 1).tolist() == jumps
    page = (FAMILIES / "d4rl.md").read_text(encoding="utf-8")
    section = page.partition("## Timeouts of antmaze")[2].partition("\n## ")[0]
    assert f"`{name}`" in section and all(str(row) in section for row in [*timeouts, *jumps])


def test_terminals_of_antmaze_come_in_the_run_that_the_page_names() -> None:
    with h5py.File(CUTS / "antmaze-medium-diverse-v0.hdf5") as file:
        assert np.flatnonzero(file["terminals"]).tolist() == [64, 65, 66]


def test_the_pages_have_every_trap_and_its_source() -> None:
    page = (FAMILIES / "d4rl.md").read_text(encoding="utf-8")
    issues = set(re.findall(r"issue \d+", " ".join(trap.text for trap in TRAPS)))
    assert len(issues) > 8 and {issue for issue in issues if issue not in page} == set()
    atari = (FAMILIES / "atari_dqn.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in atari for name in ATARI_TRAPS)


def test_the_drawings_of_concepts_are_what_their_script_draws_with_text_to_select() -> None:
    page = (PROJECT / "docs" / "concepts.md").read_text(encoding="utf-8")
    for name, draw in runpy.run_path(str(PROJECT / "scripts" / "drawings"))["DRAWINGS"].items():
        kept = Path(PROJECT / "docs" / f"{name}.svg").read_text(encoding="utf-8")
        assert kept == str(draw()) and f"]({name}.svg)" in page, "run scripts/drawings"
        assert len(kept) <= 30_000 and "@media (prefers-color-scheme: dark)" in kept
        tags = [element.tag.partition("}")[2] for element in ElementTree.fromstring(kept).iter()]
        assert tags.count("text") > 15 and {"title", "desc"} < set(tags)
        assert "image" not in tags and "script" not in tags
