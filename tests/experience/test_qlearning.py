"""Tables of Q-learning, and datasets in folders."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets_cli import (
    D4RLExperienceReplay,
    ExperienceReplay,
    MinariExperienceReplay,
    open_dataset,
    open_storage,
)
from datasets_cli.audit.d4rl_rows import NO_ROW, D4RLRows, counted_limits, d4rl_rows
from datasets_cli.config import Config
from datasets_cli.errors import Unsupported, UsageError
from datasets_cli.experience.qlearning import qlearning_dataset
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.recipe import TRAJECTORY_END
from datasets_cli.recipes.d4rl import catalogue, reader
from datasets_cli.schema.transitions import Transitions, iterate_rows
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.manifest import Manifest
from tests.support.d4rl_files import LAYOUTS, save, steps
from tests.support.paths import DEMO_DATA, TEST_DATA
from tests.support.refusals import refused

# ``qlearning_dataset(like="d4rl")`` against D4RL's rule, written out here as a slow plain loop.


Source = Mapping[str, np.ndarray]


def kept_steps(source: Source, limit: int | None) -> list[int]:
    """Return the steps of a file that are rows of D4RL."""
    kept, count = [], 0  # steps since the last end, where there are no timeouts
    for step in range(len(source["rewards"]) - 1):
        at_limit = source["timeouts"][step] if "timeouts" in source else count + 1 == limit
        if at_limit:
            count = 0
        else:
            kept.append(step)
            count = 1 if source["terminals"][step] else count + 1
    return kept


def d4rls(source: Source, limit: int | None) -> dict[str, np.ndarray]:
    """Return what D4RL makes of a file, whose columns are read as they are."""
    kept = kept_steps(source, limit)
    rows = {name: [source[name][step] for step in kept] for name in source if name != "timeouts"}
    rows["next_observations"] = [source["observations"][step + 1] for step in kept]
    with np.errstate(over="ignore"):
        columns = {
            name: np.array(column, "float32").reshape(len(kept), *source[name].shape[1:])
            for name, column in rows.items()
            if name in ("observations", "actions", "rewards")
        }
        successors = np.array(rows["next_observations"], "float32")
    columns["next_observations"] = successors.reshape(columns["observations"].shape)
    columns["rewards"] = columns["rewards"].reshape(-1)
    terminals = np.array(rows["terminals"]).reshape(-1).astype(bool)
    left_out = np.array([step + 1 not in kept for step in kept], bool)
    return columns | {"terminals": terminals, "timeouts": left_out & ~terminals}


def assert_d4rls(found: Source, right: Source) -> None:
    assert found.keys() == right.keys()
    for name, column in right.items():
        assert (found[name].dtype, found[name].shape) == (column.dtype, column.shape), name
        assert found[name].tobytes() == column.tobytes(), name


def read(path: Path) -> dict[str, np.ndarray]:
    names = ("observations", "actions", "rewards", "terminals", "timeouts", "next_observations")
    with h5py.File(path) as file:
        return {name: file[name][()] for name in names if name in file}


def source_of(name: str, folder: Path) -> Path:
    (resource,) = catalogue.resources(name, None)
    return folder / resource.filename


def install(name: str, config: Config, path: Path) -> ExperienceReplay:
    options = InstallOptions(source=str(path.parent), accept_any=True)
    install_dataset(f"d4rl/{name}", config, options)
    return ExperienceReplay(f"d4rl/{name}", download=False)


# Every layout of D4RL's scripts.

COUNTED_EARLY = {"kitchen", "flow", "minigrid"}
"""No timeouts, and trajectories that reach the time limit after a terminal."""

ENDS_UNKNOWN = {"ends_with_a_terminal"}
"""A last row that is a terminal, and a trajectory of one step that is cut off."""


def has_lost_steps(source: Source) -> bool:
    """Tell whether a file has terminals, and a trajectory of one step that is no row."""
    last = len(source["rewards"]) - 1
    terminals, timeouts = (source[name].reshape(-1) for name in ("terminals", "timeouts"))
    ends = terminals | timeouts | last_of(last)
    begins = np.append(True, ends[:-1])
    without_row = begins & ends & ~terminals & ("next_observations" not in source)
    return bool((terminals & ~timeouts).any() and without_row.any())


@pytest.mark.parametrize("layout", sorted(LAYOUTS.keys() - COUNTED_EARLY - ENDS_UNKNOWN))
def test_the_rows_are_d4rls_in_every_layout_of_its_scripts(
    layout: str, tmp_path: Path, config: Config
) -> None:
    path = source_of(LAYOUTS[layout].name, tmp_path)
    LAYOUTS[layout].write(path)
    replay = install(LAYOUTS[layout].name, config, path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = replay.qlearning_dataset(like="d4rl")
    assert_d4rls(found, d4rls(read(path), LAYOUTS[layout].max_episode_steps))
    assert [str(warning.message).split(":")[0] for warning in caught] == (
        [replay.dataset_id] if has_lost_steps(read(path)) else []
    )
    assert all(warning.filename == __file__ for warning in caught), "it names the caller"


@pytest.mark.parametrize("layout", sorted(COUNTED_EARLY))
def test_rows_that_only_d4rl_has_are_an_error(layout: str, tmp_path: Path, config: Config) -> None:
    path = source_of(LAYOUTS[layout].name, tmp_path)
    LAYOUTS[layout].write(path)
    source, limit = read(path), LAYOUTS[layout].max_episode_steps
    replay = install(LAYOUTS[layout].name, config, path)
    with pytest.raises(Unsupported, match="counts one step less") as error:
        replay.qlearning_dataset(like="d4rl")
    # D4RL has the step that the message names; the dataset does not have its action.
    step = int(re.search(r"needs step (\d+)", str(error.value))[1])  # type: ignore[index]
    assert step in kept_steps(source, limit)
    actions = source["actions"].astype(np.float32).reshape(len(source["actions"]), -1)
    ours = replay.qlearning_dataset()["actions"].reshape(len(replay), -1)
    assert actions[step].tobytes() not in {row.tobytes() for row in ours}


def test_files_without_timeouts_whose_trajectories_are_shorter_are_read_as_d4rl_reads_them(
    tmp_path: Path, config: Config
) -> None:
    """As the published ones of the kitchen are, whose limit of 280 steps no trajectory reaches."""
    path = source_of("kitchen-complete-v0", tmp_path)
    columns = steps(path, (60, 9), [278, 500, 501, 778], timeouts=None, num_steps=900)
    save(path, columns)
    found = install("kitchen-complete-v0", config, path).qlearning_dataset(like="d4rl")
    assert_d4rls(found, d4rls(columns, 280))
    assert len(found["rewards"]) == 899


@pytest.mark.parametrize("layout", sorted(ENDS_UNKNOWN))
def test_a_layout_whose_last_row_is_unknown_is_an_error(
    layout: str, tmp_path: Path, config: Config
) -> None:
    path = source_of(LAYOUTS[layout].name, tmp_path)
    LAYOUTS[layout].write(path)
    replay = install(LAYOUTS[layout].name, config, path)
    with refused(Unsupported, argument="like"):
        replay.qlearning_dataset(like="d4rl")


# What a dataset cannot tell: two files of which the same dataset is made.


def two_files_of_one_dataset(
    first: dict[str, Any], second: dict[str, Any], tmp_path: Path, config: Config
) -> tuple[list[ExperienceReplay], list[Source]]:
    replays, sources = [], []
    for columns in (first, second):
        path = source_of("hopper-medium-v0", tmp_path)
        save(path, columns)
        options = InstallOptions(source=str(tmp_path), accept_any=True, force=True)
        install_dataset("d4rl/hopper-medium-v0", config, options)
        replays.append(ExperienceReplay("d4rl/hopper-medium-v0", download=False))
        # Final steps are read when they are asked for, and the next file replaces these.
        assert len(replays[-1].storage.dataset.final.steps)
        sources.append(columns)
    assert_d4rls(replays[0].qlearning_dataset(), replays[1].qlearning_dataset())
    assert replays[0].manifest.successors == replays[1].manifest.successors
    return replays, sources


def with_step(columns: dict[str, Any], place: int, observation: float) -> dict[str, Any]:
    """Return the columns with one more step, a trajectory that is cut off at once."""
    step = {name: np.zeros_like(rows[:1]) for name, rows in columns.items()}
    step["observations"] += observation
    step["timeouts"] = np.array([True])
    return {
        name: np.concatenate((rows[:place], step[name], rows[place:]))
        for name, rows in columns.items()
    }


def test_a_successor_of_a_terminal_may_differ_and_nothing_else(
    tmp_path: Path, config: Config
) -> None:
    whole = steps(tmp_path, terminals=[4, 12], timeouts=[20])
    replays, sources = two_files_of_one_dataset(
        with_step(whole, 5, 7.0), with_step(whole, 21, 7.0), tmp_path, config
    )
    with pytest.warns(
        UserWarning, match=r"at most 1 terminals differ.*all other values are D4RL's"
    ):
        found = replays[0].qlearning_dataset(like="d4rl")
    with pytest.warns(UserWarning):
        assert_d4rls(replays[1].qlearning_dataset(like="d4rl"), d4rls(sources[1], None))
    right = d4rls(sources[0], None)
    differ = (found["next_observations"] != right["next_observations"]).any(1)
    differ &= ~np.isnan(right["next_observations"]).any(1)
    assert differ.nonzero()[0].tolist() == [4]
    assert right["terminals"][4]
    right["next_observations"][4] = found["next_observations"][4]
    assert_d4rls(found, right)


def test_a_last_row_that_d4rl_may_have_or_not_is_an_error(tmp_path: Path, config: Config) -> None:
    whole = steps(tmp_path, terminals=[4, 39], timeouts=[20])
    replays, sources = two_files_of_one_dataset(
        with_step(whole, 21, 7.0), with_step(whole, 40, 7.0), tmp_path, config
    )
    counts = [len(d4rls(source, None)["rewards"]) for source in sources]
    assert counts == [38, 39]
    for replay in replays:
        with refused(Unsupported, argument="like"):
            replay.qlearning_dataset(like="d4rl")


# Real files.

CUTS = sorted((TEST_DATA / "d4rl" / "cuts").rglob("*.hdf5"))


def name_of(path: Path) -> str:
    """Return the name of the dataset that a file is of."""
    names = {
        entry.name: catalogue.resources(entry.name, None) for entry in catalogue.datasets(None)
    }
    if path.stem in names:
        return path.stem
    return next(name for name, (file,) in names.items() if file.filename == path.name)


@pytest.mark.parametrize(
    ("cut", "layout"),
    [(cut, "ted") for cut in CUTS]
    + [(cut, "compact") for cut in CUTS if cut.stat().st_size < 50_000],
    ids=lambda value: getattr(value, "stem", value),
)
def test_the_rows_are_d4rls_of_real_files(
    cut: Path, layout: str, tmp_path: Path, config: Config
) -> None:
    name = name_of(cut)
    path = source_of(name, tmp_path)
    path.write_bytes(cut.read_bytes())
    options = InstallOptions(source=str(tmp_path), accept_any=True, layout=layout)
    install_dataset(f"d4rl/{name}", config, options)
    replay = ExperienceReplay(f"d4rl/{name}", download=False)
    assert replay.manifest.layout == layout
    assert_d4rls(replay.qlearning_dataset(like="d4rl"), d4rls(read(cut), None))


def test_there_are_real_files_of_each_kind() -> None:
    kinds = {(bool(read(cut)["terminals"].any()), "next_observations" in read(cut)) for cut in CUTS}
    assert kinds >= {(True, True), (True, False), (False, False)}


# Any file.


@st.composite
def files(draw: st.DrawFn) -> tuple[dict[str, np.ndarray], int]:
    """Random steps, each with numbers of its own, and a step limit."""
    num_steps = draw(st.integers(2, 24))
    rate = draw(st.sampled_from([0.1, 0.3, 0.6]))
    rng = np.random.default_rng(draw(st.integers(0, 9999)))
    source = {
        "observations": np.arange(1.0, num_steps + 1)[:, None],
        "actions": 100 + np.arange(num_steps)[:, None],
        "rewards": 200.0 + np.arange(num_steps),
        "terminals": rng.random(num_steps) < rate,
    }
    if draw(st.booleans()):
        source["timeouts"] = rng.random(num_steps) < rate
    if draw(st.booleans()):
        source["next_observations"] = 400.0 + np.arange(num_steps)[:, None]
    return source, draw(st.integers(2, 7))


def dataset_of(source: Source, limit: int) -> tuple[Manifest, dict[Any, np.ndarray], int]:
    """Return the rows of a file as they would be installed, and as much of a manifest."""
    block = {reader.KEYS[name]: rows for name, rows in source.items()}
    metadata: dict[str, Any] = {"max_episode_steps": limit}
    if "timeouts" not in source:
        block[TRAJECTORY_END], _ = reader._time_limits(source["terminals"], 0, limit)
        metadata["trajectory_ends"] = "terminals and time limits"
    transitions = Transitions("d4rl/random")
    found = list(iterate_rows(transitions, iter([block])))
    rows = {key: np.concatenate([part[key] for part in found]) for key in found[0]} if found else {}
    manifest = Manifest(
        id="d4rl/random",
        layout="ted",
        num_transitions=len(next(iter(rows.values()), ())),
        num_trajectories=0,
        columns=(),
        files={},
        recipe={"family": "d4rl"},
        successors=transitions.rule,
        metadata=metadata,
    )
    return manifest, rows, transitions.num_alone


@settings(max_examples=400)
@given(files())
def test_of_any_file_the_rows_are_d4rls_or_an_error_says_that_they_cannot_be(
    file: tuple[dict[str, np.ndarray], int],
) -> None:
    source, limit = file
    manifest, rows, num_alone = dataset_of(source, limit)
    if not rows:
        return
    last = len(source["rewards"]) - 1
    at_limit = source.get("timeouts", rows_at_limit(source, limit))
    is_row = ("next_observations" in source) | source["terminals"] | ~(at_limit | last_of(last))
    kept = np.array(kept_steps(source, limit), int)
    # A terminal that is followed by a trajectory without a row.
    unknown = kept[source["terminals"][kept] & ~is_row[kept + 1]]
    found: D4RLRows | None = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            terminals = rows["next", "terminated"][:, 0]
            found = d4rl_rows(manifest, terminals, rows["next", "truncated"][:, 0], num_alone)
        except UsageError as error:
            message = str(error)
    ends_unknown = bool(
        "timeouts" in source
        and num_alone
        and terminals[-1]
        and not rows["next", "truncated"][-1, 0]
    )
    if found is None:
        words = "whether the last row" if ends_unknown else "needs step"
        assert words in message
        assert ends_unknown or not is_row[kept].all() or len(unknown)
        return
    assert not ends_unknown
    assert rows["action",][found.rows, 0].tolist() == source["actions"][kept, 0].tolist()
    successors = np.where(
        found.following == NO_ROW,
        rows["next", "observation"][found.rows, 0],
        rows["observation",][found.following, 0],
    )
    wrong = kept[successors != source["observations"][kept + 1, 0]]
    assert wrong.tolist() == unknown.tolist()
    assert len(wrong) <= num_alone
    assert caught or not len(wrong), "a difference without a warning"


def rows_at_limit(source: Source, limit: int) -> np.ndarray:
    """Return the steps at which we cut: every ``limit`` steps from the first of a trajectory on."""
    ends, count = [], 0
    for terminal in source["terminals"]:
        count += 1
        ends.append(count == limit and not terminal)
        count = 0 if terminal or count == limit else count
    return np.array(ends)


def last_of(last: int) -> np.ndarray:
    return np.arange(last + 1) == last


def test_d4rl_counts_one_step_less_after_a_terminal() -> None:
    terminals = np.isin(np.arange(16), [6, 9])
    assert counted_limits(terminals, 4).nonzero()[0].tolist() == [3, 9, 13]
    assert not counted_limits(terminals, None).any()


# Other datasets.


def test_datasets_that_are_no_file_of_d4rl_have_no_rows_of_d4rls(
    door: str, tmp_path: Path, config: Config
) -> None:
    replay = ExperienceReplay(door)
    replay.preprocess(lambda batch: batch, dest=tmp_path / "same", num_workers=0)
    derived = open_storage(tmp_path / "same")
    with refused(Unsupported, argument="like"):
        qlearning_dataset(derived, like="d4rl")
    assert len(qlearning_dataset(derived)["rewards"]) == len(replay)
    with refused(UsageError, argument="like", found="corl"):
        replay.qlearning_dataset(like="corl")  # type: ignore[arg-type]
    site = DEMO_DATA / "minari" / "D4RL" / "door" / "human-v2" / "data"
    options = InstallOptions(source=str(site), accept_any=True)
    install_dataset("minari/D4RL/door/human-v2", config, options)
    minari = ExperienceReplay("minari/D4RL/door/human-v2")
    with refused(Unsupported, id="minari/D4RL/door/human-v2"):
        minari.qlearning_dataset(like="d4rl")
    assert minari.qlearning_dataset()["timeouts"].sum() == minari.manifest.num_trajectories


def test_timeouts_are_the_ends_that_are_no_terminals(tmp_path: Path, config: Config) -> None:
    path = source_of("hopper-medium-v2", tmp_path)
    LAYOUTS["mujoco_v2"].write(path)
    columns = install("hopper-medium-v2", config, path).qlearning_dataset()
    assert columns["timeouts"].dtype == np.bool_
    assert columns["timeouts"].nonzero()[0].tolist() == [20, 21, 33, 39]
    assert columns["terminals"].nonzero()[0].tolist() == [4, 11, 12]


def d3rlpy_episodes(columns: Source) -> list[int]:
    """The lengths of d3rlpy's episodes, which end at flags that are never both set (2.8.1)."""
    ends = np.flatnonzero(columns["terminals"] | columns["timeouts"])
    assert not (columns["terminals"] & columns["timeouts"]).any()
    return np.diff(ends, prepend=-1).tolist()


def test_d3rlpy_keeps_every_row(hopper: str) -> None:
    columns = ExperienceReplay(hopper).qlearning_dataset(like="d4rl")
    assert d3rlpy_episodes(columns) == [470, 440]  # a terminal, and the last step, left out
    assert len(columns["rewards"]) == 910


# A dataset's folder opened as a replay buffer, wherever it is.


@pytest.fixture
def folder(config: Config, door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a dataset, copied out of every root."""
    monkeypatch.chdir(tmp_path)
    return CacheRoot(config.root).dataset(door).rename(tmp_path / "copy")


def test_a_folder_has_the_rows_of_its_files_and_nothing_is_installed(
    folder: Path, config: Config
) -> None:
    expected = np.fromfile(folder / "action.memmap", np.float32).reshape(1495, 28)
    before = sorted(path.stat().st_mtime_ns for path in folder.rglob("*"))
    for name in (str(folder), "./copy", "../" + folder.parent.name + "/copy", folder):
        replay = ExperienceReplay(name, batch_size=4, download=False)
        assert torch.equal(replay[:]["action"], torch.from_numpy(expected))
    assert replay.sample()["action"].shape == (4, 28) and len(replay.trajectories) == 5
    assert not CacheRoot(config.root).dataset(replay.dataset_id).exists()
    assert sorted(path.stat().st_mtime_ns for path in folder.rglob("*")) == before


def test_open_dataset_takes_the_same_folders(folder: Path) -> None:
    expected = np.fromfile(folder / "action.memmap", np.float32).reshape(1495, 28)
    for name in (str(folder), "./copy", folder, Path("copy")):
        assert np.array_equal(open_dataset(name).column(("action",)), expected)
    with pytest.raises(UsageError):
        open_dataset("./nowhere")


def test_a_folder_is_neither_made_nor_deleted_and_is_of_its_family(folder: Path) -> None:
    for options in ({"download": "force"}, {"source": "x"}, {"options": {"a": "b"}}):
        with refused(UsageError, argument=next(iter(options))):
            ExperienceReplay(folder, **options)
    with pytest.raises(UsageError):
        ExperienceReplay(folder, layout="compact")
    with refused(UsageError, argument="dataset_id", expected="minari"):
        MinariExperienceReplay(str(folder))
    with refused(Unsupported, path=folder):
        D4RLExperienceReplay(str(folder)).delete()
    assert (folder / "manifest.json").exists()


def test_what_is_no_folder_of_a_dataset_is_refused(folder: Path) -> None:
    (folder / "manifest.json").unlink()
    for name in ("./copy", "./nowhere", "/dev/null", "."):
        with pytest.raises(UsageError):
            ExperienceReplay(name)
