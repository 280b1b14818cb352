"""numpy's archives: damaged, hostile or no archive of steps, and none leaves anything."""

from __future__ import annotations

import os
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from datasets_cli import compare_datasets, import_dataset, plan_import
from datasets_cli.config import Config
from datasets_cli.errors import SourceError, UnknownKey, UsageError
from tests.support.interpreters import imported_by_commands

COLUMNS = {
    "observation": np.arange(30.0).reshape(10, 3),
    "action": np.arange(10),
    "reward": np.ones(10),
    "episode": np.arange(10) // 5,
}


def saved(path: Path, **others: Any) -> Path:
    np.savez(path, **{**COLUMNS, **others})
    return path


def member(header: bytes | None = None, shape: Any = (10,), data: bytes = bytes(80)) -> bytes:
    """Return an array whose header says what it says."""
    text = repr({"descr": "<i8", "fortran_order": False, "shape": shape}).encode() + b"\n"
    text = text if header is None else header
    return b"\x93NUMPY\x02\x00" + len(text).to_bytes(4, "little") + text + data


def zipped(path: Path, *actions: bytes, method: int = zipfile.ZIP_DEFLATED) -> None:
    """Write an archive whose ``action`` is as given, as often as given."""
    with zipfile.ZipFile(saved(path)) as archive:
        others = {n: archive.read(n) for n in archive.namelist() if n != "action.npy"}
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in [*others.items(), *(("action.npy", each) for each in actions)]:
            archive.writestr(name, data)


def _encrypted(path: Path) -> None:
    data = bytearray(saved(path).read_bytes())
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + at] |= 1
    path.write_bytes(data)


def _pickled(path: Path) -> None:
    saved(path, action=np.array([{}] * 10, object))


WRONG: dict[str, tuple[Callable[[Path], Any], type[Exception]]] = {
    "no array": (np.savez, SourceError),
    "pickles": (_pickled, UsageError),
    "encrypted": (_encrypted, SourceError),
    "no header": (lambda path: zipped(path, b"text"), SourceError),
    "a header of no array": (lambda path: zipped(path, member(b"{'shape': 3}\n")), SourceError),
    "a header that is code": (lambda path: zipped(path, member(b"exit()\n")), SourceError),
    "brackets that are not closed": (lambda path: zipped(path, member(b"{'a': [\n")), SourceError),
    "a thousand brackets": (lambda path: zipped(path, member(b"(" * 5000)), SourceError),
    "a thousand signs": (lambda path: zipped(path, member(b"-" * 9000 + b"1")), SourceError),
    "a later version": (lambda p: zipped(p, member().replace(b"Y\2", b"Y\t")), SourceError),
    "fewer bytes than said": (lambda path: zipped(path, member(shape=(11,))), SourceError),
    "more bytes than said": (lambda path: zipped(path, member(shape=(9,))), SourceError),
    "a shape below nothing": (lambda path: zipped(path, member(shape=(-10, -1))), SourceError),
    "a shape of 10 ** 30": (lambda path: zipped(path, member(shape=(10**30,))), SourceError),
    "a header of a gigabyte": (
        lambda path: zipped(path, member(bytes(2**26), data=b"")), SourceError
    ),
    "an array twice": (lambda path: zipped(path, member(), member()), SourceError),
    "packed by another": (lambda p: zipped(p, member(), method=zipfile.ZIP_LZMA), SourceError),
    "no rows": (
        lambda path: saved(path, **{name: rows[:0] for name, rows in COLUMNS.items()}), UsageError
    ),
    "other lengths": (lambda path: saved(path, action=np.arange(9)), UsageError),
    "one number": (lambda path: saved(path, action=3), UsageError),
    "no archive": (lambda path: path.write_bytes(b"\x93NUMPY"), SourceError),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_archive_leaves_nothing(config: Config, tmp_path: Path, wrong: str) -> None:
    make, error = WRONG[wrong]
    make(path := tmp_path / "a.npz")
    with pytest.raises(error):
        import_dataset(path, "mine/a", config=config)
    assert not [*config.root.glob("datasets/*/*"), *config.root.glob("tmp/*")]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_what_is_damaged_is_refused_or_was_of_no_value(
    config: Config, tmp_path: Path, save: Callable[..., None]
) -> None:
    save(path := tmp_path / "a.npz", **COLUMNS)
    import_dataset(path, "mine/a", config=config, progress=None)
    data, draw, outcomes = path.read_bytes(), random.Random(7), set()
    for number in range(60):
        damaged = bytearray(data[: draw.randrange(len(data))] if number % 3 == 0 else data)
        if number % 3:
            damaged[draw.randrange(len(damaged))] = draw.randrange(256)
        path.write_bytes(damaged)
        try:
            import_dataset(path, "mine/b", config=config, force=True, progress=None)
        except SourceError as error:
            outcomes.add(type(error))
        else:
            assert compare_datasets("mine/a", "mine/b", config=config, progress=None).equal
    assert outcomes == {SourceError}


def test_what_is_no_column_is_named_and_the_rest_is_read(config: Config, tmp_path: Path) -> None:
    odd = {
        "number": 3,
        "objects": np.array([None] * 10),
        "dates": np.zeros(10, "M8[s]"),
        "info.swapped": np.arange(10, dtype=">i4"),
        "info.words": np.array(["a", "bü"] * 5),
    }
    path = saved(tmp_path / "a.npz", **odd)
    dropped = {each.partition(":")[0] for each in plan_import(path, "mine/a").dropped}
    assert dropped == {"number", "objects", "dates"}
    made = import_dataset(path, "mine/a", config=config, layout="ted")
    values = np.fromfile(made.path / "info" / "swapped.memmap", "<i4")
    assert values.tolist() == [0, 1, 2, 3, 5, 6, 7, 8]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_array_in_fortrans_order_is_read_in_blocks(
    config: Config, tmp_path: Path, save: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets_cli.formats.npz.rows_per_block", lambda row_bytes: 3)
    frames = np.asfortranarray(np.arange(120, dtype="u1").reshape(10, 3, 4))
    save(path := tmp_path / "a.npz", **COLUMNS, **{"info.frame": frames})
    made = import_dataset(path, "mine/a", config=config, layout="ted")
    kept = np.fromfile(made.path / "info" / "frame.memmap", "u1").reshape(-1, 3, 4)
    assert (kept == frames[[0, 1, 2, 3, 5, 6, 7, 8]]).all()


@pytest.mark.parametrize("count", [10, 100_000])
def test_a_wrong_checksum_is_refused_and_its_array_named(
    config: Config, tmp_path: Path, count: int
) -> None:
    mark = np.full((count, 3), 1234567.0)
    columns = {name: np.resize(rows, (count, *rows.shape[1:])) for name, rows in COLUMNS.items()}
    columns["episode"] = np.arange(count) // 5
    np.savez(path := tmp_path / "a.npz", **columns, next_observation=mark)
    data = path.read_bytes()
    path.write_bytes(data[::-1].replace(mark[0, :1].tobytes()[::-1], bytes(8), 1)[::-1])
    with pytest.raises(SourceError) as caught:
        import_dataset(path, "mine/a", config=config)
    assert caught.value.path == path


def test_the_reason_is_in_the_error_where_a_needed_column_cannot_be_read(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.npz", observation=np.array([None] * 10))
    with pytest.raises(UnknownKey) as caught:
        plan_import(path, "mine/a")
    assert caught.value.argument == "map"
    assert caught.value.key == "observation"
    assert caught.value.found == ["action", "reward", "episode"]


@pytest.mark.parametrize("name", ["a.npz", "a.hdf5", "a.h5"])
@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 and no more"])
def test_a_file_that_is_cut_off_is_known_by_its_name(
    tmp_path: Path, name: str, data: bytes
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(SourceError) as caught:
        plan_import(tmp_path / name, "mine/a")
    assert (caught.value.path, caught.value.found) == (tmp_path / name, len(data))


@pytest.mark.parametrize(
    "kind",
    ["pipe", "device", "long", "memory", "pickle", "empty folder", "parts", "tfrecord", "json"],
)
def test_a_path_of_another_kind_is_rejected_at_once(tmp_path: Path, kind: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "rlds").mkdir()
    (tmp_path / "parts/data/chunk-000").mkdir(parents=True)
    (tmp_path / "parts/data/chunk-000/episode_000000.parquet").write_bytes(b"PAR1")
    (tmp_path / "a.tfrecord-00000-of-00001").write_bytes(bytes(20))
    for name in ("dataset_info.json", "features.json"):
        (tmp_path / "rlds" / name).write_text("{}")
    (tmp_path / "a.pkl").write_bytes(b"\x80\x04N.")
    os.mkfifo(tmp_path / "pipe.npz")
    path, found = {
        "pipe": (tmp_path / "pipe.npz", "a named pipe"),
        "device": (Path("/dev/zero"), "a device"),
        "long": (Path("x" * 300), "File name too long"),
        "memory": (Path("/proc/self/mem"), ""),
        "pickle": (tmp_path / "a.pkl", "create_dataset()"),
        "json": (tmp_path / "rlds/features.json", f"folder {tmp_path / 'rlds'}."),
        "empty folder": (tmp_path / "empty", "create_dataset()"),
        "parts": (tmp_path / "parts", "several Parquet files"),
        "tfrecord": (tmp_path / "a.tfrecord-00000-of-00001", "TFRecord"),
    }[kind]
    with pytest.raises(UsageError) as raised:
        plan_import(path, "mine/a")
    assert str(path) in str(raised.value) and found in str(raised.value)


def test_a_cut_hdf5_gives_no_advice_that_an_import_cannot_take(tmp_path: Path) -> None:
    with h5py.File(path := tmp_path / "a.hdf5", "w") as file:
        file["observations"] = np.zeros(1000)
    path.write_bytes(path.read_bytes()[:3000])
    with pytest.raises(SourceError) as refused:
        plan_import(path, "mine/a")
    assert refused.value.path == path
    assert "source" not in str(refused.value).lower()


def test_files_are_imported_without_torch(config: Config, tmp_path: Path) -> None:
    path = saved(tmp_path / "steps.npz")
    imported = imported_by_commands(f"import {path} --name mine/steps --yes")
    assert not imported & {"torch", "tensordict", "pandas"}
