"""Mapped files: no descriptor stays open, and a mapping lives as long as something reads it."""

from __future__ import annotations

import gc
import resource
from pathlib import Path

import numpy as np
import pytest
import torch

import datasets_cli
from datasets_cli.config import Config
from datasets_cli.core.progress import silent
from datasets_cli.schema.mapped_bytes import map_descriptor
from datasets_cli.schema.mapping import map_file
from datasets_cli.store.dataset import Dataset, open_dataset
from tests.support.processes import Child


def mappings(path: Path) -> int:
    return Path("/proc/self/maps").read_text().count(str(path))


def num_descriptors() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def open_many(_: object, folder: Path, count: int) -> tuple[int, list[int]]:
    """Open a dataset many times with few descriptors; return how many took any, and lengths."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    before = num_descriptors()
    datasets: list[Dataset] = [open_dataset(folder, text=True) for _ in range(count)]
    lengths = [len(dataset.run(0, 2)["action"]) for dataset in datasets]
    return num_descriptors() - before, lengths


@pytest.mark.parametrize(("id", "layout"), [("demo/pong", "compact")])
def test_two_hundred_datasets_are_open_with_256_descriptors(
    id: str, layout: str, config: Config
) -> None:
    done = datasets_cli.download(id, layout=layout, progress=silent, config=config)
    child = Child("spawn", open_many, Path(done.datasets[0].path), 200)
    assert child.result() == (0, [2] * 200)


def test_a_mapping_lives_as_long_as_what_reads_it_and_no_longer(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    np.arange(4096, dtype="<i8").tofile(path)
    tail = map_file(path, torch.int64, (4096,))[4000:].numpy()[::2]
    path.unlink()
    gc.collect()
    assert tail.tolist() == [*range(4000, 4096, 2)] and mappings(path) == 1
    del tail
    gc.collect()
    assert mappings(path) == 0


def test_what_is_mapped_cannot_be_written_and_a_wrong_descriptor_is_an_error(
    tmp_path: Path,
) -> None:
    (tmp_path / "rows").write_bytes(b"abc")
    with (tmp_path / "rows").open("rb") as file:
        mapped = map_descriptor(file.fileno(), 3)
    assert bytes(mapped) == b"abc" and mapped.readonly
    with pytest.raises(OSError, match=r"Bad file descriptor"):
        map_descriptor(-1, 3)
