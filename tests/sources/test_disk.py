"""Opening the files of a dataset: regular files and nothing else."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from datasets_cli.errors import DamagedDataset
from datasets_cli.sources import disk
from datasets_cli.sources.regular_file import open_regular


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    signal.alarm(10)  # a pipe that is waited for ends the run, and not by a time limit of CI
    yield
    signal.alarm(0)


def test_a_regular_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"rows")
    with open_regular(tmp_path / "file") as file:
        assert file.read() == b"rows"
        assert not os.get_inheritable(file.fileno())


def test_a_missing_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "file")


def make(path: Path, kind: str) -> None:
    if kind == "a symbolic link":
        target = path.with_name("target")
        target.write_bytes(b"rows")
        path.symlink_to(target)
    elif kind == "a named pipe":
        os.mkfifo(path)
    elif kind == "a socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(path))
    else:
        path.mkdir()


KINDS = ["a symbolic link", "a named pipe", "a socket", "a folder"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_regular_file_is_named_and_not_opened(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    make(path, kind)
    opened: list[object] = []
    monkeypatch.setattr(disk.os, "open", lambda *arguments: opened.append(arguments))
    with pytest.raises(DamagedDataset) as caught:
        open_regular(path)
    assert f"file is {kind};" in str(caught.value) and not opened


def test_a_device_is_named_and_not_opened() -> None:
    with pytest.raises(DamagedDataset) as caught:
        open_regular(Path("/dev/null"))
    assert "/dev/null is a device" in str(caught.value)


def next_descriptor() -> int:
    """Return the lowest free descriptor, which a leak would take."""
    found = os.dup(0)
    os.close(found)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_what_takes_the_place_of_a_file_meanwhile_is_refused(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, regular = tmp_path / "file", tmp_path / "regular"
    regular.touch()
    make(path, kind)
    mode = os.lstat(regular)
    monkeypatch.setattr(disk.os, "lstat", lambda path: mode)  # as it was a moment before
    before = next_descriptor()
    with pytest.raises(DamagedDataset):
        open_regular(path)
    assert next_descriptor() == before
