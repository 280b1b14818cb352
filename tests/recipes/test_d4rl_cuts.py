"""Real pieces of 18 published D4RL files: every value, in both layouts, by an independent reader.

``tests/support/values.py`` reads them with h5py and makes the rows in a plain loop.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datasets_cli.config import Config
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.store.dataset import open_dataset
from tests.support.d4rl_cuts import CUTS, columns
from tests.support.values import assert_folder, assert_same, everything, expect


def install(cut: str, folder: Path, layout: str) -> Path:
    """Convert a cut; return the dataset's folder."""
    source = CUTS[cut].lay_out(folder / "source")
    options = InstallOptions(accept_any=True, layout=layout, source=str(source))
    return install_dataset(f"d4rl/{CUTS[cut].name}", Config(folder / layout), options).path


@pytest.mark.parametrize("cut", CUTS)
def test_every_value_of_a_real_file_is_kept_in_both_layouts(cut: str, tmp_path: Path) -> None:
    expected = expect(columns(cut))
    assert_folder(install(cut, tmp_path, "ted"), expected)
    assert_same(everything(open_dataset(install(cut, tmp_path, "compact"))), expected.leaves)


@pytest.mark.parametrize(
    ("cut", "ends"),
    [
        # Row 199 has a timeout in the middle of the demonstration: its successor is not taken.
        ("door-human-v0", {"offsets": [0, 199, 299], "terminated": [298]}),
        ("halfcheetah-medium-v0", {"offsets": [0, 899, 1897], "terminated": [898]}),
        ("ant-medium-v0", {"offsets": [0, 999, 1998], "terminated": []}),
        # Three rows at the goal: the first one ends the way there, the others are alone.
        ("antmaze-medium-diverse-v0", {"offsets": [0, 65, 66, 67], "terminated": [64, 65, 66]}),
        ("hopper-medium-replay-v1", {"offsets": [0, 40, 49], "terminated": [39, 48]}),
    ],
)
def test_flags_of_a_real_file_are_taken_as_they_are(
    cut: str, ends: dict[str, list[int]], tmp_path: Path
) -> None:
    dataset = open_dataset(install(cut, tmp_path, "ted"))
    terminated = everything(dataset)["next", "terminated"][:, 0]
    assert np.flatnonzero(terminated).tolist() == ends["terminated"]
    assert np.load(dataset.folder / "trajectories.npy").tolist() == ends["offsets"]


def test_a_policy_in_a_real_file_is_named_and_left_out(tmp_path: Path) -> None:
    manifest: dict[str, Any] = json.loads(
        (install("pen-cloned-v1", tmp_path, "ted") / "manifest.json").read_text()
    )
    assert manifest["metadata"]["file_metadata"]["algorithm"] == "DAPG"
    assert "metadata/policy/fc0/weight" in manifest["metadata"]["dropped_fields"]
