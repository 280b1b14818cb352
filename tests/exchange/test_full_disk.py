"""A disk that is full while a dataset is exported: the error of a full disk, and nothing left."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from datasets_cli import create_dataset
from datasets_cli.config import Config
from datasets_cli.errors import DiskFull
from datasets_cli.exchange.format import NAMES, READ_ONLY
from datasets_cli.verbs.export_dataset import export_dataset
from tests.exchange.made_steps import made_steps
from tests.support.listing import listing

FORMATS = [name for name in NAMES if name not in READ_ONLY]


@contextmanager
def largest_file(size_bytes: int) -> Iterator[None]:
    """Have no file of this process grow beyond a size, which to a user is a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def read_all(folder: Path) -> Iterator[tuple[str, bytes]]:
    for name in listing(folder):
        yield name, b"" if (folder / name).is_dir() else (folder / name).read_bytes()


@pytest.mark.parametrize("size_bytes", [100, 30_000])
@pytest.mark.parametrize("name", FORMATS)
def test_a_full_disk_is_said_and_leaves_nothing(
    config: Config, tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str, size_bytes: int
) -> None:
    create_dataset("mine/long", made_steps([900] * 20), lengths=[900] * 20, config=config)
    folder = tmp_path / "out"
    folder.mkdir()
    with largest_file(size_bytes), pytest.raises(DiskFull) as caught:
        export_dataset("mine/long", name, folder / "a", allow_loss=True, config=config)
    assert caught.value.exit_code == 7
    assert listing(folder) == []
    assert "Traceback" not in capfd.readouterr().err  # HDF5 would print, and may crash later
    assert export_dataset("mine/long", name, folder / "a", allow_loss=True, config=config).path


@pytest.mark.parametrize("name", FORMATS)
def test_a_full_disk_leaves_what_was_there_before(
    config: Config, tmp_path: Path, name: str
) -> None:
    create_dataset("mine/short", made_steps([9]), lengths=[9], config=config)
    create_dataset("mine/long", made_steps([9000]), lengths=[9000], config=config)
    path, options = tmp_path / "a", {"allow_loss": True, "force": True, "config": config}
    export_dataset("mine/short", name, path, **options)
    before = [*read_all(tmp_path)]
    with largest_file(20_000), pytest.raises(DiskFull):
        export_dataset("mine/long", name, path, **options)
    assert [*read_all(tmp_path)] == before
