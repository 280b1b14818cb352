"""Checks of an HDF5 file before its values are read: links, chunks and texts of variable length.

Each link must lead to data inside the file. HDF5 lists the chunks of a read, with some 6,500 bytes
for each, before it reads one. Rows of texts of variable length are references:

    reference    length uint32 | address of the heap | number in it uint32

Any number of rows can refer to the same bytes, and HDF5 copies them for each row: rows of 16 bytes
become gigabytes. So the lengths are added up before the values are read.

libhdf5 follows version-1 trees of groups and chunks without noticing a circle, and copies a chunk's
full size from a smaller buffer. Both crash the process, so the trees are walked here first:

    object header    messages: type, size, flags, body; a continuation leads to more of them
    node of a tree   TREE | kind uint8 | level uint8 | entries uint16 | siblings | key, child, ...
    key of a chunk   stored bytes uint32 | skipped filters uint32 | first row and columns uint64 ...

Newer structures have checksums, which libhdf5 checks.
"""

from __future__ import annotations

import math
import os
import struct
from array import array
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

from datasets_cli.errors import SourceError
from datasets_cli.formats.limits import check_limit, limit

SHOWN = 200
"""The number of a path's characters in messages."""
CHUNK_BYTES = 6_500
"""The memory of HDF5 for each chunk in the list of a read."""
_REFERENCE_BYTES = 16

_UNDEFINED = (1 << 64) - 1
_CONTINUATION, _LAYOUT, _SYMBOL_TABLE = 0x10, 0x08, 0x11
_MOST_HEADER_BYTES = 1 << 24
_KEEP_SIZE = {h5py.h5z.FILTER_SHUFFLE: 0, h5py.h5z.FILTER_FLETCHER32: 4}
"""The number of bytes that a filter adds to a chunk, if it is fixed."""

_LINKS = {h5py.h5l.TYPE_SOFT: "a SoftLink", h5py.h5l.TYPE_EXTERNAL: "an ExternalLink"}


class HDF5Check:
    """A check of all links and objects of a file.

    It uses h5py's low-level interface, because a file may have 200,000 links.

    Args:
        filename: for messages.
        file: the open file.
    """

    def __init__(self, filename: str, file: h5py.File) -> None:
        self._filename = filename
        self._root = file.id
        self._trees = _Trees(filename, file.id.get_vfd_handle(), file.userblock_size)
        self._seen: set[int] = set()

    def check(self) -> None:
        """Check every object of the file.

        Raises:
            SourceError: a tree is damaged, data are outside the file, or beyond a limit.
        """
        address = self._trees.root()
        self._seen.add(address)
        self._trees.chunks(address)
        self.check_group(self._root, f"{self._filename}:")
        self._trees.check_overlap()

    def check_group(self, group: h5py.h5g.GroupID, where: str, nesting: int = 0) -> None:
        """Check the objects below a group, each once.

        Raises:
            SourceError: data are outside the file, or beyond a limit.
        """
        check_limit("nesting", nesting, _short(where))
        for name, kind, address in _links(group):
            path = f"{where}/{name.decode(errors='replace')}"
            if kind != h5py.h5l.TYPE_HARD:
                link = _LINKS.get(kind, "a link of an unknown kind")
                raise SourceError(
                    f"{_short(path)} is {link}; expected data inside the file. Links are rejected: "
                    "they could lead to other files on this disk.",
                    path=self._filename,
                    key=name.decode(errors="replace"),
                    expected="data inside the file",
                    found=link,
                )
            if address in self._seen:  # hard links may form a circle
                continue
            self._seen.add(address)
            chunks = self._trees.chunks(address)
            item = h5py.h5o.open(group, name)
            if isinstance(item, h5py.h5g.GroupID):
                self.check_group(item, path, nesting + 1)
            elif isinstance(item, h5py.h5d.DatasetID):
                _check_dataset(item, path, chunks)


def _links(group: h5py.h5g.GroupID) -> list[tuple[bytes, int, int]]:
    """Return name, kind and address of each link of a group."""
    links: list[tuple[bytes, int, int]] = []

    def add(name: bytes, info: Any) -> None:
        links.append((name, info.type, info.u))

    group.links.iterate(add, info=True)
    return links


def _short(path: str) -> str:
    """Return a path for messages, shortened in the middle."""
    return path if len(path) <= SHOWN else f"{path[: SHOWN // 2]}...{path[-SHOWN // 2 :]}"


class _Trees:
    """The version-1 trees of an open file, read without libhdf5. Addresses count from ``base``."""

    def __init__(self, filename: str, descriptor: int, base: int) -> None:
        self._filename = filename
        self._descriptor = descriptor
        self._base = base
        self._size = os.fstat(descriptor).st_size - base
        self._nodes: set[int] = set()
        self._extents = array("Q")  # address and size of each chunk

    def root(self) -> int:
        """Return the address of the root group's object header, from the superblock."""
        head = self._read(0, 96)
        version, widths = head[8], head[13:15] if head[8] < 2 else head[9:11]
        if widths != b"\x08\x08":
            problem = f"its addresses have {widths[0]} bytes; expected 8"
            raise self._damaged(problem, expected=8, found=widths[0])
        return _number(head, {0: 64, 1: 68}.get(version, 36))

    def chunks(self, address: int) -> set[tuple[int, int, int]]:
        """Return stored bytes, skipped filters and unpacked bytes of an object's chunks."""
        found: set[tuple[int, int, int]] = set()
        for kind, body in self._messages(address):
            if kind == _SYMBOL_TABLE:
                for _ in self._leaves(_number(body, 0), 0, 8):
                    pass  # walking it is the check
            elif kind == _LAYOUT and body[0] < 4 and body[2 if body[0] < 3 else 1] == 2:
                rank, at = (body[1], 8) if body[0] < 3 else (body[2], 3)
                unpacked = math.prod(struct.unpack_from(f"<{rank}I", body, at + 8))
                for key, chunk in self._leaves(_number(body, at), 1, 8 + 8 * rank):
                    size, skipped = struct.unpack_from("<II", key)
                    if chunk + size > self._size:
                        problem = "a chunk ends beyond the end of the file"
                        raise self._damaged(problem, expected=self._size, found=chunk + size)
                    found.add((size, skipped, unpacked))
                    self._extents.extend((chunk, size))
        return found

    def check_overlap(self) -> None:
        """Reject a file with overlapping chunks."""
        extents = np.frombuffer(self._extents, np.uint64).reshape(-1, 2)
        extents = extents[np.argsort(extents[:, 0])]
        if (extents[1:, 0] < extents[:-1].sum(1)).any():
            raise self._damaged("two chunks overlap")

    def _messages(self, address: int) -> Iterator[tuple[int, bytes]]:
        """Yield type and body of each message of an object header."""
        head = self._read(address, 32)
        is_new = head[:4] == b"OHDR"  # type uint8, size, flags, order uint16 where bit 2 is set
        if is_new:
            start = 6 + bool(head[5] & 32) * 16 + bool(head[5] & 16) * 4
            width, prefix = 1 << (head[5] & 3), 6 if head[5] & 4 else 4
            spans = [(address + start + width, int.from_bytes(head[start:][:width], "little"))]
        else:
            spans, prefix = [(address + 16, int.from_bytes(head[8:12], "little"))], 8
        for start, size in spans:  # grows
            if size > _MOST_HEADER_BYTES or len(spans) > _MOST_HEADER_BYTES >> 12:
                raise self._damaged("an object header does not end")
            data = self._read(start, size)
            if is_new and data[:4] == b"OCHK":
                data = data[4:-4]
            at = 0
            while at + prefix <= len(data):
                kind, length = struct.unpack_from("<BH" if is_new else "<HH", data, at)
                body, at = data[at + prefix :][:length], at + prefix + length
                if kind == _CONTINUATION:
                    spans.append((_number(body, 0), _number(body, 8)))
                elif kind in (_LAYOUT, _SYMBOL_TABLE):
                    yield kind, body.ljust(1100, b"\0")

    def _leaves(self, root: int, kind: int, key_bytes: int) -> Iterator[tuple[bytes, int]]:
        """Yield key and child of each leaf entry of a tree, in which each node occurs once."""
        nodes = [] if root == _UNDEFINED else [root]
        while nodes:
            address = nodes.pop()
            head = self._read(address, 24)
            if head[:4] != b"TREE" or head[4] != kind or address in self._nodes:
                raise self._damaged("a tree of its groups or chunks is not valid")
            self._nodes.add(address)
            size = int.from_bytes(head[6:8], "little") * (key_bytes + 8)
            for key, child in struct.iter_unpack(f"<{key_bytes}sQ", self._read(address + 24, size)):
                if head[5]:
                    nodes.append(child)
                else:
                    yield key, child

    def _read(self, address: int, size: int) -> bytes:
        if address + size > self._size:
            problem = "it refers to bytes beyond its end"
            raise self._damaged(problem, expected=self._size, found=address + size)
        return os.pread(self._descriptor, size, self._base + address)

    def _damaged(self, why: str, **details: Any) -> SourceError:
        return SourceError(
            f"{self._filename} is damaged: {why}.",
            path=self._filename,
            **details,
            advice="Download it again, or copy an undamaged file.",
        )


def _number(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _check_dataset(item: h5py.h5d.DatasetID, path: str, chunks: set[tuple[int, int, int]]) -> None:
    """Reject data in other files, and chunks that are damaged or beyond the limits."""
    made = item.get_create_plist()
    layout = made.get_layout()
    if layout == h5py.h5d.VIRTUAL or made.get_external_count():
        raise SourceError(
            f"{_short(path)} stores its data in another file; expected data inside the file.",
            key=path,
            expected="data inside the file",
        )
    if layout == h5py.h5d.CHUNKED:
        # HDF5 decompresses a whole chunk, and lists all chunks of a read.
        chunk = made.get_chunk()
        size = math.prod(chunk) * item.get_type().get_size()
        shown = _short(path)
        check_limit("table_bytes", size, f"a chunk of {shown}")
        list_bytes = chunks_beside(item.shape, chunk) * CHUNK_BYTES
        check_limit("row_bytes", list_bytes, f"the list of the chunks of a row of {shown}")
        _check_filters(made, path, chunks)


def _check_filters(made: h5py.h5p.PropDCID, path: str, chunks: set[tuple[int, int, int]]) -> None:
    """Reject filters that are not installed, and chunks of an impossible size."""
    filters = [made.get_filter(number) for number in range(made.get_nfilters())]
    for code, _, _, name in filters:
        if not h5py.h5z.filter_avail(code):
            raise SourceError(
                f"{_short(path)} is compressed with filter {code} "
                f"({name.decode(errors='replace')}), which is not installed. A damaged file may "
                "name any filter.",
                key=path,
                expected="gzip or no compression",
                found=code,
                advice="Import the package of the filter, or compress the file with gzip.",
            )
    for stored, skipped, unpacked in chunks:
        used = [code for number, (code, *_) in enumerate(filters) if not skipped >> number & 1]
        if not _KEEP_SIZE.keys() >= {*used}:
            continue  # compressed data may have any size
        if stored != (expected := unpacked + sum(map(_KEEP_SIZE.__getitem__, used))):
            raise SourceError(
                f"{_short(path)} has a damaged chunk: expected {expected:,} bytes, "
                f"found {stored:,}.",
                key=path,
                expected=expected,
                found=stored,
                advice="Download the file again.",
            )


def chunks_beside(shape: tuple[int, ...], chunk: tuple[int, ...]) -> int:
    """Return the number of chunks that one row crosses."""
    pairs = zip(shape[1:], chunk[1:], strict=True)
    return math.prod(math.ceil(size / width) for size, width in pairs)


def rows_per_read(shape: tuple[int, ...], chunk: tuple[int, ...] | None) -> int:
    """Return the number of rows to read at once, at least one.

    Args:
        shape: the shape of the array.
        chunk: the shape of its chunks; None if it is not chunked.
    """
    if chunk is None:
        return max(1, shape[0])
    most_chunks = limit("row_bytes") // CHUNK_BYTES
    return max(1, most_chunks // max(1, chunks_beside(shape, chunk))) * chunk[0]


def read_array(dataset: h5py.Dataset, start: int, stop: int) -> np.ndarray:
    """Return rows of an array, ``[stop - start, ...]``, read a few chunks at a time."""
    stop = min(stop, dataset.shape[0])
    step = rows_per_read(dataset.shape, dataset.chunks)
    if stop - start <= step:
        return np.asarray(dataset[start:stop])
    rows = np.empty((stop - start, *dataset.shape[1:]), dataset.dtype)
    for first in range(start, stop, step):
        last = min(first + step, stop)
        rows[first - start : last - start] = dataset[first:last]
    return rows


def is_variable_length(dataset: h5py.Dataset) -> bool:
    """Return whether the values of a dataset have variable length."""
    return h5py.check_vlen_dtype(dataset.dtype) is not None


def read_texts(dataset: h5py.Dataset, start: int, stop: int) -> np.ndarray:
    """Return rows of values of variable length, objects ``[stop - start, ...]``.

    Raises:
        SourceError: their total size is beyond the limit.
    """
    lengths = _lengths(dataset, start, stop)
    if lengths is not None:
        check_limit("text_bytes", int(lengths.sum()), _where(dataset, start))
        return np.asarray(dataset[start:stop])
    # A value is not larger than the file.
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
    """Return the length of each value, uint32 ``[n]``; None for scattered references."""
    first, file = dataset.id.get_offset(), dataset.file
    # Another driver has no file; other sizes of addresses are other references.
    is_plain = file.driver == "sec2" and file.userblock_size == 0
    is_whole = dataset.id.get_storage_size() == dataset.size * _REFERENCE_BYTES
    if first is None or not (is_plain and is_whole):
        return None
    row_bytes = math.prod(dataset.shape[1:]) * _REFERENCE_BYTES
    data = os.pread(
        file.id.get_vfd_handle(), max(0, stop - start) * row_bytes, first + start * row_bytes
    )
    return np.frombuffer(data[: len(data) // 16 * 16], "<u4")[:: 16 // 4]
