"""``read_rows`` gives what h5py gives, for every layout, and lets no damaged chunk pass."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets_cli.errors import SourceError
from datasets_cli.formats.hdf5 import open_hdf5, read_rows
from datasets_cli.schema import columns
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
