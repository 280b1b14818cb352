"""What the manifest of an import records of its files: their own bytes and sha256."""

from __future__ import annotations

import subprocess
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

from datasets_cli import create_dataset, import_dataset
from datasets_cli.config import Config
from datasets_cli.errors import NotWritable, SourceError
from datasets_cli.exchange import npz
from datasets_cli.store.manifest import Manifest, read_manifest

CONTENT = "3c2d3837f84aece16d8bb717ebfa1dfb47447d4f35402becf540d7c6c6260a82"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    rows = np.arange(12.0).reshape(6, 2)
    columns = {
        "observation": rows,
        "velocity": rows + 1,
        "action": rows[:, 0],
        "reward": rows[:, 1],
    }
    np.savez(tmp_path / "a.npz", **columns, ends=np.arange(6) % 3 == 2)
    return tmp_path / "a.npz"


def imported(path: Path, config: Config, **given: Any) -> Manifest:
    return read_manifest(import_dataset(path, "mine/a", config=config, **given).path)


def test_the_bytes_and_the_sha256_are_those_of_the_file(config: Config, path: Path) -> None:
    [source] = imported(path, config).resources
    assert (source["bytes"], source["filename"]) == (path.stat().st_size, "a.npz")
    assert source["sha256"] == sha256(path.read_bytes()).hexdigest() != source["columns_sha256"]


def test_a_folder_has_the_sha256_of_what_sha256sum_prints(config: Config, tmp_path: Path) -> None:
    rows, folder = torch.arange(6.0), tmp_path / "rows"
    columns = {"obs": rows, "a": {"b": rows}, "a.c": rows, "action": rows, "reward": rows}
    TensorDict({**columns, "ends": rows % 3 == 2}, [6]).memmap(folder)
    [source] = imported(folder, config).resources
    command = "find . -type f | LC_ALL=C sort | xargs sha256sum | sha256sum"
    printed = subprocess.check_output(command, shell=True, cwd=folder, text=True)
    sizes = [each.stat().st_size for each in folder.rglob("*") if each.is_file()]
    assert (source["sha256"], source["bytes"]) == (printed.split()[0], sum(sizes))


def test_another_map_of_one_file_is_other_columns_of_the_same_bytes(
    config: Config, path: Path
) -> None:
    first = imported(path, config)
    assert first.content == CONTENT, "the identity of installed imports stays what it was"
    with pytest.raises(NotWritable) as refused:
        imported(path, config, map={"observation": "velocity"})
    assert "sha256" not in str(refused.value)
    other = imported(path, config, map={"observation": "velocity"}, force=True)
    assert other.content != first.content
    assert [each.resources[0]["sha256"] for each in (first, other)] == [
        sha256(path.read_bytes()).hexdigest()
    ] * 2


def test_the_same_columns_in_other_bytes_are_recorded_as_these(config: Config, path: Path) -> None:
    first = imported(path, config)
    np.savez_compressed(path, **np.load(path))
    again = imported(path, config)
    assert again.content == first.content
    assert again.resources[0]["sha256"] == sha256(path.read_bytes()).hexdigest()


def test_data_in_memory_have_no_sha256_of_a_file(config: Config) -> None:
    columns = {name: np.arange(4.0) for name in ("observation", "action", "reward")}
    [source] = read_manifest(
        create_dataset("mine/a", columns, lengths=[4], config=config).path
    ).resources
    assert len(source["columns_sha256"]) == 64 and not {"sha256", "bytes"} & source.keys()


def test_a_file_that_changes_while_it_is_read_is_refused(
    config: Config, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = npz.blocks

    def changed(*given: Any) -> Any:
        yield from read(*given)
        path.write_bytes(path.read_bytes())

    monkeypatch.setattr(npz, "blocks", changed)
    with pytest.raises(SourceError) as caught:
        imported(path, config)
    assert caught.value.path == path
    assert not [*config.root.glob("datasets/*/*"), *config.root.glob("tmp/*")]
