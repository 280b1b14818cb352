"""Faults in what a writer is given: the reader of another tool and our comparison both see each."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from minari import MinariDataset

from datasets_cli import (
    compare_datasets,
    create_dataset,
    export_dataset,
    import_dataset,
    plan_import,
)
from datasets_cli.config import Config
from datasets_cli.errors import RldsError
from datasets_cli.exchange.flat import key_runs
from datasets_cli.exchange.format import format_of
from tests.exchange.made_steps import Columns, made_steps
from tests.exchange.peers import READERS, digest

FORMATS = ("npz", "d4rl", "minari", "torchrl", "parquet")
LENGTHS = [3, 1, 4, 2]
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


def export(config: Config, path: Path, format: str) -> Path:
    export_dataset("mine/a", format, path, allow_loss=True, config=config)
    return path


def make(config: Config, **options: Any) -> None:
    steps = made_steps(LENGTHS)
    steps[FRAME] = np.arange(160, dtype="u1").reshape(10, 4, 4)
    steps[REWARD] = steps[REWARD] + np.float64(1e-12)
    del steps["info", "task"]
    create_dataset("mine/a", steps, lengths=LENGTHS, config=config, **options)


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


FAULTS = [*ROWS, "a lost column"]
# Each fault in two formats or three, and in each format every second fault.
PAIRS = [
    (fault, format)
    for number, fault in enumerate(FAULTS)
    for place, format in enumerate(FORMATS)
    if (number + place) % 2 == 0
]


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

    monkeypatch.setattr(module, "write", _write)
    monkeypatch.setattr(module, "key_runs", runs)
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


def test_counts_of_an_export_are_those_of_its_rows_and_stale_ones_are_told(
    config: Config, tmp_path: Path
) -> None:
    make(config, info={"total_steps": 99, "total_episodes": 98})
    path = export(config, tmp_path / "whole", "minari") / "data"
    found = MinariDataset(path)
    assert (found.total_steps, found.total_episodes) == (10, 4)
    assert list(found.storage.get_episode_metadata(range(4))) == [
        {"id": number, "total_steps": count} for number, count in enumerate(LENGTHS)
    ]
    said = json.loads((path / "metadata.json").read_text())
    (path / "metadata.json").write_text(json.dumps({**said, "total_steps": 11}))
    notes = plan_import(path, "mine/b").notes
    assert notes == ("metadata.json says total_steps 11; the file has 10",)
