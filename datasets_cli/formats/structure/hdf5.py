"""What is read of an HDF5 file before its values: its links, its chunks, and texts in its heaps.

Each link must lead to data inside the file. HDF5 lists the chunks that a read touches, with some
6,500 bytes for each, before it reads one. Rows of texts of variable length are references:

    reference    length uint32 | address of the heap | number in it uint32

Any number of rows can refer to the same bytes, and HDF5 copies them for each: rows of 16 bytes
become gigabytes. So the lengths are added up before the values are read.
"""

from __future__ import annotations

import math
import os
import reprlib
from typing import Any

import h5py
import numpy as np

from datasets_cli.errors import SourceError
from datasets_cli.formats.limits import beyond, check_limit, limit

SHOWN = 200
"""Characters of a path that a message shows."""
_REFERENCE_BYTES = 16

_LINKS = {h5py.h5l.TYPE_SOFT: "a SoftLink", h5py.h5l.TYPE_EXTERNAL: "an ExternalLink"}


class HDF5Check:
    """Walks all links of a file by h5py's low-level interface: a file may have 200,000 of them.

    Args:
        filename: for messages.
        root: the group that all others are below.
    """

    def __init__(self, filename: str, root: h5py.h5g.GroupID) -> None:
        self._filename = filename
        self._seen: set[int] = {h5py.h5o.get_info(root).addr}
        self._num_links = 0

    def check_group(self, group: h5py.h5g.GroupID, where: str, nesting: int = 0) -> None:
        """Check what is below a group and has not been seen.

        Raises:
            SourceError: something refers to what is outside the file, or is beyond a limit.
        """
        check_limit("nesting", nesting, _short(where))
        for name, kind, address in self._links(group, where):
            path = f"{where}/{name.decode(errors='replace')}"
            if kind != h5py.h5l.TYPE_HARD:
                link = _LINKS.get(kind, "a link of an unknown kind")
                raise SourceError(
                    f"{_short(path)} is {link}. Expected data inside the file itself; links are "
                    "refused: they could read other files of this disk."
                )
            if address in self._seen:  # hard links may form a circle
                continue
            self._seen.add(address)
            item = h5py.h5o.open(group, name)
            if isinstance(item, h5py.h5g.GroupID):
                self.check_group(item, path, nesting + 1)
            elif isinstance(item, h5py.h5d.DatasetID):
                _check_dataset(item, path)

    def _links(self, group: h5py.h5g.GroupID, where: str) -> list[tuple[bytes, int, int]]:
        """Return name, kind and address of each link of a group."""
        links: list[tuple[bytes, int, int]] = []
        most = limit("entries") - self._num_links, limit("name_bytes")

        def add(name: bytes, info: Any) -> bool | None:
            links.append((name, info.type, info.u))
            # Any value ends the iteration; an error in here would be lost.
            return True if len(links) > most[0] or len(name) > most[1] else None

        group.links.iterate(add, info=True)
        for name, _, _ in links[-1:]:  # where the iteration may have ended early
            what = f"{_short(where)}: the name {reprlib.repr(name.decode(errors='replace'))}"
            check_limit("name_bytes", len(name), what)
            if len(links) > most[0]:
                raise SourceError(beyond("entries", math.inf, self._filename))
        self._num_links += len(links)
        return links


def _short(path: str) -> str:
    """Return a path for a message: names may be long, and nested."""
    return path if len(path) <= SHOWN else f"{path[: SHOWN // 2]}...{path[-SHOWN // 2 :]}"


def _check_dataset(item: h5py.h5d.DatasetID, path: str) -> None:
    """Refuse data in other files, and chunks beyond the limits."""
    made = item.get_create_plist()
    layout = made.get_layout()
    if layout == h5py.h5d.VIRTUAL or made.get_external_count():
        raise SourceError(
            f"{_short(path)} keeps its data in another file. Expected data inside the file itself."
        )
    if layout == h5py.h5d.CHUNKED:
        # HDF5 unpacks a chunk whole, and lists all that a read touches.
        chunk = made.get_chunk()
        size = math.prod(chunk) * item.get_type().get_size()
        check_limit("chunk_bytes", size, f"a chunk of {_short(path)}")
        check_limit("chunks", chunks_beside(item.shape, chunk), f"a row of {_short(path)}")


def chunks_beside(shape: tuple[int, ...], chunk: tuple[int, ...]) -> int:
    """Return how many chunks have values of one row."""
    pairs = zip(shape[1:], chunk[1:], strict=True)
    return math.prod(math.ceil(size / width) for size, width in pairs)


def rows_per_read(shape: tuple[int, ...], chunk: tuple[int, ...] | None) -> int:
    """Return how many rows are read at a time, at least one.

    Args:
        shape: of the array.
        chunk: shape of its chunks; None if it is not chunked.
    """
    if chunk is None:
        return max(1, shape[0])
    return max(1, limit("chunks") // max(1, chunks_beside(shape, chunk))) * chunk[0]


def read_array(dataset: h5py.Dataset, start: int, stop: int) -> np.ndarray:
    """Return rows of an array, ``[stop - start, ...]``, read by few chunks at a time."""
    stop = min(stop, dataset.shape[0])
    step = rows_per_read(dataset.shape, dataset.chunks)
    if stop - start <= step:
        return np.asarray(dataset[start:stop])
    rows = np.empty((stop - start, *dataset.shape[1:]), dataset.dtype)
    for first in range(start, stop, step):
        last = min(first + step, stop)
        rows[first - start : last - start] = dataset[first:last]
    return rows


def has_texts_elsewhere(dataset: h5py.Dataset) -> bool:
    """Return whether the values of a dataset are of variable length."""
    return h5py.check_vlen_dtype(dataset.dtype) is not None


def read_texts(dataset: h5py.Dataset, start: int, stop: int) -> np.ndarray:
    """Return rows of values of variable length, objects ``[stop - start, ...]``.

    Raises:
        SourceError: they have more bytes together than is read.
    """
    lengths = _lengths(dataset, start, stop)
    if lengths is not None:
        check_limit("text_bytes", int(lengths.sum()), _where(dataset, start))
        return np.asarray(dataset[start:stop])
    # No value is larger than the file.
    step = max(1, limit("text_bytes") // max(1, dataset.file.id.get_filesize()))
    rows = np.empty((max(0, stop - start), *dataset.shape[1:]), object)
    num_bytes = 0
    for row in range(0, len(rows), step):
        some = rows[row : row + step]
        some[:] = dataset[start + row : start + row + len(some)]
        num_bytes += sum(len(value) for value in some.flat)
        check_limit("text_bytes", num_bytes, _where(dataset, start))
    return rows


def _where(dataset: h5py.Dataset, start: int) -> str:
    return f"{dataset.name}, a block of rows from {start} on,"


def _lengths(dataset: h5py.Dataset, start: int, stop: int) -> np.ndarray | None:
    """Return the length of each value, uint32 ``[n]``; None where references are not in one run."""
    first, file = dataset.id.get_offset(), dataset.file
    # Another driver has no file, and other sizes of addresses would be other references.
    is_plain = file.driver == "sec2" and file.userblock_size == 0
    is_whole = dataset.id.get_storage_size() == dataset.size * _REFERENCE_BYTES
    if first is None or not (is_plain and is_whole):
        return None
    row_bytes = math.prod(dataset.shape[1:]) * _REFERENCE_BYTES
    data = os.pread(
        file.id.get_vfd_handle(), max(0, stop - start) * row_bytes, first + start * row_bytes
    )
    return np.frombuffer(data[: len(data) // 16 * 16], "<u4")[:: 16 // 4]
