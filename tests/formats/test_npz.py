"""numpy's archives as recipes read them; tests/exchange/test_npz.py has damaged ones."""

from __future__ import annotations

import errno
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from datasets_cli.errors import DiskFull, SourceError
from datasets_cli.formats.npz import read_headers, read_rows

ARRAYS = {"obs": np.arange(30.0).reshape(10, 3), "text": np.array(["a", "bü"] * 5)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    np.savez_compressed(path := tmp_path / "a.npz", **ARRAYS, nine=np.zeros(9), one=np.float32(1))
    return path


def test_rows_are_read_in_bounded_blocks(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets_cli.formats.npz.rows_per_block", lambda row_bytes: 4)
    headers = read_headers(path, required=("obs", "text"))
    runs = list(read_rows(path, {name: headers[name] for name in ("obs", "text")}))
    assert [len(run["obs"]) for run in runs] == [4, 4, 2]
    for name, values in ARRAYS.items():
        assert np.concatenate([run[name] for run in runs]).tolist() == values.tolist()


@pytest.mark.parametrize("name", ["rewards", "one", "nine"])
def test_a_required_array_has_a_row_for_each_step(path: Path, name: str) -> None:
    with pytest.raises(SourceError) as caught:
        read_headers(path, required=("obs", name))
    assert caught.value.path == path
    assert caught.value.key == (None if name == "nine" else name)


def test_an_array_larger_than_its_file_can_be_is_rejected_before_it_is_read(path: Path) -> None:
    header = repr({"descr": "<f4", "fortran_order": False, "shape": (10**9,)}).encode() + b"\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("obs.npy", b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header)
        archive.infolist()[0].file_size = 4 * 10**9 + len(header) + 10
    with pytest.raises(SourceError) as caught:
        read_headers(path)
    assert (caught.value.path, caught.value.key) == (path, "obs")


def test_a_full_temporary_folder_is_not_a_damaged_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    np.savez(path := tmp_path / "a.npz", obs=np.asfortranarray(np.zeros((3, 2))))
    monkeypatch.setattr("datasets_cli.formats.npz.TemporaryFile", full)
    with pytest.raises(DiskFull) as caught:
        next(read_rows(path, read_headers(path)))
    assert caught.value.path == tempfile.gettempdir()
