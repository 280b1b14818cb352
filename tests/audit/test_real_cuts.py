"""What rules find in real pieces of published files, and what they do not accuse.

The rows are told by h5py alone: each is worked out of the file next to it, by its keys.
"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from datasets_cli import audit_datasets
from datasets_cli.audit.rules.registry import RULES
from datasets_cli.audit.run import audit
from datasets_cli.config import Config
from datasets_cli.core.progress import silent
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.store.arrays import open_arrays
from tests.recipes import test_unplugged_real
from tests.support import maze_files
from tests.support.d4rl_cuts import CUTS

WRONG = {
    "door-human-v0": {"false-end": [198], "impossible-terminal": [298]},
    "hammer-cloned-v0": {"false-end": [198]},
    "pen-human-v0": {"false-end": [98]},
    "halfcheetah-medium-v0": {"impossible-terminal": [898]},
    # Step 999 has a timeout and is no row; the ant is reset at steps 211 and 1210.
    "ant-medium-v0": {"false-end": [998], "unflagged-reset": [211, 1209]},
    # Step 998 has a timeout and is no row; the ant jumps after step 1000, where it is reset.
    "antmaze-large-play-v0": {"false-end": [997], "unflagged-reset": [1000]},
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


@pytest.mark.parametrize(
    ("cut", "terminal"), [("door-human-v0", 299), ("halfcheetah-medium-v0", 898)]
)
def test_a_row_is_terminal_where_the_robot_can_go_on(cut: str, terminal: int) -> None:
    """The states of the row are those that other rows with no flag have, too."""
    with h5py.File(CUTS[cut].path) as file:
        terminals, observations = file["terminals"][:], file["observations"][:]
        assert np.flatnonzero(terminals).tolist() == [terminal]
    others = np.delete(observations, terminal, 0)
    steps = np.linalg.norm(np.diff(observations.astype(float), axis=0), axis=1)
    assert np.linalg.norm(others - observations[terminal], axis=1).min() < steps.max()


@pytest.mark.parametrize(
    ("cut", "lengths", "has_moved"),
    [
        ("halfcheetah-random-v1", [1000, 1000], True),
        ("ant-random-v1", [59, 307], True),
        ("hopper-medium-replay-v1", [40, 9], True),
        ("hopper-medium-v2", [], False),
        ("ant-medium-v2", [], False),
    ],
)
def test_no_state_is_recorded_but_the_first_one_of_each_episode(
    cut: str, lengths: list[int], has_moved: bool
) -> None:
    with h5py.File(CUTS[cut].path) as file:
        positions, velocities = file["infos/qpos"][:], file["infos/qvel"][:]
        observations = file["observations"][:]
    assert len(np.unique(observations, axis=0)) >= 0.99 * len(observations)
    if not has_moved:  # the sound ones
        assert len(np.unique(positions, axis=0)) == len(positions)
        return
    assert sum(lengths) == len(positions)
    for rows in np.split(np.arange(len(positions)), np.cumsum(lengths)[:-1]):
        assert (positions[rows] == positions[rows[0]]).all()
        assert (velocities[rows] == velocities[rows[0]]).all()


@pytest.mark.parametrize("cut", ["door-human-v1", "pen-cloned-v1", "relocate-expert-v0"])
def test_a_hand_moves_by_less_than_a_third_of_the_bound_and_a_reset_much_farther(cut: str) -> None:
    with h5py.File(CUTS[cut].path) as file:
        positions = file["infos/qpos"][:].astype(float)
        is_end = (file["timeouts"][:] | file["terminals"][:])[:-1] != 0
    moved, bound = np.linalg.norm(np.diff(positions, axis=0), axis=1), 3.5
    largest = moved[~is_end].max()
    assert largest < bound / 3 and is_end.any() and moved[is_end].min() > 3 * largest


@pytest.mark.parametrize("name", ["door-human", "door-minari", "iris", "pong"])
def test_the_data_of_the_demo_have_nothing_wrong(name: str, tmp_path: Path) -> None:
    install_dataset(f"demo/{name}", Config(tmp_path), InstallOptions())
    [audited] = audit_datasets(config=Config(tmp_path))
    assert {each.severity for each in audited.findings} <= {"note"} and audited.rules


@pytest.mark.parametrize("name", ["open", "open-ends", "open-dense", "ant-dense"])
def test_mazes_of_minari_have_nothing_wrong(name: str, tmp_path: Path) -> None:
    config = Config(tmp_path / "root")
    maze_files.install(maze_files.unpack(name, tmp_path / "source"), config)
    [audited] = audit_datasets(config=config)
    assert {each.severity for each in audited.findings} <= {"note"} and audited.rules


def test_the_steps_of_a_game_of_rl_unplugged_have_nothing_wrong(tmp_path: Path) -> None:
    """Its unclipped rewards are the clipped ones; the recipe says so, and leaves them out."""
    asterix = test_unplugged_real.install(Config(tmp_path), "compact")
    assert not audit(open_arrays(asterix.folder), RULES, silent)
