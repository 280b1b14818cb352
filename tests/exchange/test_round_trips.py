"""Exports and imports: every value by the reader of another tool, and back; faults are seen."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from minari import MinariDataset

from datasets_cli import (
    ExperienceReplay,
    compare_datasets,
    convert,
    create_dataset,
    download,
    export_dataset,
    import_dataset,
    plan_import,
)
from datasets_cli.config import Config
from datasets_cli.errors import RldsError, SourceError, UsageError
from datasets_cli.exchange.flat import key_runs
from datasets_cli.exchange.format import format_of
from datasets_cli.schema.columns import TRUNCATED, show_key
from datasets_cli.store.arrays import DatasetArrays
from datasets_cli.store.manifest import read_manifest
from tests.exchange.features import COUNT, FEATURES, LENGTHS
from tests.exchange.made_steps import Columns, leaf_files, made_steps
from tests.exchange.peers import READERS, digest
from tests.support.interpreters import started
from tests.support.paths import PROJECT, TEST_DATA
from tests.support.values import read_leaves

MADE_AGAIN = ("done", "terminated", "truncated", "next.done")
METADATA = "metadata of the dataset"
FORMATS = ("npz", "d4rl", "minari", "torchrl", "parquet")


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("feature", FEATURES)
def test_nothing_is_lost_without_a_word(
    config: Config, tmp_path: Path, feature: str, format: str
) -> None:
    steps, path = FEATURES[feature](), tmp_path / "out"
    lengths = LENGTHS if len(steps["next", "reward"]) == COUNT else [1]
    create_dataset("mine/a", steps, lengths=lengths, info={"title": "é"}, config=config)
    columns = read_manifest(config.root / "datasets/mine/a").all_columns
    named = _named_as_lost(format, path, config)
    lost = named - {METADATA}
    assert lost <= {show_key(each.key) for each in columns}
    try:
        export_dataset("mine/a", format, path, allow_loss=True, config=config)
        import_dataset(path, "mine/b", map=_unguessed(path), layout="ted", config=config)
    except UsageError as error:
        assert any(show_key(key) in str(error) for key in steps) or "needs action" in str(error)
    except SourceError as error:  # what every dataset has is among the lost
        assert lost & {"action", "next.reward"} or "info.a.b" in str(error)
    else:
        found = compare_datasets("mine/a", "mine/b", config=config)
        assert {show_key(each.key) for each in found.only[0]} == lost
        metadata = read_manifest(config.root / "datasets/mine/b").metadata
        assert METADATA in named or metadata["title"] == "é"
        assert not found.only[1] and found.trajectory is None
        assert not [each for each in found.columns if each.num_different]


def _named_as_lost(format: str, path: Path, config: Config) -> set[str]:
    losses = export_dataset("mine/a", format, path, dry_run=True, config=config).losses
    return {loss.partition(": ")[0] for loss in losses}


def _unguessed(path: Path) -> dict[str, str]:
    """Return the columns whose names are no known ones, as keys of these names."""
    dropped = [each.partition(": ") for each in plan_import(path, "mine/b").dropped]
    assert all("no key is mapped" in why or "is read as" in why for _, _, why in dropped), dropped
    return {name.replace("/", "."): name for name, _, _ in dropped if name not in MADE_AGAIN}


MADE_LENGTHS = [3, 1, 4, 2]
REWARD, FRAME, MOVE = ("next", "reward"), ("info", "frame"), ("action", "move")
FLAGS = ("next", "terminated"), ("next", "truncated")


class Faulty:
    """A dataset as it is not."""

    def __init__(self, dataset: Any, **changes: Any) -> None:
        self.dataset, self.changes = dataset, changes

    def __getattr__(self, name: str) -> Any:
        return self.changes.get(name, getattr(self.dataset, name))

    def __len__(self) -> int:
        return len(self.dataset)


def _without_frames(dataset: Any) -> Any:
    manifest = dataset.manifest
    columns = tuple(each for each in manifest.columns if each.key != FRAME)
    return Faulty(dataset, manifest=replace(manifest, columns=columns))


def _ended_later(dataset: Any) -> Any:
    return Faulty(dataset, starts=np.add(dataset.starts, [0, 1, 0, 0, 0]))


def _swapped(rows: Columns) -> Columns:
    return {FLAGS[0]: rows[FLAGS[1]], FLAGS[1]: rows[FLAGS[0]]}


ROWS: dict[str, Callable[[Columns], Columns]] = {
    "shift by one": lambda rows: {MOVE: np.roll(rows[MOVE], 1, 0)},
    "float32 cast": lambda rows: {REWARD: rows[REWARD].astype("f4").astype("f8")},
    "swapped flags": _swapped,
    "the last row lost": lambda rows: {key: each[:-1] for key, each in rows.items()},
    "transposed frames": lambda rows: {FRAME: rows[FRAME].swapaxes(1, 2)},
    "wrong episode numbers": lambda rows: {("episode",): np.roll(rows["episode",], 1)},
}
DATASETS = {"wrong episode numbers": _ended_later, "a lost column": _without_frames}


def export(config: Config, path: Path, format: str, **options: Any) -> Path:
    export_dataset("mine/a", format, path, allow_loss=True, config=config, **options)
    return path


def make(config: Config, **options: Any) -> None:
    steps = made_steps(MADE_LENGTHS)
    steps[FRAME] = np.arange(160, dtype="u1").reshape(10, 4, 4)
    steps[REWARD] = steps[REWARD] + np.float64(1e-12)
    del steps["info", "task"]
    create_dataset("mine/a", steps, lengths=MADE_LENGTHS, config=config, **options)


def as_read(path: Path, format: str) -> Any:
    """Return the digest of every column that the other tool reads, or what it says."""
    reader = {each.__name__: each for each in READERS}[format]
    try:
        return {name: digest(rows) for name, rows in reader(path).items()}
    except (ValueError, RuntimeError, OSError) as error:
        return error


def comes_back(config: Config, path: Path, format: str) -> bool:
    try:
        import_dataset(path, "mine/b", format=format, config=config)
    except RldsError:
        return False
    return compare_datasets("mine/a", "mine/b", config=config).equal


# Each format has a fault, and each fault a format.
PAIRS = list(zip([*ROWS, "a lost column"], cycle(FORMATS), strict=False))


@pytest.mark.parametrize(("fault", "format"), PAIRS)
def test_a_writer_with_a_fault_is_seen(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, format: str
) -> None:
    make(config)
    whole = as_read(export(config, tmp_path / "whole", format), format)
    module: Any = format_of(format)
    write = module.write

    def runs(dataset: Any, keys: Any) -> Iterator[Columns]:
        for rows in key_runs(dataset, [column.key for column in dataset.manifest.columns]):
            changed = {**rows, **ROWS.get(fault, lambda rows: rows)(rows)}
            yield {key: changed[key] for key in keys}

    def _write(dataset: Any, *others: Any) -> Any:
        return write(DATASETS.get(fault, lambda d: d)(dataset), *others)

    def arrays_of(dataset: DatasetArrays, keys: Any) -> Any:
        rows: Any = right_arrays_of(dataset, keys)
        gather = rows.gather
        rows.gather = lambda numbers: {
            **gather(numbers),
            **ROWS.get(fault, lambda same: same)(gather(numbers)),
        }
        return rows

    right_arrays_of = DatasetArrays.arrays_of
    with monkeypatch.context() as patch:
        patch.setattr(module, "write", _write)
        patch.setattr(module, "key_runs", runs)
        if format == "d4rl":  # it writes the recorded steps
            patch.setattr(DatasetArrays, "arrays_of", arrays_of)
        try:
            path = export(config, tmp_path / "faulty", format)
        except RldsError:
            return
    assert as_read(path, format) != whole and not comes_back(config, path, format)


@pytest.mark.parametrize("format", FORMATS)
def test_without_a_fault_all_is_seen_to_be_equal(
    config: Config, tmp_path: Path, format: str
) -> None:
    make(config)
    assert comes_back(config, export(config, tmp_path / "whole", format), format)


@pytest.mark.parametrize("format", [each for each in FORMATS if each != "torchrl"])
def test_the_split_and_the_names_of_a_familys_file_come_back(
    config: Config, tmp_path: Path, format: str
) -> None:
    id, path = "robomimic/mine/lift", tmp_path / "lift"
    download(id, source=TEST_DATA / "robomimic/lift_low_dim.hdf5", config=config)
    export_dataset(id, format, path, allow_loss=format == "npz", config=config)  # its notes
    import_dataset(path, "mine/back", config=config)
    found = compare_datasets(id, "mine/back", config=config)
    assert (found.only, found.trajectory, found.num_compared) == (((), ()), None, 117)


def test_demonstrations_without_successors_keep_their_ends_as_d4rl(
    config: Config, tmp_path: Path
) -> None:
    with h5py.File(tmp_path / "libero.hdf5", "w") as file:
        for number, count in enumerate((3, 4)):
            demo = file.create_group(f"data/demo_{number}")
            demo["obs/state"] = demo["actions"] = np.random.rand(count, 2)
            demo["rewards"] = demo["dones"] = np.zeros(count)
    id = "robomimic/mine/libero"
    download(id, source=tmp_path / "libero.hdf5", config=config)
    export_dataset(id, "d4rl", tmp_path / "out", config=config)
    import_dataset(tmp_path / "out", "mine/back", config=config)
    found = compare_datasets(id, "mine/back", config=config)
    assert found.num_trajectories == (2, 2) and found.final_steps == (2, 2)
    assert (found.only, found.trajectory) == (((), ()), None)


def test_counts_of_an_export_are_those_of_its_rows_and_stale_ones_are_told(
    config: Config, tmp_path: Path
) -> None:
    make(config, info={"total_steps": 99, "total_episodes": 98})
    path = export(config, tmp_path / "whole", "minari") / "data"
    found = MinariDataset(path)
    assert (found.total_steps, found.total_episodes) == (10, 4)
    assert list(found.storage.get_episode_metadata(range(4))) == [
        {"id": number, "total_steps": count} for number, count in enumerate(MADE_LENGTHS)
    ]
    said = json.loads((path / "metadata.json").read_text())
    (path / "metadata.json").write_text(json.dumps({**said, "total_steps": 11}))
    notes = plan_import(path, "mine/b").notes
    assert notes == ("metadata.json says total_steps 11; the file has 10",)


EXPORTED = (
    ("demo/door-minari", "ted"), ("demo/iris", "compact"), ("demo/pong", "compact"),
    ("mine/made", "ted"),
)  # fmt: skip
READ_FORMATS = [each.__name__ for each in READERS]
ONE_NUMBER = ("next.reward", "next.terminated", "next.truncated", *MADE_AGAIN)


@dataclass(frozen=True)
class Exports:
    """The files of all exports, what others read in them, and what they must find."""

    folder: Path
    config: Config
    found: dict[str, dict[str, list[Any]]]
    right: dict[str, dict[str, np.ndarray]]
    right_steps: dict[str, dict[str, np.ndarray]]


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Exports:
    config = Config(tmp_path_factory.mktemp("root"))
    folder, right, steps = tmp_path_factory.mktemp("exports"), {}, {}
    made = made_steps(MADE_LENGTHS)
    create_dataset("mine/made", made, lengths=MADE_LENGTHS, layout="ted", config=config)
    download(["demo/door-minari", "demo/iris", "demo/pong"], layout="ted", config=config)
    for id, layout in EXPORTED:
        if id not in right:
            texts = {("info", "task"): made["info", "task"]} if id == "mine/made" else {}
            leaves = {**leaf_files(id, config), **texts}
            right[id] = {".".join(key): rows for key, rows in leaves.items()}
            steps[id] = recorded_steps(right[id], config.root / "datasets" / id)
        convert(id, layout=layout, config=config)
        for format in READ_FORMATS:
            path = folder / _name(id, layout, format)
            if format == "hf":
                replay = ExperienceReplay(id, root=config.root, text=True)
                replay.to_hf_dataset().save_to_disk(path)
            else:
                export_dataset(id, format, path, allow_loss=True, config=config)
    done = started(str(PROJECT / "tests/exchange/peers.py"), str(folder))
    assert done.returncode == 0, done.stderr
    return Exports(folder, config, json.loads(done.stdout), right, steps)


def recorded_steps(rows: dict[str, np.ndarray], folder: Path) -> dict[str, np.ndarray]:
    """Return the rows and the final steps in the order of the source."""
    if read_manifest(folder).successors["rule"] == "recorded":
        return rows
    rows = {name: each for name, each in rows.items() if not name.startswith("next.observation")}
    if not (folder / "final").exists():
        return rows
    final = {".".join(key): values for key, values in read_leaves(folder / "final").items()}
    places = final["recorded_step"] - np.arange(len(final["episode"]))
    rows = {**rows, "next.truncated": rows["next.truncated"].copy()}
    rows["next.truncated"][places - 1] = False
    final["next.truncated"] = np.ones_like(final["next.truncated"])
    return {
        name: np.insert(values, places, final[name], axis=0)
        for name, values in rows.items()
        if name in final
    }


def _name(id: str, layout: str, format: str) -> str:
    return f"{id.replace('/', '-')}-{layout}.{format}"


@pytest.mark.parametrize("format", READ_FORMATS)
@pytest.mark.parametrize(("id", "layout"), EXPORTED)
def test_the_peer_reads_every_value_without_us(
    exports: Exports, id: str, layout: str, format: str
) -> None:
    right = exports.right_steps if format == "d4rl" else exports.right
    found = exports.found[_name(id, layout, format)]
    assert found == right_digests(right[id], format)


def right_digests(right: dict[str, np.ndarray], format: str) -> dict[str, list[Any]]:
    """Return what a reader of a format must find of columns that are right."""
    lacks = {"torchrl": {"info.task"}, "hf": set(), "d4rl": {"episode", *MADE_AGAIN}}
    is_flat = format not in ("npz", "torchrl")
    return {
        name: digest(rows[:, 0] if is_flat and name in ONE_NUMBER else rows)
        for name, rows in right.items()
        if name not in lacks.get(format, MADE_AGAIN)
    }


@pytest.mark.parametrize("format", ["minari", "torchrl"])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=6)
@given(
    lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5),
    step=st.integers(1, 9),
    layout=st.sampled_from(["ted", "compact"]),
)
def test_episodes_of_any_lengths_in_runs_of_any_length_are_kept(
    config: Config, tmp_path: Path, lengths: list[int], step: int, layout: str, format: str
) -> None:
    steps = made_steps(lengths)
    create_dataset("mine/a", steps, lengths=lengths, layout=layout, config=config, force=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("datasets_cli.exchange.flat.rows_per_block", lambda row_bytes: step)
        path = export(config, tmp_path / "out", format, force=True)
    right = {".".join(key): rows for key, rows in steps.items()}
    assert right_digests(right, format).items() <= as_read(path, format).items()
    import_dataset(path, "mine/b", layout="ted", config=config, force=True)
    found = compare_datasets("mine/a", "mine/b", config=config)
    assert found.equal or (format, found.only[0][0].key) == ("torchrl", ("info", "task"))


@pytest.mark.parametrize("format", READ_FORMATS)
@pytest.mark.parametrize(("id", "layout"), EXPORTED)
def test_it_comes_back_equal(exports: Exports, id: str, layout: str, format: str) -> None:
    path, config = exports.folder / _name(id, layout, format), exports.config
    back = f"back/{_name(id, layout, format)}"
    import_dataset(path, back, config=config)
    found = compare_datasets(id, back, config=config)
    lost = [".".join(column.key) for column in found.only[0]]
    if format != "d4rl":  # the others have no place for a final step, and say so
        assert not found.final_steps[1]
        found = replace(found, final_steps=(0, 0))
    elif found.final_difference == (0, TRUNCATED):  # D4RL's file has a flag at each end
        found = replace(found, final_difference=None)
    assert found.equal or (lost, format, id) == (["info.task"], "torchrl", "mine/made")
