"""What rules find in real pieces of published files, and what they do not accuse.

The rows are told by h5py alone: each is worked out of the file next to it, by its keys.
"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from datasets_cli import audit_datasets
from datasets_cli.config import Config
from datasets_cli.install.install import install_dataset
from datasets_cli.install.options import InstallOptions
from tests.support.d4rl_cuts import CUTS

WRONG = {
    "door-human-v0": {"false-end": [198], "impossible-terminal": [298]},
    "hammer-cloned-v0": {"false-end": [198]},
    "pen-human-v0": {"false-end": [98]},
    "halfcheetah-medium-v0": {"impossible-terminal": [898]},
    # Step 999 has a timeout and is no row; the ant is reset at steps 211 and 1210.
    "ant-medium-v0": {"false-end": [998], "unflagged-reset": [211, 1209]},
    # Step 998 has a timeout and is no row; the ant jumps after step 1000.
    "antmaze-large-play-v0": {"false-end": [997], "unflagged-jump": [999]},
    "ant-random-v1": {"frozen-state": [0, 59]},
    "halfcheetah-random-v1": {"frozen-state": [0, 1000]},
    "hopper-medium-replay-v1": {"frozen-state": [0, 40]},
}
"""Rows of the dataset by cut and rule."""
SUSPICIOUS = {"antmaze-medium-diverse-v0": {"terminal-run": [65, 66]}}


def install(cut: str, folder: Path, name: str = "") -> Config:
    """Convert a cut into a root, and return its configuration."""
    source = str(CUTS[cut].lay_out(folder / "source"))
    options = InstallOptions(accept_any=True, source=source)
    install_dataset(f"d4rl/{name or CUTS[cut].name}", Config(folder / "root"), options)
    return Config(folder / "root")


@pytest.mark.parametrize("cut", CUTS)
def test_every_defect_of_a_real_file_is_found_and_no_sound_one_is_accused(
    cut: str, tmp_path: Path
) -> None:
    [audited] = audit_datasets(config=install(cut, tmp_path))
    by_severity: dict[str, dict[str, list[int]]] = {"wrong": {}, "suspicious": {}, "note": {}}
    for finding in audited.findings:
        by_severity[finding.severity][finding.rule] = [*finding.rows]
    assert by_severity["wrong"] == WRONG.get(cut, {})
    assert by_severity["suspicious"] == SUSPICIOUS.get(cut, {})


@pytest.mark.parametrize(
    ("cut", "step"), [("door-human-v0", 199), ("hammer-cloned-v0", 199), ("pen-human-v0", 99)]
)
def test_the_hand_of_a_false_end_moves_no_farther_than_between_other_steps(
    cut: str, step: int
) -> None:
    with h5py.File(CUTS[cut].path) as file:
        positions, ends = file["infos/qpos"][:], np.flatnonzero(file["timeouts"][:])
    moved = np.linalg.norm(np.diff(positions.astype(float), axis=0), axis=1)
    assert step in ends and moved[step] <= np.delete(moved, step).max() < 0.5


def test_the_ant_stands_as_after_a_reset_in_the_middle_of_an_episode() -> None:
    with h5py.File(CUTS["ant-medium-v0"].path) as file:
        observations = file["observations"][:].astype(float)
        flagged = (file["timeouts"][:] != 0) | (file["terminals"][:] != 0)
    # Standing upright at 0.75, with every joint within 0.1 of where it begins, and hardly moving.
    pose = np.array([0.75, 1, *[0] * 11])
    stands = np.abs(observations[:, :13] - pose).max(1) < 0.11
    stands &= np.abs(observations[:, 13:27]).max(1) < 0.5
    assert np.flatnonzero(stands).tolist() == [0, 211, 1210]
    assert np.flatnonzero(flagged).tolist() == [999, 1999]


def test_the_ant_of_the_maze_jumps_two_rows_after_a_timeout() -> None:
    with h5py.File(CUTS["antmaze-large-play-v0"].path) as file:
        moved = np.linalg.norm(np.diff(file["observations"][:, :2].astype(float), axis=0), axis=1)
        assert np.flatnonzero(file["timeouts"][:]).tolist() == [998, 1997]
    assert np.flatnonzero(moved > 1).tolist() == [1000] and np.delete(moved, 1000).max() < 0.31


def test_no_state_is_recorded_but_the_first_one_of_each_episode() -> None:
    with h5py.File(CUTS["halfcheetah-random-v1"].path) as file:
        positions, observations = file["infos/qpos"][:], file["observations"][:]
    assert len(np.unique(positions[:1000], axis=0)) == len(np.unique(positions[1000:], axis=0)) == 1
    assert len(np.unique(observations, axis=0)) == 2000
