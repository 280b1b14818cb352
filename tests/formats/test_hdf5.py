"""HDF5 files: blocks of rows against h5py, and damage."""

from __future__ import annotations

import os
import random
import signal
import struct
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets_cli import import_dataset
from datasets_cli.errors import RldsError, SourceError
from datasets_cli.exchange.d4rl import blocks, recognise
from datasets_cli.formats.hdf5 import open_hdf5, read_rows
from datasets_cli.schema import columns
from tests.support.paths import TEST_DATA
from tests.support.refusals import refused

DTYPES = ["<f4", ">f4", "<f8", "<f2", "u1", "<i8", ">i2", "bool", "<c8"]
FILTERS: dict[str, dict[str, Any]] = {
    "gzip": {"compression": "gzip"},
    "stored": {"compression": "gzip", "compression_opts": 0},
    "shuffled": {"compression": "gzip", "shuffle": True},
    "summed": {"compression": "gzip", "fletcher32": True},
    "lzf": {"compression": "lzf"},
    "contiguous": {},
}


@st.composite
def files(draw: st.DrawFn) -> tuple[h5py.File, int]:
    """Return an HDF5 file in memory with columns of one length, and the rows of a block."""
    num_rows, random = draw(st.integers(0, 70)), np.random.default_rng(0)
    file = h5py.File("memory", "w", driver="core", backing_store=False)
    for number in range(draw(st.integers(1, 4))):
        shape = (num_rows, *draw(st.lists(st.integers(0, 5), max_size=2)))
        dtype = np.dtype(draw(st.sampled_from(DTYPES)))
        options = FILTERS[draw(st.sampled_from(sorted(FILTERS)))]
        if options and 0 not in shape:
            chunks = tuple(draw(st.integers(1, size)) for size in shape)
            dataset = file.create_dataset(str(number), shape, dtype, chunks=chunks, **options)
        else:
            dataset = file.create_dataset(str(number), shape, dtype)
        if dtype.kind == "b" or draw(st.booleans()):
            values = (np.arange(dataset.size).reshape(shape) % 2).astype(dtype)
        else:  # noise, which gzip cannot shorten
            values = np.frombuffer(random.bytes(dataset.size * dtype.itemsize), dtype)
        written = draw(st.sampled_from([num_rows, num_rows // 2]))  # chunks may be missing
        if written:
            dataset[:written] = values.reshape(shape)[:written]
    return file, draw(st.integers(1, 40))


@pytest.mark.parametrize("isal", [True, False])
@given(drawn=files())
def test_blocks_are_what_h5py_reads(drawn: tuple[h5py.File, int], isal: bool) -> None:
    file, block_rows = drawn
    with pytest.MonkeyPatch.context() as patch, file:
        patch.setattr(columns, "BLOCK_ROWS", block_rows)
        if not isal:
            patch.setitem(sys.modules, "isal", None)
        blocks = list(read_rows({(name,): item for name, item in file.items()}))
        num_rows = len(file["0"])
        assert len(blocks) == -(-num_rows // block_rows)
        for number, block in enumerate(blocks):
            for name, item in file.items():
                expected = item[number * block_rows :][:block_rows]
                assert block[name,].dtype == expected.dtype
                assert block[name,].shape == expected.shape
                assert block[name,].tobytes() == expected.tobytes()


@pytest.mark.parametrize("isal", [True, False])
def test_no_flipped_bit_of_a_chunk_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isal: bool
) -> None:
    if not isal:
        monkeypatch.setitem(sys.modules, "isal", None)
    path = tmp_path / "file.hdf5"
    values = np.arange(600, dtype="f4").reshape(200, 3)
    with h5py.File(path, "w") as file:
        dataset = file.create_dataset("a", data=values, compression="gzip", chunks=(64, 1))
        chunk = dataset.id.get_chunk_info(4)
    good = path.read_bytes()
    for offset in range(chunk.byte_offset, chunk.byte_offset + chunk.size):
        path.write_bytes(good[:offset] + bytes([good[offset] ^ 0x10]) + good[offset + 1 :])
        with h5py.File(path) as file, refused(SourceError, key="/a"):
            list(read_rows({("a",): file["a"]}))


def test_rows_that_are_left_wait_for_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be collected where a thread begins, which waits forever for another one."""
    waited, shutdown = [], ThreadPoolExecutor.shutdown

    def told(self: ThreadPoolExecutor, wait: bool = True, *, cancel_futures: bool = False) -> None:
        waited.append(wait)
        shutdown(self, wait, cancel_futures=cancel_futures)

    monkeypatch.setattr(ThreadPoolExecutor, "shutdown", told)
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        file.create_dataset("a", data=np.arange(200_000.0), chunks=(1000,), compression="gzip")
        rows = read_rows({("a",): file["a"]})
        assert len(next(rows)["a",]) < 200_000
        rows.close()
    assert waited == [False]


def test_the_names_of_many_groups_do_not_fill_memory(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        for number in range(1000):
            file[f"episode_{number}/actions"] = np.zeros(3)
    with open_hdf5(tmp_path / "a.hdf5") as file:
        cached = file.id.get_mdc_size()[2]
        assert 0 < cached <= 1 << 20 and file["episode_999/actions"].shape == (3,)


FILES = sorted((TEST_DATA / "d4rl").rglob("*.hdf5")) + sorted(TEST_DATA.glob("robomimic/*.hdf5"))


def outcome(read: Callable[[], object]) -> str:
    """Return what reading ends with in a process of its own: 0, or a signal, or another error."""
    if (pid := os.fork()) == 0:
        code = 9
        try:
            signal.alarm(60)
            read()
            code = 0
        except RldsError as error:
            code = 1 if isinstance(error, SourceError) else 2
        finally:
            os._exit(code)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return {0: "read", 1: "SourceError", 2: "RldsError", 9: "foreign error"}.get(
        status, str(status)
    )


def read_everything(path: Path) -> None:
    found = recognise(path)
    assert found is not None
    for _ in blocks(path, found.map):
        pass


def chunked(path: Path, **options: object) -> bytes:
    """Write 100 chunks, whose tree has two levels; return the file's bytes."""
    values = np.arange(40_000.0).reshape(20_000, 2)
    with h5py.File(path, "w") as file:
        file.create_dataset("rewards", data=values, chunks=(200, 2), **options)
    return path.read_bytes()


def circle(data: bytes) -> tuple[int, bytes]:
    root = data.index(b"TREE\1\1")
    return root + 24 + 32, struct.pack("<Q", root)


def cut_chunk(data: bytes) -> tuple[int, bytes]:
    return data.index(struct.pack("<IIQQ", 3200, 0, 400, 0)), struct.pack("<I", 3200 - 64)


def far_chunk(data: bytes) -> tuple[int, bytes]:
    return data.index(struct.pack("<IIQQ", 3200, 0, 400, 0)) + 32, struct.pack("<Q", 1 << 33)


def chunk_of_another(data: bytes) -> tuple[int, bytes]:
    at = data.index(struct.pack("<IIQQ", 3200, 0, 400, 0)) + 32
    return at, data[at + 40 : at + 48]


@pytest.mark.parametrize("damage", [circle, cut_chunk, far_chunk, chunk_of_another])
def test_a_damaged_tree_of_chunks_is_refused_before_libhdf5_follows_it(
    damage: Callable[[bytes], tuple[int, bytes]], tmp_path: Path
) -> None:
    data = chunked(path := tmp_path / "a.hdf5")
    at, put = damage(data)
    path.write_bytes(data[:at] + put + data[at + len(put) :])
    assert outcome(lambda: import_dataset(path, "mine/a", root=tmp_path)) == "SourceError"


def test_a_filter_that_is_not_installed_is_named(tmp_path: Path) -> None:
    data = chunked(path := tmp_path / "a.hdf5", shuffle=True)
    path.write_bytes(data.replace(b"\2\0\x08\0\1\0\1\0shuffle", b"\2\x7d\x08\0\1\0\1\0shuffle"))
    with refused(SourceError, key="a.hdf5:/rewards", found=32002), open_hdf5(path):
        pass


def test_trees_are_those_that_h5py_reports(tmp_path: Path) -> None:
    """Files with a user block, with thousands of groups, and of HDF5's newer forms are read."""
    options = [{}, {"userblock_size": 512}, {"track_order": True}, {"libver": "latest"}]
    for number, each in enumerate(options):
        with h5py.File(path := tmp_path / f"{number}.hdf5", "w", **each) as file:
            for group in range(1_000):
                file[f"group_{group}/x"] = group
            file.create_dataset("a", data=np.arange(5_000), chunks=(10,), compression="gzip")
        with open_hdf5(path) as file:
            assert file["group_999/x"][()] == 999
            assert (file["a"][:] == np.arange(5_000)).all()


def in_use(path: Path) -> list[int]:
    """Return the places of the bytes that describe the data, without chunks and arrays."""
    data, values = path.read_bytes(), set[int]()

    def add(_: str, item: h5py.Dataset | h5py.Group) -> None:
        if isinstance(item, h5py.Dataset) and item.chunks:
            item.id.chunk_iter(lambda c: values.update(range(c[2], c[2] + c[3])))
        elif isinstance(item, h5py.Dataset) and (start := item.id.get_offset()) is not None:
            values.update(range(start, start + item.id.get_storage_size()))

    with h5py.File(path) as file:
        file.visititems(add)
    # Most of a tree's node is empty, and changes of it mean nothing.
    return [at for at in range(len(data)) if at not in values and any(data[at - 8 : at + 9])]


@pytest.mark.slow
def test_300_files_with_a_flipped_bit_end_no_process(tmp_path: Path) -> None:
    path, places = tmp_path / "a.hdf5", {file: in_use(file) for file in FILES}
    counts: dict[str, int] = {}
    for seed in range(300):
        generator = random.Random(seed)
        file = generator.choice(FILES)
        data, at = bytearray(file.read_bytes()), generator.choice(places[file])
        data[at] ^= 1 << generator.randrange(8)
        path.write_bytes(data)
        ended = outcome(lambda: read_everything(path))
        counts[ended] = counts.get(ended, 0) + 1
    print(counts)
    assert set(counts) <= {"read", "SourceError", "RldsError"}
