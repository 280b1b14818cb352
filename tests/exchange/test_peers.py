"""Exports of demo data and made steps: every value by the reader of another tool, and back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datasets_cli import (
    ExperienceReplay,
    compare_datasets,
    convert,
    create_dataset,
    download,
    export_dataset,
    import_dataset,
)
from datasets_cli.config import Config
from tests.exchange.made_steps import leaf_files, made_steps
from tests.exchange.peers import READERS, digest
from tests.support.interpreters import started
from tests.support.paths import PROJECT

EXPORTED = (
    *(("demo/door-minari", "ted"), ("demo/iris", "compact"), ("demo/pong", "compact")),
    *(("mine/made", "ted"), ("mine/made", "compact")),
)
FORMATS = [each.__name__ for each in READERS]
LENGTHS = [3, 1, 4, 2]
MADE_AGAIN = ("done", "terminated", "truncated", "next.done")
ONE_NUMBER = ("next.reward", "next.terminated", "next.truncated", *MADE_AGAIN)


@dataclass(frozen=True)
class Exports:
    """The files of all exports, what others read in them, and what they must find."""

    folder: Path
    config: Config
    found: dict[str, dict[str, list[Any]]]
    right: dict[str, dict[str, np.ndarray]]


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Exports:
    config = Config(tmp_path_factory.mktemp("root"))
    folder, right = tmp_path_factory.mktemp("exports"), {}
    made = made_steps(LENGTHS)
    create_dataset("mine/made", made, lengths=LENGTHS, layout="ted", config=config)
    download(["demo/door-minari", "demo/iris", "demo/pong"], layout="ted", config=config)
    for id, layout in EXPORTED:
        if id not in right:
            texts = {("info", "task"): made["info", "task"]} if id == "mine/made" else {}
            leaves = {**leaf_files(id, config), **texts}
            right[id] = {".".join(key): rows for key, rows in leaves.items()}
        convert(id, layout=layout, config=config)
        for format in FORMATS:
            path = folder / _name(id, layout, format)
            if format == "hf":
                replay = ExperienceReplay(id, root=config.root, text=True)
                replay.to_hf_dataset().save_to_disk(path)
            else:
                export_dataset(id, format, path, allow_loss=True, config=config)
    done = started(str(PROJECT / "tests/exchange/peers.py"), str(folder))
    assert done.returncode == 0, done.stderr
    return Exports(folder, config, json.loads(done.stdout), right)


def _name(id: str, layout: str, format: str) -> str:
    return f"{id.replace('/', '-')}-{layout}.{format}"


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("id", "layout"), EXPORTED)
def test_the_peer_reads_every_value_without_us(
    exports: Exports, id: str, layout: str, format: str
) -> None:
    found, right = exports.found[_name(id, layout, format)], exports.right[id]
    lacks = {"torchrl": {"info.task"}, "hf": set(), "d4rl": {"episode", *MADE_AGAIN}}
    expected = right.keys() - lacks.get(format, MADE_AGAIN)
    assert found.keys() == expected
    for name in expected:
        rows = right[name]
        if name in ONE_NUMBER and format not in ("npz", "torchrl"):
            rows = rows[:, 0]
        assert found[name] == digest(rows), name


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("id", "layout"), EXPORTED)
def test_it_comes_back_equal(exports: Exports, id: str, layout: str, format: str) -> None:
    path, config = exports.folder / _name(id, layout, format), exports.config
    back = f"back/{_name(id, layout, format)}"
    import_dataset(path, back, config=config)
    found = compare_datasets(id, back, config=config)
    lost = [".".join(column.key) for column in found.only[0]]
    assert found.equal or (lost, format, id) == (["info.task"], "torchrl", "mine/made")
