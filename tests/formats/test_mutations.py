"""Whatever the bytes of a file are, they are read or refused by an error of ours.

``make fuzz`` tries more of them. A failure that was found stays as an example.
"""

from __future__ import annotations

import gzip
import io
import os
import struct
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import cache
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import example as with_example
from hypothesis import strategies as st
from PIL import Image

from datasets_cli.errors import RldsError
from datasets_cli.formats.arff import open_arff
from datasets_cli.formats.gzip import GzipStream
from datasets_cli.formats.hdf5 import open_hdf5, read_rows
from datasets_cli.formats.images import decode_jpeg, decode_pngs
from datasets_cli.formats.limits import read_json
from datasets_cli.formats.npy import read_array
from datasets_cli.formats.tfrecord import parse_example
from datasets_cli.install.fetch import source_errors
from tests.support.unplugged_files import example

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from datasets_cli.formats.arrow import columns, read_table, to_numpy  # noqa: E402
from datasets_cli.formats.parquet import open_parquet  # noqa: E402

NUM_EXAMPLES = int(os.environ.get("RLDS_TEST_MUTATIONS", "30"))
FRAME = np.arange(64, dtype=np.uint8).reshape(8, 8)

Read = Callable[[Path], object]


@cache
def hdf5_file() -> bytes:
    file = io.BytesIO()
    with h5py.File(file, "w") as opened:
        values = np.arange(120, dtype="f4").reshape(40, 3)
        opened.create_dataset("packed", data=values, compression="gzip", chunks=(16, 2))
        opened["group/plain"] = values
        opened["text"] = ["a", "bc"] * 20
        opened.create_dataset("shuffled", data=values, compression="gzip", shuffle=True)
    return file.getvalue()


def read_hdf5(path: Path) -> object:
    with open_hdf5(path) as file:
        found: list[h5py.Dataset] = []
        file.visititems(lambda _, item: found.append(item) if hasattr(item, "dtype") else None)
        rows = {item.name: item for item in found if item.shape and len(item) == len(found[0])}
        return list(read_rows(rows)) if rows else None


@cache
def table() -> Any:
    return pa.table(
        {
            "x": np.arange(50.0),
            "text": ["a", None] * 25,
            "list": [[1, 2, 3]] * 50,
            "flag": [True, None] * 25,
            "labels": pa.array(["a", "b"] * 25).dictionary_encode(),
        }
    )


@cache
def arrow_file() -> bytes:
    file = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(file, table().schema, options=options) as opened:
        opened.write_table(table(), max_chunksize=20)
    return file.getvalue()


@cache
def parquet_file() -> bytes:
    file = io.BytesIO()
    pq.write_table(table(), file, row_group_size=20)
    return file.getvalue()


def read_arrow(path: Path, form: str = "arrow") -> object:
    return [to_numpy(column.values) for column in columns(read_table([path], form))]


def read_parquet(path: Path) -> object:
    read_arrow(path, "parquet")
    return None


def read_labels(path: Path) -> object:
    with open_parquet(path, [None, ["a"], None, None, []]) as parquet:
        return list(parquet.blocks([0, 1, 3, 4]))


@cache
def arff_file() -> bytes:
    rows = "1.5,'b, c'\n?,a\n{0 2}\n2\td % x\n"
    return f"@relation t\n@attribute x real\n@attribute c {{a,'b, c',d}}\n@data\n{rows}".encode()


def read_arff(path: Path) -> object:
    with open_arff(path) as arff:
        wanted = [i for i, column in enumerate(arff.attributes) if column.kind != "text"]
        return list(arff.blocks(wanted))


@cache
def npy_file() -> bytes:
    file = io.BytesIO()
    np.save(file, np.arange(50, dtype=np.int32))
    return file.getvalue()


def read_npy(path: Path) -> object:
    packed = path.with_suffix(".gz")
    packed.write_bytes(gzip.compress(path.read_bytes(), 1))
    return read_array(packed, "int32", (None,))


def read_gzip(path: Path) -> object:
    with GzipStream(path) as stream:
        return stream.read(1 << 20)


@cache
def png_file(mode: str = "L") -> bytes:
    file = io.BytesIO()
    Image.fromarray(FRAME).convert(mode).save(file, "PNG")
    return file.getvalue()


def read_png(path: Path) -> object:
    return decode_pngs([memoryview(path.read_bytes())], (8, 8), "a file")


@cache
def jpeg_file() -> bytes:
    file = io.BytesIO()
    Image.fromarray(FRAME).save(file, "JPEG")
    return file.getvalue()


@cache
def message() -> bytes:
    numbers = np.arange(5)
    return example({"a": numbers, "b": numbers.astype(np.float32), "c": [b"x", b""]})


TARGETS: dict[str, tuple[Callable[[], bytes], Read]] = {
    "hdf5": (hdf5_file, read_hdf5),
    "arrow": (arrow_file, read_arrow),
    "parquet": (parquet_file, read_parquet),
    "parquet with labels": (parquet_file, read_labels),
    "arff": (arff_file, read_arff),
    "npy": (npy_file, read_npy),
    "gzip": (lambda: gzip.compress(npy_file()), read_gzip),
    "png": (png_file, read_png),
    "png of a palette": (lambda: png_file("P"), read_png),
    "jpeg": (jpeg_file, lambda path: decode_jpeg(np.fromfile(path, np.uint8), "a file")),
    "tf.train.Example": (message, lambda path: parse_example(path.read_bytes(), "a record")),
    "json": (
        lambda: b'{"a": [1, 2.5e3, "x", null], "b": {"c": [[]]}}',
        lambda path: read_json(path.read_bytes(), "a file"),
    ),
}

Edit = tuple[int, bytes, int]
"""Where, which bytes are put there, and how many are taken away."""

EDGES = [0, 1, -1, 127, 255, 256, 1 << 15, 1 << 16, (1 << 31) - 1, 1 << 31, 1 << 40, -(1 << 62)]
NUMBERS = [struct.pack("<q", number)[:size] for number in EDGES for size in (1, 2, 4, 8)]


def edits() -> st.SearchStrategy[list[Edit]]:
    put = st.one_of(st.binary(max_size=8), st.sampled_from(NUMBERS))
    return st.lists(st.tuples(st.integers(0, 1 << 16), put, st.integers(0, 9)), max_size=4)


def mutated(data: bytes, changes: list[Edit]) -> bytes:
    for place, put, num_taken in changes:
        at = place % (len(data) + 1)
        # Mostly in place, so that what follows stays where it is.
        data = data[:at] + put + data[at + (len(put) if num_taken < 7 else num_taken) :]
    return data


@pytest.mark.parametrize("target", TARGETS)
@settings(
    max_examples=NUM_EXAMPLES,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize="RLDS_TEST_MUTATIONS" not in os.environ,
)
@given(changes=edits())
@with_example(changes=[(1538, b"\0", 0), (1770, b"\0\0\0\x80", 0)])  # pyarrow 26 ended the process
@with_example(changes=[(1542, b"w\xa4F\xe3\x14\xc1", 0)])  # a name of a column that is not UTF-8
def test_a_mutated_file_is_read_or_refused(
    target: str, changes: list[Edit], tmp_path: Path
) -> None:
    make, read = TARGETS[target]
    path = tmp_path / "file"
    path.write_bytes(mutated(make(), changes))
    with suppress(RldsError), in_a_recipe(target):
        read(path)


def in_a_recipe(target: str) -> Any:
    """Return where a reader runs: what h5py and numpy raise is made ours in one place."""
    return source_errors("an id") if target == "hdf5" else nullcontext()
