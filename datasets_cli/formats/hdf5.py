"""HDF5 files of publishers: checked before they are opened, and read in several threads."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Hashable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import h5py
import numpy as np

from datasets_cli.errors import RldsError, SourceError
from datasets_cli.formats.gzip import fastest_zlib
from datasets_cli.formats.hdf5_check import (
    HDF5Check,
    is_variable_length,
    read_array,
    read_texts,
    rows_per_read,
)
from datasets_cli.formats.limits import TEXT_ROW_BYTES, check_limit
from datasets_cli.schema.columns import element_type, rows_per_block

Name = TypeVar("Name", bound=Hashable)

BAND_BYTES = 64 << 20
"""The total size of the bands that are decompressed ahead; a band is a row of chunks."""
MAX_THREADS = 4
METADATA_BYTES = 1 << 20
"""The size of HDF5's own cache; by default it is up to 32 MiB."""


@contextmanager
def open_hdf5(path: Path, *, is_checked: bool = False) -> Iterator[h5py.File]:
    """Open an HDF5 file for reading after checking that all its data are inside it.

    A downloaded file could otherwise refer to other files of this disk through external links,
    external raw storage, virtual datasets or soft links. ``is_checked`` opens a file again.

    Raises:
        SourceError: it is not a complete HDF5 file (also raised inside the block), refers to data
            outside itself, or is beyond the limits.
    """
    try:
        # The chunk cache holds a row of chunks of a wide array: a block that ends inside a chunk
        # does not decompress it twice.
        with h5py.File(path, "r", rdcc_nbytes=4 << 20) as file:
            _bound_metadata(file)
            if not is_checked:
                HDF5Check(path.name, file).check()
            yield file
    except RldsError:
        raise
    except (RuntimeError, LookupError, ValueError, TypeError, OSError) as error:
        raise SourceError(
            f"{path.name} is not a complete HDF5 file ({error}). It is cut off or damaged.",
            path=path,
        ) from error


def _bound_metadata(file: h5py.File) -> None:
    """Bound the cache of names and addresses, whose memory is ten times the size HDF5 counts."""
    config = file.id.get_mdc_config()
    config.set_initial_size = True
    config.initial_size = config.min_size = config.max_size = METADATA_BYTES
    file.id.set_mdc_config(config)


def read_rows(datasets: Mapping[Name, h5py.Dataset]) -> Iterator[dict[Name, np.ndarray]]:
    """Yield the rows of equally long HDF5 datasets in order, in bounded blocks.

    HDF5 decompresses in one thread, which takes most of the time of a conversion. Gzip-compressed
    chunks, the usual case, are decompressed here in several threads, one block ahead.

    Args:
        datasets: by name.

    Yields:
        ``{name: array [n, ...]}``, with the same n for all.

    Raises:
        SourceError: a chunk is damaged, or the rows are beyond the limits.
    """
    total = len(next(iter(datasets.values())))
    row_bytes = sum(_row_bytes(dataset) for dataset in datasets.values())
    step = rows_per_block(row_bytes)
    check_rows(next(iter(datasets.values())).file, total, row_bytes)
    pool = ThreadPoolExecutor(min(MAX_THREADS, os.cpu_count() or 1))
    try:
        ahead = {key: _GzipRows(datasets[key], pool) for key in _read_ahead(datasets, step)}
        for reader in ahead.values():
            reader.start(min(step, total))
        for start in range(0, total, step):
            stop = min(start + step, total)
            block = {
                key: ahead[key].take(stop - start)
                if key in ahead
                else read_range(rows, start, stop)
                for key, rows in datasets.items()
            }
            for reader in ahead.values():
                reader.start(min(stop + step, total))
            yield block
    finally:
        # An unfinished generator may be collected in a thread that is just starting, where waiting
        # for another thread never ends. Running tasks write into memory only.
        pool.shutdown(wait=False, cancel_futures=True)


def check_rows(file: h5py.File, num_rows: int, row_bytes: int) -> None:
    """Check the claimed number and size of rows before memory or disk is spent.

    Raises:
        SourceError: a row or the number of rows is beyond the limits.
    """
    name = Path(file.filename).name
    check_limit("row_bytes", row_bytes, f"{name}: a row of all its arrays")
    check_limit("rows", num_rows, name)


def read_scalar(dataset: h5py.Dataset) -> Any:
    """Return the value of a dataset without dimensions.

    Raises:
        SourceError: it is beyond the limit of a row.
    """
    check_limit("row_bytes", dataset.dtype.itemsize, str(dataset.name))
    return dataset[()]


def read_range(dataset: h5py.Dataset, start: int, stop: int) -> np.ndarray:
    """Return the rows ``start`` to ``stop`` of a dataset."""
    if is_variable_length(dataset):
        return read_texts(dataset, start, stop)
    return read_array(dataset, start, stop)


def arrays_below(
    group: h5py.h5g.GroupID, above: str = ""
) -> Iterator[tuple[str, h5py.h5d.DatasetID]]:
    """Yield the path and handle of every array below a group."""
    # The low-level API: with 10,000 short episodes the high-level one takes three times as long.
    for name in group:
        item = h5py.h5o.open(group, name)
        path = above + name.decode(errors="surrogateescape")
        if isinstance(item, h5py.h5g.GroupID):
            yield from arrays_below(item, f"{path}/")
        elif isinstance(item, h5py.h5d.DatasetID):
            yield path, item


def read_part(group: h5py.h5g.GroupID, path: str, start: int, stop: int) -> np.ndarray:
    """Return the rows ``start`` to ``stop`` of the array at a path below a group."""
    # The low-level API: with 10,000 short episodes the high-level one takes twice as long.
    array = h5py.h5d.open(group, path.encode(errors="surrogateescape"))
    if h5py.check_vlen_dtype(array.dtype):
        return read_texts(h5py.Dataset(array), start, min(stop, array.shape[0]))
    made = array.get_create_plist()
    chunk = made.get_chunk() if made.get_layout() == h5py.h5d.CHUNKED else None
    is_whole = (start, stop) == (0, array.shape[0])
    if not is_whole or stop > rows_per_read(array.shape, chunk):
        return read_array(h5py.Dataset(array), start, stop)
    rows = np.empty(array.shape, dtype=array.dtype)
    array.read(h5py.h5s.ALL, h5py.h5s.ALL, rows)
    return rows


def problem_of(item: h5py.Dataset) -> str:
    """Return the reason why a dataset cannot be a column; empty if it can."""
    try:
        dtype = item.dtype
    except TypeError as error:  # numpy has no such type
        return f"a column cannot have its type ({error})"
    is_words = h5py.check_string_dtype(dtype) is not None
    problems = {
        "it holds references to other objects": h5py.check_ref_dtype(dtype),
        "a row has several fields; save each of them as a dataset": dtype.names,
        "its rows differ in length; save them as one array": (
            not is_words and is_variable_length(item)
        ),
        f"a column cannot have numbers of {dtype}": not is_words and element_type(dtype) is None,
        "it is empty": item.shape is None,
        "it is one value, not a column": item.shape == (),
    }
    return next((problem for problem, is_so in problems.items() if is_so), "")


def _read_ahead(datasets: Mapping[Name, h5py.Dataset], num_rows: int) -> Iterator[Name]:
    """Yield the names of datasets to decompress ahead, as far as memory for bands allows."""
    room = BAND_BYTES
    for key, dataset in datasets.items():
        band = dataset.chunks[0] * _row_bytes(dataset) if dataset.chunks else 0
        is_coarse = num_rows <= rows_per_read(dataset.shape, dataset.chunks)
        if band <= room and is_coarse and _is_gzip(dataset):
            room -= band
            yield key


class _GzipRows:
    """A reader of one gzip-compressed dataset, in order, each chunk once.

        rows taken | rest: decompressed, not taken | fresh: being decompressed | untouched
                                                   row                         end (a chunk border)

    Chunks may be narrower than a row: h5py divides ``[1000000, 17]`` into ``[15625, 1]``.
    """

    def __init__(self, dataset: h5py.Dataset, pool: ThreadPoolExecutor) -> None:
        self._dataset = dataset
        self._pool = pool
        self._zlib = fastest_zlib()
        self._row = 0
        self._rows = np.empty((0, *dataset.shape[1:]), dataset.dtype)
        self._tasks: list[Future[None]] = []

    def start(self, stop: int) -> None:
        """Start to decompress the rows before ``stop`` that are not decompressed yet."""
        if stop <= self._row:
            return
        shape, chunk = self._dataset.shape, self._dataset.chunks
        end = min(math.ceil(stop / chunk[0]) * chunk[0], shape[0])
        rest = self._rows
        self._rows = np.empty((len(rest) + end - self._row, *shape[1:]), rest.dtype)
        self._rows[: len(rest)] = rest
        fresh = self._rows[len(rest) :]
        beside = [range(0, size, width) for size, width in zip(shape[1:], chunk[1:], strict=True)]
        for row in range(self._row, end, chunk[0]):
            band = fresh[row - self._row : row - self._row + chunk[0]]
            corners = itertools.product((row,), *beside)
            parts = [(at[1:], *self._dataset.id.read_direct_chunk(at)) for at in corners]
            self._tasks.append(self._pool.submit(self._decompress, parts, chunk, band))
        self._row = end

    def take(self, num_rows: int) -> np.ndarray:
        """Return the next rows, after ``start``."""
        for task in self._tasks:
            task.result()
        self._tasks.clear()
        rows, self._rows = self._rows[:num_rows], self._rows[num_rows:]
        return rows

    def _decompress(
        self, parts: list[tuple[Any, int, bytes]], chunk: tuple[int, ...], band: np.ndarray
    ) -> None:
        """Fill a band of rows from its chunks, which may reach beyond the edge of the dataset."""
        size = math.prod(chunk) * band.dtype.itemsize
        for corner, unfiltered, data in parts:
            values = data if unfiltered else self._inflate(data, size)
            if len(values) != size:
                problem = f"it has {len(values)} of {size} bytes"
                raise self._damaged(problem, expected=size, found=len(values))
            place = (slice(i, i + width) for i, width in zip(corner, chunk[1:], strict=True))
            target = band[:, *place]
            inside = tuple(slice(width) for width in target.shape)
            target[...] = np.frombuffer(values, band.dtype).reshape(chunk)[inside]

    def _inflate(self, data: bytes, size: int) -> bytes:
        stream = self._zlib.decompressobj()
        try:
            values: bytes = stream.decompress(data, size + 1)
        except self._zlib.error as error:
            raise self._damaged(str(error)) from error
        if not stream.eof:
            problem = f"its end is missing, or it has more than {size} bytes"
            raise self._damaged(problem, expected=size)
        return values

    def _damaged(self, why: str, **details: Any) -> SourceError:
        name = self._dataset.name
        return SourceError(f"{name} has a damaged chunk: {why}.", key=name, **details)


def _is_gzip(dataset: h5py.Dataset) -> bool:
    """Return whether ``_GzipRows`` can read it: gzip is its only filter, and all chunks exist."""
    filters = dataset.id.get_create_plist()
    return (
        dataset.chunks is not None
        and filters.get_nfilters() == 1
        and filters.get_filter(0)[0] == h5py.h5z.FILTER_DEFLATE
        and dataset.dtype.kind in "biufc"
        and dataset.id.get_type().equal(h5py.h5t.py_create(dataset.dtype))
        and dataset.id.get_num_chunks()
        == math.prod(math.ceil(n / c) for n, c in zip(dataset.shape, dataset.chunks, strict=True))
    )


def _row_bytes(dataset: h5py.Dataset) -> int:
    is_text = h5py.check_string_dtype(dataset.dtype) is not None
    value_bytes = dataset.dtype.itemsize + TEXT_ROW_BYTES * is_text
    return int(math.prod(dataset.shape[1:]) * value_bytes)
