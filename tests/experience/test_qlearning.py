"""Tables of Q-learning, and datasets in folders."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datasets_cli import (
    D4RLExperienceReplay,
    ExperienceReplay,
    MinariExperienceReplay,
    open_dataset,
    open_storage,
)
from datasets_cli.config import Config
from datasets_cli.errors import SourceError, Unsupported, UsageError
from datasets_cli.experience.qlearning import counted_limits, qlearning_dataset
from datasets_cli.install.installation import install_dataset
from datasets_cli.install.options import InstallOptions
from datasets_cli.recipes.d4rl import catalogue
from datasets_cli.store.cache_root import CacheRoot
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
    options = InstallOptions(source=str(path.parent), accept_any=True, force=True)
    install_dataset(f"d4rl/{name}", config, options)
    return ExperienceReplay(f"d4rl/{name}", download=False)


# Every layout of D4RL's scripts.


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_the_rows_are_d4rls_in_every_layout_of_its_scripts(
    layout: str, tmp_path: Path, config: Config
) -> None:
    path = source_of(LAYOUTS[layout].name, tmp_path)
    LAYOUTS[layout].write(path)
    found = install(LAYOUTS[layout].name, config, path).qlearning_dataset(like="d4rl")
    assert_d4rls(found, d4rls(read(path), LAYOUTS[layout].max_episode_steps))


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
def files(draw: st.DrawFn) -> dict[str, np.ndarray]:
    """Random steps, each with numbers of its own."""
    num_steps = draw(st.integers(2, 160))
    rate = draw(st.sampled_from([0.01, 0.1, 0.6]))
    rng = np.random.default_rng(draw(st.integers(0, 9999)))
    source = {
        "observations": np.arange(1.0, num_steps + 1)[:, None],
        "actions": 1000 + np.arange(num_steps)[:, None],
        "rewards": 2000.0 + np.arange(num_steps),
        "terminals": rng.random(num_steps) < rate,
    }
    if draw(st.booleans()):
        source["timeouts"] = rng.random(num_steps) < rate
    if draw(st.booleans()):
        source["next_observations"] = 4000.0 + np.arange(num_steps)[:, None]
    return source


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files())
def test_the_rows_of_any_file_are_d4rls(
    tmp_path: Path, config: Config, source: dict[str, np.ndarray]
) -> None:
    path = source_of("minigrid-fourrooms-v0", tmp_path)  # its limit is 50 steps
    save(path, source)
    try:
        found = install("minigrid-fourrooms-v0", config, path).qlearning_dataset(like="d4rl")
    except SourceError:  # no step is a transition
        assert "next_observations" not in source
        return
    assert_d4rls(found, d4rls(source, 50))


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
