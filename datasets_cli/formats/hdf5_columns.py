"""The columns of an HDF5 file, by their paths below its root or a group."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from datasets_cli.errors import WrongRows
from datasets_cli.formats.hdf5 import read_range, read_rows
from datasets_cli.formats.limits import beyond, limit
from datasets_cli.schema.columns import Key, show_key
from datasets_cli.schema.texts import TEXT, encode_text


def datasets_below(group: h5py.Group, what: str) -> dict[str, h5py.Dataset]:
    """Return the datasets in a group and all groups below it, by path; each object once."""
    found: dict[str, h5py.Dataset] = {}
    most = limit("columns")

    def visit(path: str, item: Any) -> bool | None:
        if isinstance(item, h5py.Dataset):
            found[path] = item
        return True if len(found) > most else None  # any value ends the walk

    if group.visititems(visit):
        raise beyond("columns", inf, what)
    return found


def described(item: h5py.Dataset | np.ndarray) -> str:
    """Return the dtype and the shape of a row, as text."""
    is_words = h5py.check_string_dtype(item.dtype) or item.dtype == object
    kind = TEXT if is_words else item.dtype
    return f"{kind} {list(item.shape[1:])}"


def runs_of(
    datasets: Mapping[str, h5py.Dataset],
    what: str,
    longer: Mapping[str, h5py.Dataset] | None = None,
) -> Iterator[dict[str, np.ndarray]]:
    """Yield the rows of datasets of one length in bounded runs, text as bytes."""
    # longer: datasets with one more row, read as the rows and, one row later, their successors.
    longer, rows = longer or {}, {name: item.shape[0] for name, item in datasets.items()}
    if len(set(rows.values())) > 1:
        listed = ", ".join(f"{name} {count:,}" for name, count in rows.items())
        raise WrongRows(
            f"{what}: expected one row for each step in every dataset, found {listed}.",
            found=listed,
        )
    stop = 0
    for run in read_rows({**datasets, **longer}):
        stop += len(next(iter(run.values())))
        last = {key: read_range(item, stop, stop + 1) for key, item in longer.items()}
        run |= {f"next.{key}": np.concatenate([run[key][1:], row]) for key, row in last.items()}
        yield run


class NewFile(io.FileIO):
    """A file that hides the errors of a full disk from HDF5, which may crash on them."""

    error: OSError | None = None

    def __init__(self, path: Path) -> None:
        super().__init__(path, "x+")
        self._unwritten: list[tuple[int, bytes]] = []

    def write(self, data: Any) -> int:
        """Write all bytes; after the first error, hold them in memory until ``check`` raises it."""
        position, rest = self.tell(), memoryview(data)
        try:
            while rest and self.error is None:
                rest = rest[super().write(rest) :]
        except OSError as error:
            self.error = error
        if self.error is not None:
            self._unwritten.append((position, bytes(data)))
        return len(data)

    def readinto(self, buffer: Any) -> int:
        """Read the written bytes, and the bytes that failed to be written: HDF5 expects both."""
        position, view = self.tell(), memoryview(buffer)
        super().readinto(buffer)
        for start, data in self._unwritten:
            low, high = max(start, position), min(start + len(data), position + len(view))
            if low < high:
                view[low - position : high - position] = data[low - start : high - start]
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        """Set the size; an error is ignored, because the next write sets it again."""
        with suppress(OSError):
            return super().truncate(size)
        return size or 0

    def check(self) -> None:
        """Raise the first error of the disk."""
        if self.error is not None:
            raise self.error


@contextmanager
def new_hdf5(path: Path) -> Iterator[tuple[h5py.File, NewFile]]:
    """Create an HDF5 file; raise the errors of the disk after HDF5 has closed it."""
    with NewFile(path) as disk:
        try:
            with h5py.File(disk, "w") as file:
                yield file, disk
        finally:
            disk.check()


def as_bytes(key: Key, rows: np.ndarray) -> np.ndarray:
    """Return texts, str or bytes, as the bytes that HDF5 stores."""
    encoded = np.empty(rows.size, object)
    encoded[:] = [text if isinstance(text, bytes) else encode_text(text) for text in rows.flat]
    if any(b"\0" in data for data in encoded):
        raise WrongRows(
            f"{show_key(key)} contains text with a zero byte, which would end the text in HDF5.",
            key=key,
            advice="Choose another format, or replace the text with preprocess().",
        )
    return encoded.reshape(rows.shape)
