"""What a folder may have instead of a dataset's files: each is refused by its name, none opened."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import zstandard

from datasets_cli import FrameStack, open_storage
from datasets_cli.errors import DamagedDataset, WrongSize
from datasets_cli.schema.mapped_bytes import TrajectoryTable
from datasets_cli.schema.mapping import DeviceOptions
from datasets_cli.store.check import _problems_of_text, check_digests, check_sizes
from datasets_cli.store.dataset import open_dataset
from datasets_cli.store.layouts.compact_writer import CompactWriter
from datasets_cli.store.layouts.frames import FrameReader, FrameWriter
from datasets_cli.store.manifest import LAYOUTS, read_manifest
from datasets_cli.store.sealed_json import seal
from datasets_cli.store.writer import LayoutWriter
from tests.store.test_compact import frames_of, pixel_rows, write
from tests.support.refusals import refused

LENGTHS = [30, 1, 9]
FINAL = [(0, 30), (-1, 32), (2, 42)]
"""The trajectory and the number of each final step; the second one is a trajectory alone."""
DICTIONARY = "frames/observation.zst.dictionary"


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    signal.alarm(60)  # a pipe that is waited for ends the run
    yield
    signal.alarm(0)


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    above, rows = tmp_path_factory.mktemp("originals"), pixel_rows(LENGTHS)
    rows["mission",] = np.array([f"take {number % 7} keys" for number in range(40)], object)
    return {
        layout: write(partial(LayoutWriter, layout), above / layout, rows, final=FINAL).folder
        for layout in LAYOUTS
    }


@pytest.fixture
def compact(originals: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(originals["compact"], tmp_path / "compact"))


def put(path: Path, kind: str) -> None:
    """Put something else in the place of a file."""
    content = path.read_bytes() if path.exists() else b""
    path.unlink(missing_ok=True)
    if kind == "a symbolic link":
        path.with_name("elsewhere").write_bytes(content)
        path.symlink_to(path.with_name("elsewhere"))
    elif kind == "a named pipe":
        os.mkfifo(path)
    else:
        path.mkdir()


KINDS = ["a symbolic link", "a named pipe", "a folder"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", ["ted", "compact"])
def test_every_file_must_be_a_file(
    layout: str, kind: str, originals: dict[str, Path], tmp_path: Path
) -> None:
    manifest = read_manifest(originals[layout])
    for number, name in enumerate(["manifest.json", *manifest.files]):
        folder = Path(shutil.copytree(originals[layout], tmp_path / str(number)))
        put(folder / name, kind)
        if name == "manifest.json":
            with refused(DamagedDataset, path=folder / name):
                open_dataset(folder)
            continue
        for check in (
            lambda folder, _: open_dataset(folder).final.steps,
            check_sizes,
            check_digests,
        ):
            with refused(DamagedDataset, path=folder, found=f"{name}: is {kind}"):
                check(folder, manifest)


def unlist(folder: Path, name: str) -> None:
    entry = json.loads((folder / "manifest.json").read_text())
    del entry["files"][name]
    (folder / "manifest.json").write_bytes(seal(entry))


@pytest.mark.parametrize("kind", KINDS)
def test_a_dictionary_that_is_not_listed_is_refused_unless_it_is_a_file(
    kind: str, compact: Path
) -> None:
    unlist(compact, DICTIONARY)
    put(compact / DICTIONARY, kind)
    with refused(DamagedDataset, path=compact, found=f"{DICTIONARY}: is {kind}"):
        open_dataset(compact)


def test_a_dictionary_that_is_not_listed_is_not_read(tmp_path: Path) -> None:
    dataset = write(CompactWriter, tmp_path / "few", pixel_rows([2, 1]))  # too few frames for one
    assert DICTIONARY not in dataset.manifest.files
    right = dataset.gather(torch.arange(3))["observation"]
    (tmp_path / "few" / DICTIONARY).write_bytes(b"never opened")
    assert torch.equal(open_dataset(tmp_path / "few").gather(torch.arange(3))["observation"], right)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (DICTIONARY, r"observation\.zst: frame \d+ cannot be decoded"),
        ("frames/observation.zst", r"frames/observation\.zst: is not listed"),
        (
            "frames/observation.zst.offsets",
            r"zst\.offsets: its columns need 352 bytes",
        ),
        ("trajectories.npy", r"trajectories\.npy: its columns need 160 bytes"),
    ],
)
def test_a_file_that_is_needed_and_not_listed_is_missed(
    name: str, message: str, compact: Path
) -> None:
    unlist(compact, name)
    with pytest.raises(DamagedDataset, match=message):
        open_dataset(compact).gather(torch.arange(40))


# Frames.


def damage(folder: Path, name: str, values: dict[int, int], dtype: str = "<i8") -> None:
    """Give some entries of a file of integers other values."""
    content = np.fromfile(folder / name, dtype)
    for entry, value in values.items():
        content[entry] = value
    content.tofile(folder / name)


@pytest.mark.parametrize("value", [-1, -(2**63), 2**62, 2**63 - 1, 10**6, 0])
def test_a_frame_outside_its_file_is_named(value: int, compact: Path) -> None:
    damage(compact, "frames/observation.zst.offsets", {9: value})
    storage = open_storage(compact)
    assert storage.get(torch.tensor([3, 4])).shape == (2,)
    with pytest.raises(DamagedDataset) as caught:
        storage.get(torch.arange(40))
    assert Path(caught.value.path).name == "observation.zst"
    with pytest.raises(DamagedDataset) as caught:
        FrameStack(storage, 4).get(torch.arange(5, 12))
    assert Path(caught.value.path).name == "observation.zst"


def test_offsets_whose_sum_overflows_are_refused(compact: Path) -> None:
    # The size, 15, is legal; the frame is from near the last signed integer to near the first.
    damage(compact, "frames/observation.zst.offsets", {9: 2**63 - 10, 10: -(2**63) + 5})
    with pytest.raises(DamagedDataset) as caught:
        open_storage(compact).get(torch.tensor([9]))
    assert Path(caught.value.path).name == "observation.zst"
    damage(compact, "frames/observation.zst.offsets", {9: -10, 10: 5})
    with pytest.raises(DamagedDataset) as caught:
        open_storage(compact).get(torch.tensor([9]))
    assert Path(caught.value.path).name == "observation.zst"


@pytest.mark.parametrize("entry", [0, -1])
def test_the_first_and_the_last_offset_are_checked_when_opening(entry: int, compact: Path) -> None:
    damage(compact, "frames/observation.zst.offsets", {entry: 1})
    with pytest.raises(DamagedDataset) as caught:
        open_dataset(compact)
    assert "frames" in Path(caught.value.path).parts
    assert caught.value.expected != caught.value.found


def zstd_frames(folder: Path, frames: list[bytes]) -> FrameReader:
    """Return a reader of frames of 36 x 36 bytes that were compressed by somebody else."""
    (folder / "x.zst").write_bytes(b"".join(frames))
    ends = np.cumsum([0, *map(len, frames)]).astype(np.int64)
    (folder / "x.zst.offsets").write_bytes(ends.tobytes())
    return FrameReader(folder / "x.zst", len(frames), (36, 36), has_dictionary=False)


GOOD = zstandard.compress(bytes(1296))
UNKNOWN_SIZE = zstandard.ZstdCompressor(write_content_size=False)


@pytest.mark.parametrize(
    "bad",
    [
        zstandard.compress(bytes(1295)),
        zstandard.compress(bytes(1297)),
        zstandard.compress(bytes(1 << 20)),
        zstandard.compress(b""),
        UNKNOWN_SIZE.compress(bytes(1295)),
        UNKNOWN_SIZE.compress(bytes(1297)),
        # A header that claims 2**60 bytes: magic number, 8 bytes of size, then the size.
        b"\x28\xb5\x2f\xfd\xe0" + (2**60).to_bytes(8, "little") + GOOD[6:],
        b"\x28\xb5\x2f\xfd\xe0" + (2**64 - 1).to_bytes(8, "little") + GOOD[6:],
        b"\x50\x2a\x4d\x18\x04\x00\x00\x00rows",  # a frame that decoders skip
        GOOD[:-1],
        b"?",
    ],
    ids=range(11),
)
def test_a_frame_of_another_size_is_named(bad: bytes, tmp_path: Path) -> None:
    reader = zstd_frames(tmp_path, [GOOD, GOOD, bad, GOOD, bad])
    assert reader.read(np.array([1, 3])).sum() == 0
    with pytest.raises(DamagedDataset) as caught:
        reader.read(np.array([3, 4, 2, 0]))
    assert Path(caught.value.path).name == "x.zst"


def test_a_frame_that_does_not_say_its_size_is_read(tmp_path: Path) -> None:
    reader = zstd_frames(tmp_path, [UNKNOWN_SIZE.compress(bytes(1296)), GOOD])
    assert reader.read(np.array([0, 1])).shape == (2, 36, 36)


def test_frames_that_no_file_of_this_size_can_have_are_refused(tmp_path: Path) -> None:
    zstd_frames(tmp_path, [GOOD, GOOD])
    with refused(DamagedDataset, found=38):
        FrameReader(tmp_path / "x.zst", 2, (1 << 13, 1 << 13), has_dictionary=False)
    with refused(DamagedDataset, found=1099511627776):
        FrameReader(tmp_path / "x.zst", 2, (1 << 20, 1 << 20), has_dictionary=False)


@pytest.mark.parametrize(
    "content",
    [
        b"\x28\xb5\x2f\xfd\xe0" + (2**60).to_bytes(8, "little"),
        zstandard.compress(bytes(1 << 30)),
        zstandard.compress(bytes(8)) + b"more",
        UNKNOWN_SIZE.compress(bytes(1 << 20)),
        zstandard.compress(b""),
        b"",
    ],
    ids=range(6),
)
def test_a_dictionary_is_not_decompressed_beyond_its_size(content: bytes, tmp_path: Path) -> None:
    writer = FrameWriter(tmp_path / "x.zst", 36 * 36)
    writer.write(frames_of(100))
    writer.finish()
    (tmp_path / "x.zst.dictionary").write_bytes(content)
    with pytest.raises(DamagedDataset) as caught:
        FrameReader(tmp_path / "x.zst", 100, (36, 36), has_dictionary=True)
    assert Path(caught.value.path).name == "x.zst.dictionary"


# The row map.


@pytest.mark.parametrize("value", [42, 43, 2**31 - 1, -1, -(2**31)])
def test_a_row_map_that_leads_out_of_the_records_is_named(value: int, compact: Path) -> None:
    damage(compact, "row.memmap", {7: value, 20: value}, "<i4")
    storage = open_storage(compact)
    assert storage.get(torch.tensor([6, 8])).shape == (2,)
    for index in (torch.arange(40), torch.tensor([20, 7])):
        with refused(DamagedDataset, row=7, found=value):
            storage.get(index)
        with refused(DamagedDataset, row=7, found=value):
            storage.dataset.rows_of(frozenset(storage.dataset.keys)).history(
                ("observation",), index, torch.zeros_like(index), 4
            )
    with refused(DamagedDataset, row=7, found=value):
        storage.column(("observation",))
    with refused(DamagedDataset, row=7, found=value):
        open_dataset(compact, DeviceOptions(torch.device("cpu")))  # copied, so checked once


def test_the_last_record_has_no_successor(compact: Path) -> None:
    num_records = 40 + 3
    damage(compact, "row.memmap", {39: num_records - 1}, "<i4")
    with pytest.raises(DamagedDataset) as caught:
        open_storage(compact).get(torch.tensor([39]))
    assert (caught.value.row, caught.value.found) == (39, 42)
    assert caught.value.expected == "39 to 41"


def test_a_wrong_index_of_the_caller_is_an_index_error(compact: Path) -> None:
    storage = open_storage(compact)
    for row in (40, -1, 2**40):
        with pytest.raises(IndexError):
            storage.get(torch.tensor([0, row]))
        with pytest.raises(IndexError):
            FrameStack(storage, 4).get(torch.tensor([0, row]))


# The trajectory table.


@pytest.mark.parametrize(
    "header",
    [
        b"{'descr': '<i8', 'fortran_order': False, 'shape': (4,), 'x': " + b"(" * 30,
        b"{'descr': '<i8', 'fortran_order': True, 'shape': (4,), }",
        b"{'descr': '<i8', 'fortran_order': False, 'shape': (5,), }",
        b"{'descr': '|O', 'fortran_order': False, 'shape': (4,), }",
        b"{'descr': '>i8', 'fortran_order': False, 'shape': (4,), }",
        b"{'descr': '<f8', 'fortran_order': False, 'shape': (4,), }",
        b"9**9**9**9",
    ],
)
def test_a_header_is_not_evaluated(header: bytes, tmp_path: Path) -> None:
    path = tmp_path / "trajectories.npy"
    np.save(path, np.array([0, 30, 31, 40]))
    content = path.read_bytes()
    assert TrajectoryTable(path, 40, 3).read().tolist() == [0, 30, 31, 40]
    path.write_bytes(content[:10] + header.ljust(117)[:117] + b"\n" + content[128:])
    with pytest.raises(DamagedDataset) as caught:
        TrajectoryTable(path, 40, 3).read()
    assert (caught.value.path, caught.value.expected) == (path, "int64 [4]")


def test_offsets_whose_difference_overflows_do_not_rise(tmp_path: Path) -> None:
    path = tmp_path / "trajectories.npy"
    np.save(path, np.array([0, 2**63 - 1, -(2**63), 40]))
    with refused(DamagedDataset, found="0 to 40"):
        TrajectoryTable(path, 40, 3).read()


# Final steps.


def read_final(folder: Path) -> None:
    """Open a dataset, and read its final steps as a user does."""
    final = open_dataset(folder).final
    assert len(final.steps) == len(final.episodes)
    for key in final.keys:
        final[key]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("episode", {1: -2}),
        ("episode", {0: -1}),
        ("episode", {1: 1}),
        ("episode", {2: 3}),
        ("episode", {0: 2**62}),
        ("recorded_step", {0: 32, 1: 30}),
        ("recorded_step", {1: 30}),
        ("recorded_step", {2: 43}),
        ("recorded_step", {0: -1}),
        ("recorded_step", {2: 2**63 - 1}),
    ],
)
def test_a_final_step_that_follows_no_trajectory_is_refused(
    name: str, values: dict[int, int], layout: str, originals: dict[str, Path], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(originals[layout], tmp_path / layout))
    read_final(folder)
    damage(folder, f"final/{name}.memmap", values)
    with refused(DamagedDataset, path=folder / "final"):
        read_final(folder)
    assert open_storage(folder).get(torch.arange(40)).shape == (40,)


@pytest.mark.parametrize("code", [3, -1, 2**31 - 1, -(2**31)])
def test_the_code_of_a_text_of_a_final_step_is_checked(code: int, compact: Path) -> None:
    name = "final/text/mission.memmap"
    damage(compact, name, {1: code}, "<i4")
    with refused(DamagedDataset, path=compact / name, row=1):
        read_final(compact)


def test_the_texts_of_final_steps_fill_their_file(compact: Path) -> None:
    damage(compact, "final/text.offsets", {-1: 10**6})
    with refused(DamagedDataset, path=compact / "final"):
        read_final(compact)


def test_a_folder_of_final_steps_that_is_a_link_is_refused(compact: Path, tmp_path: Path) -> None:
    (compact / "final").rename(tmp_path / "elsewhere")
    (compact / "final").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DamagedDataset) as caught:
        read_final(compact)
    assert "final is a symbolic link" in str(caught.value.found)
    with pytest.raises(DamagedDataset):
        check_sizes(compact, read_manifest(compact))


@pytest.mark.parametrize(
    "name", ["final/episode.memmap", "final/text.utf8", "final/text.offsets", "final/meta.json"]
)
def test_a_file_of_final_steps_that_is_missing_or_not_listed_is_named(
    name: str, compact: Path
) -> None:
    content = (compact / name).read_bytes()
    (compact / name).unlink()
    with pytest.raises(DamagedDataset, match=f"{name}: is missing"):
        read_final(compact)
    (compact / name).write_bytes(content)
    if name != "final/meta.json":  # which this package does not read
        unlist(compact, name)
        with pytest.raises(DamagedDataset, match=name):
            read_final(compact)


# Flags.


def test_a_flag_that_is_neither_0_nor_1_is_set(originals: dict[str, Path], tmp_path: Path) -> None:
    """torch reads such bytes as True, so nothing is normalised; a torch that did not would crash.

    ``nonzero`` counts first and writes then: two ways to read a flag would write out of bounds.
    """
    folder = Path(shutil.copytree(originals["ted"], tmp_path / "ted"))
    flags = np.zeros(40, np.uint8)
    flags[[3, 17, 29, 30, 39]] = [2, 128, 255, 3, 1]
    flags.tofile(folder / "next" / "done.memmap")
    done: Any = open_storage(folder).column(("next", "done"))
    assert done.nonzero()[:, 0].tolist() == [3, 17, 29, 30, 39]
    assert int(done.sum()) == 5
    assert torch.arange(40)[done.view(-1)].tolist() == [3, 17, 29, 30, 39]
    assert (~done).view(-1).nonzero().shape == (35, 1)
    assert np.flatnonzero(done.numpy()).tolist() == [3, 17, 29, 30, 39]


def test_a_vocabulary_that_is_not_listed_is_missed_and_nothing_else_is_said() -> None:
    manifest: Any = SimpleNamespace(texts=("instruction",), files={}, final_steps=0)
    problems = _problems_of_text(manifest)
    assert len(problems) == 2 and all(each.endswith(": is not listed") for each in problems)


def test_a_copy_on_a_device_that_is_this_memory_must_fit(
    compact: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets_cli.core.system_errors.SMALL_BYTES", 0)
    monkeypatch.setattr("datasets_cli.core.system_errors.free_memory", lambda: 1000)
    open_dataset(compact)
    with refused(WrongSize, expected="500 bytes at most"):
        open_dataset(compact, DeviceOptions(device=torch.device("cpu")))
