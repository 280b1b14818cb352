"""Arrays as numpy saves them: what is read, what is refused, and by which words."""

from __future__ import annotations

import gzip
import io
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datasets_cli.errors import SourceError
from datasets_cli.formats.npy import read_array, read_rows, read_shape
from tests.support.refusals import check_refused, refused

VALUES = np.arange(24, dtype="<f4").reshape(6, 4)
READERS: dict[str, Callable[[Path], Any]] = {
    "whole": lambda path: read_array(path, "<f4", (None, 4)),
    "rows": lambda path: np.concatenate(list(read_rows(path, "<f4", (None, 4)))),
}


def saved(values: Any, **options: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, values, **options)
    return stream.getvalue()


def header(text: str, data: bytes = b"") -> bytes:
    """Return a file of version 1.0 with any header."""
    padded = text.encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded + data


def described(shape: str, descr: str = "'<f4'", order: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}"


class Payload:
    """Makes a folder when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return Path.mkdir, (self.marker,)


REFUSED: dict[str, tuple[bytes, str]] = {
    "an array of objects": (
        saved(np.array([{}, None], object), allow_pickle=True),
        r"expected <f4 \[n, 4\], found object",
    ),
    "a pickle": (pickle.dumps([1, 2]), "is not a numpy array"),
    "10^12 rows": (header(described("(1000000000000, 4)"), b"x" * 96), "claims an array"),
    "a negative length": (header(described("(-1, 4)"), b"x" * 96), "found float32"),
    "a product beyond 2^64": (
        header(described("(4611686018427387904, 4)"), b"x" * 96), "claims an array"
    ),
    "an array in Fortran order": (saved(np.asfortranarray(VALUES)), "in Fortran order"),
    "the other byte order": (saved(VALUES.astype(">f4")), "found >f4"),
    "another dtype": (saved(VALUES.astype("f8")), "found float64"),
    "another width": (saved(VALUES[:, :3]), r"found float32 \[6, 3\]"),
    "a header that calls": (header(described("__import__('os').getcwd()")), "is not a numpy array"),
    "a header of 60 kB": (b"\x93NUMPY\x01\x00\x60\xea" + b" " * 60_000, "its header has 60,000"),
    "brackets in brackets": (header("(" * 110), "is not a numpy array"),
    "a header of 4 GB": (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "its header has 4,294,967,295"),
    "no rows where some are said": (saved(VALUES)[:128], "expected 96 bytes"),
    "a row too few": (saved(VALUES)[:-16], "expected 96 bytes"),
    "a byte too many": (saved(VALUES) + b"x", "found more"),
}  # fmt: skip


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_what_numpy_saves_is_read(read: Callable[[Path], Any], tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(saved(VALUES)))
    found = read(path)
    assert found.dtype == VALUES.dtype and found.tobytes() == VALUES.tobytes()


def test_what_is_no_such_array_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    for data, words in REFUSED.values():
        path.write_bytes(gzip.compress(data))
        calls = [(words, partial(read, path)) for read in READERS.values()]
        assert all("a.gz" in str(error) for error in check_refused(SourceError, calls))


def test_a_payload_in_an_array_of_objects_does_not_run(tmp_path: Path) -> None:
    marker, path = tmp_path / "marker", tmp_path / "a.gz"
    data = saved(np.array([Payload(marker)] * 4, object), allow_pickle=True)
    np.load(io.BytesIO(data), allow_pickle=True)  # it does run where it is unpickled
    marker.rmdir()
    path.write_bytes(gzip.compress(data))
    for read in (*READERS.values(), lambda path: read_shape(path, "<f4", (None, 4))):
        with refused(SourceError, found="object [4]"):
            read(path)
    assert not marker.exists()
