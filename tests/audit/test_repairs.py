"""Repairs equal a slow rewrite of the publisher's file by h5py and numpy, row by row.

Nothing here uses ``datasets_cli.audit``: the steps that are changed stand in the table.
"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

import datasets_cli
from datasets_cli.config import Config
from datasets_cli.errors import UsageError
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.recipes.d4rl import catalogue
from datasets_cli.store.dataset import open_dataset
from datasets_cli.store.manifest import read_manifest
from datasets_cli.verbs import row_comparison
from tests.support.d4rl_cuts import CUTS, columns
from tests.support.refusals import refused
from tests.support.values import assert_folder, assert_same, everything, expect, split

MAZE = "maze2d-umaze-v1"

# By key of the file: steps whose flag is set, or cleared.
CHANGES: dict[str, dict[str, dict[int, int]]] = {
    "door-human-v0": {"timeouts": {199: 0, 299: 1}, "terminals": {299: 0}},
    "hammer-cloned-v0": {"timeouts": {199: 0}},
    "pen-human-v0": {"timeouts": {99: 0}},
    "halfcheetah-medium-v0": {"timeouts": {898: 1}, "terminals": {898: 0}},
    "ant-medium-v0": {"timeouts": {999: 0, 210: 1, 1209: 1}},
    "antmaze-large-play-v0": {"timeouts": {998: 0, 1000: 1}},
}


def rewritten(cut: str) -> dict[str, np.ndarray]:
    """Return what the file should have been."""
    source = dict(columns(cut))
    for key, changes in CHANGES[cut].items():
        source[key] = source[key].copy()
        for step, flag in changes.items():
            assert source[key][step] != flag, "the published file has it otherwise"
            source[key][step] = flag
    return source


def install(cut: str, folder: Path, layout: str, name: str) -> Path:
    """Convert a cut under a name; return the dataset's folder."""
    source = folder / "source"
    (write_maze if cut == MAZE else CUTS[cut].lay_out)(source)
    options = InstallOptions(accept_any=True, layout=layout, source=str(source))
    return install_dataset(f"d4rl/{name}", Config(folder / layout), options).path


def maze_sources() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return a file as D4RL made it, with the reward before a step, and as it should have been."""
    rng, count = np.random.default_rng(0), 400
    place = np.cumsum(rng.normal(0, 0.2, (count, 2)), 0).astype(np.float32)
    goal = np.full((count, 2), place[200], np.float32)
    own = (np.linalg.norm(place - goal, axis=1) <= 0.5).astype(np.float32)
    source = {
        "observations": np.hstack([place, rng.normal(size=(count, 2)).astype(np.float32)]),
        "actions": rng.normal(size=(count, 2)).astype(np.float32),
        "rewards": own,
        "terminals": np.zeros(count, bool),
        "timeouts": np.arange(count) % 150 == 149,
        "infos/goal": goal,
    }
    return source, source | {"rewards": np.append(own[1:], own[-1:])}  # the last step is no row


def write_maze(folder: Path) -> None:
    """Write a file under the publisher's name of maze2d-umaze-v1."""
    (resource,) = catalogue.resources(MAZE, None)
    folder.mkdir(parents=True, exist_ok=True)
    with h5py.File(folder / resource.filename, "w") as file:
        for key, values in maze_sources()[0].items():
            file[key] = values


@pytest.mark.parametrize("cut", CHANGES)
def test_a_repaired_dataset_has_every_value_of_a_file_without_the_defect_and_lists_its_changes(
    cut: str, tmp_path: Path
) -> None:
    expected = expect(rewritten(cut))
    folder = install(cut, tmp_path, "ted", f"{cut}~repaired")
    assert_folder(folder, expected)
    repairs = read_manifest(folder).metadata["repairs"]
    runs = [run for entry in repairs for run in entry["steps"]]
    steps = {step for first, count in runs for step in range(first, first + count)}
    assert steps == {step for changes in CHANGES[cut].values() for step in changes}
    compact = install(cut, tmp_path, "compact", f"{cut}~repaired")
    assert_same(everything(open_dataset(compact)), expected.leaves)


def test_a_repaired_dataset_has_a_content_of_its_own_and_the_published_form_stays(
    tmp_path: Path,
) -> None:
    cut = "door-human-v0"
    published = read_manifest(install(cut, tmp_path, "ted", cut))
    repaired = read_manifest(install(cut, tmp_path, "ted", f"{cut}~repaired"))
    again = read_manifest(install(cut, tmp_path / "again", "ted", f"{cut}~repaired"))
    alone = read_manifest(install(cut, tmp_path / "alone", "ted", cut))
    assert repaired.content == again.content != published.content == alone.content
    assert (published.files, published.metadata) == (alone.files, alone.metadata)


def steps_of_rows(source: dict[str, np.ndarray]) -> list[int]:
    """Return which step of a file each row is: all but those that cut a trajectory off."""
    recorded, rows = "next_observations" in source, []
    for each in split(source, None):
        rows += range(each.first, each.last + (recorded or each.terminated))
    return rows


def in_runs(runs: tuple[tuple[int, int], ...] | None) -> list[int]:
    return [row for first, count in runs or () for row in range(first, first + count)]


@pytest.mark.parametrize(
    ("cut", "layout"), [*((cut, "ted") for cut in (*CHANGES, MAZE)), ("ant-medium-v0", "compact")]
)
def test_the_difference_to_the_published_form_is_what_was_repaired(
    cut: str, layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_comparison, "rows_per_block", lambda row_bytes: 100)
    sources = maze_sources() if cut == MAZE else (dict(columns(cut)), rewritten(cut))
    folders = [str(install(cut, tmp_path, layout, name)) for name in (cut, f"{cut}~repaired")]
    leaves = [expect(source).leaves for source in sources]
    steps = [steps_of_rows(source) for source in sources]
    both = [(row, steps[1].index(step)) for row, step in enumerate(steps[0]) if step in steps[1]]
    difference = datasets_cli.compare_datasets(*folders)
    assert difference.num_compared == len(both) and not difference.equal
    for each in difference.columns:
        rows, others = (of[each.column.key] for of in leaves)
        assert in_runs(each.rows) == [
            a for a, b in both if rows[a].tobytes() != others[b].tobytes()
        ], each.column.key
    assert {each.column.key for each in difference.columns} == leaves[0].keys() - {("episode",)}
    alone = [
        [r for r, s in enumerate(own) if s not in other] for own, other in (steps, steps[::-1])
    ]
    assert [in_runs(runs) for runs in difference.only_rows or ()] == alone
    turned = datasets_cli.compare_datasets(*folders[::-1])
    assert [in_runs(runs) for runs in turned.only_rows or ()] == alone[::-1]


@pytest.mark.parametrize("cut", ["hopper-medium-v2", "ant-random-v1", "antmaze-umaze-v0"])
def test_a_dataset_without_exact_repairs_is_refused_with_what_was_looked_for(
    cut: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError) as caught:
        install(cut, tmp_path, "ted", f"{cut}~repaired")
    rules = "false-end, impossible-terminal, unflagged-reset, unflagged-jump, reward-of-wrong-row"
    assert rules in str(caught.value) and not list((tmp_path / "ted").glob("datasets/**/*.memmap"))


def test_more_rows_than_are_kept_are_not_repaired_in_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets_cli.audit.rules.rule.MOST_ROWS", 1)  # the ant is reset twice
    with refused(UsageError, expected=1, found=2):
        install("ant-medium-v0", tmp_path, "ted", "ant-medium-v0~repaired")


def test_an_end_between_a_step_and_a_reset_is_not_repaired(
    tmp_path: Path,
) -> None:
    """At one end the robot goes on, at another it moves somewhat farther than in any step."""
    folder = CUTS["pen-human-v0"].lay_out(tmp_path / "source")
    (path,) = folder.glob("*.hdf5")
    with h5py.File(path, "r+") as file:
        positions = file["infos/qpos"]
        positions[100:] = positions[100:] + np.float32(0.2)
        file["timeouts"][50] = True
    options = InstallOptions(accept_any=True, source=str(folder))
    with refused(UsageError, id="d4rl/pen-human-v0"):
        install_dataset("d4rl/pen-human-v0~repaired", Config(tmp_path / "root"), options)


def test_rewards_of_a_maze_belong_to_the_step_before(tmp_path: Path) -> None:
    made = install(MAZE, tmp_path, "ted", f"{MAZE}~repaired")
    assert_folder(made, expect(maze_sources()[1]))
