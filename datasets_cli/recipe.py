"""A recipe: which files make a dataset of one family, and how to read them.

This is the one module that a recipe imports. A recipe is a frozen object of plain functions:

    datasets(web)             -> rows of the catalogue; web is None for the rows that ship with it
    resources(name, web)      -> the remote files of one dataset
    blocks(source)            -> the files' content as a stream of bounded Blocks, in TED names
    describe(source)          -> what the publisher says of it, for the manifest

The core does everything else: ids, downloads, checks, the successor rule, episodes, root flags,
files, commit.
"""

from __future__ import annotations

import csv
import itertools
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets_cli.errors import AccessError, SourceError, UsageError
from datasets_cli.sources.resource import HDF5_MAGIC, Content, Resource, Web
from datasets_cli.store.columns import DTYPES, RESERVED_NAMES, Key

if TYPE_CHECKING:
    import h5py
    import numpy as np

__all__ = [
    "CUT",
    "HDF5_MAGIC",
    "AccessError",
    "Block",
    "Content",
    "Description",
    "Key",
    "Recipe",
    "Resource",
    "Row",
    "Source",
    "SourceError",
    "UsageError",
    "Web",
    "can_store",
    "open_hdf5",
    "read_rows",
    "read_tsv",
    "rows_per_block",
]

CUT: Key = ("cut",)
"""A bool column of a Block that marks the last row of a trajectory which no flag ends."""

BLOCK_ROWS = 65_536
BLOCK_BYTES = 8 << 20
MAX_BAND_BYTES = 64 << 20
MAX_THREADS = 4


@dataclass(frozen=True)
class Row:
    """One dataset of the catalogue.

    Args:
        name: the id without the family.
        size: bytes to download, or None where unknown.
        num_transitions: steps that the publisher states, or None.
        num_trajectories: episodes that the publisher states, or None.
        details: anything else worth showing in ``rlds info``.
    """

    name: str
    size: int | None = None
    num_transitions: int | None = None
    num_trajectories: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Source:
    """What a recipe reads.

    Args:
        name: the dataset's name within its family.
        files: ``{resource filename: local path}``.
        row: its row of the catalogue, or None for an unlisted dataset given by ``--source``.
        options: the options of the conversion.
    """

    name: str
    files: Mapping[str, Path]
    row: Row | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Block:
    """A run of rows in TED names.

    Args:
        columns: ``{key: array [n, ...]}`` with one leading dimension: ``observation``, ``action``
            (or keys below them), ``("next", "reward")`` ``[n]`` or ``[n, 1]``, and where known
            ``("next", "terminated")``, ``("next", "truncated")``, ``("next", "observation")``,
            ``info``, ``("next", "info")``, and ``CUT``.
        start: the first output row, where a source cannot be read in order; such a block must bring
            ``("next", "observation")``.
    """

    columns: Mapping[Key, np.ndarray]
    start: int | None = None


@dataclass(frozen=True)
class Description:
    """What a recipe knows about one dataset beside its rows.

    Args:
        metadata: JSON values for the manifest.
        notes: lines that a person should see: known traps, skipped fields.
        files: ``{name: bytes}`` of small extra files to lay beside the data.
    """

    metadata: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Recipe:
    """One family of datasets.

    Args:
        family: first part of every id.
        version: raised whenever the same source files would convert to other values.
        title: one line for people.
        licence: of the data, as the publisher states it.
        citation: how to cite the data.
        homepage: where the publisher describes it.
        datasets: the catalogue; given None it returns the rows that ship with the package.
        resources: the files of one dataset.
        blocks: the content of those files.
        describe: metadata and notes; called before ``blocks``.
        unlisted: whether ``--source`` may name a dataset that is not in the catalogue.
        dynamic: whether ``datasets`` can ask the publisher for a newer catalogue.
    """

    family: str
    version: int
    title: str
    licence: str
    citation: str
    homepage: str
    datasets: Callable[[Web | None], Iterable[Row]]
    resources: Callable[[str, Web | None], list[Resource]]
    blocks: Callable[[Source], Iterator[Block]]
    describe: Callable[[Source], Description] = lambda source: Description()
    unlisted: bool = False
    dynamic: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the manifest's entry."""
        return {
            "family": self.family,
            "version": self.version,
            "licence": self.licence,
            "citation": self.citation,
            "homepage": self.homepage,
        }


def read_tsv(path: Path) -> list[dict[str, str]]:
    """Return the rows of a tab-separated table with a header line."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def rows_per_block(row_bytes: int) -> int:
    """Return how many rows of so many bytes a Block may have."""
    return max(1, min(BLOCK_ROWS, BLOCK_BYTES // max(1, row_bytes)))


def can_store(key: Key, dtype: np.dtype) -> bool:
    """Tell whether a dataset can have a leaf of this key and element type."""
    return dtype.newbyteorder("=").name in DTYPES and not RESERVED_NAMES.intersection(key)


def open_hdf5(path: Path) -> h5py.File:
    """Open an HDF5 file for reading after checking that it holds all its data itself.

    A downloaded file could otherwise point at other files of this disk through external links,
    external raw storage, virtual datasets, or soft links that lead out of its tree.

    Raises:
        SourceError: it is not a whole HDF5 file, or refers to anything outside itself.
    """
    import h5py

    try:
        # The chunk cache holds a row of chunks of a wide array, so that blocks of rows which do
        # not end at a chunk border do not decompress a chunk twice.
        file = h5py.File(path, "r", rdcc_nbytes=4 << 20)
    except OSError as error:
        raise SourceError(
            f"{path.name} is not a whole HDF5 file ({error}). Download it again, or check --source."
        ) from error
    try:
        _refuse_outside_references(file, seen=set())
    except BaseException:
        file.close()
        raise
    return file


def _refuse_outside_references(group: h5py.Group, seen: set[int]) -> None:
    import h5py

    address = h5py.h5o.get_info(group.id).addr
    if address in seen:  # hard links may form a circle
        return
    seen.add(address)
    for name in group:
        link = group.get(name, getlink=True)
        where = f"{Path(group.file.filename).name}:{group.name.rstrip('/')}/{name}"
        if not isinstance(link, h5py.HardLink):
            raise SourceError(
                f"{where} is a {type(link).__name__}. Expected data inside the file itself; links "
                "are refused because they could read other files of this disk."
            )
        item = group[name]
        if isinstance(item, h5py.Group):
            _refuse_outside_references(item, seen)
        elif isinstance(item, h5py.Dataset) and (item.external or item.is_virtual):
            raise SourceError(
                f"{where} keeps its data in another file. Expected data inside the file itself."
            )


def read_rows(datasets: Mapping[Key, h5py.Dataset]) -> Iterator[dict[Key, np.ndarray]]:
    """Yield equally long HDF5 datasets as the columns of one Block after another, in order.

    HDF5 decompresses in one thread, and that is most of the time of a conversion. Gzip-compressed
    chunks, the usual case, are decompressed here in several threads, one block ahead.
    """
    total = len(next(iter(datasets.values())))
    step = rows_per_block(sum(_row_bytes(dataset) for dataset in datasets.values()))
    with ThreadPoolExecutor(min(MAX_THREADS, os.cpu_count() or 1)) as pool:
        ahead = {key: _GzipRows(item, pool) for key, item in datasets.items() if _is_gzip(item)}
        for reader in ahead.values():
            reader.start(min(step, total))
        for start in range(0, total, step):
            stop = min(start + step, total)
            block = {
                key: ahead[key].take(stop - start) if key in ahead else item[start:stop]
                for key, item in datasets.items()
            }
            for reader in ahead.values():
                reader.start(min(stop + step, total))
            yield block


class _GzipRows:
    """Reads one gzip-compressed dataset in order, every chunk once.

        rows taken so far | rest: decompressed, not taken | fresh: under way | untouched
                                                          row                end (a chunk border)

    Chunks may be narrower than a row: h5py cuts ``[1000000, 17]`` into ``[15625, 1]``.
    """

    def __init__(self, dataset: h5py.Dataset, pool: ThreadPoolExecutor) -> None:
        import numpy as np

        self._dataset = dataset
        self._pool = pool
        self._zlib = _fastest_zlib()
        self._row = 0
        self._rows = np.empty((0, *dataset.shape[1:]), dataset.dtype)
        self._tasks: list[Future[None]] = []

    def start(self, stop: int) -> None:
        """Begin to decompress what is missing of the rows before ``stop``."""
        import numpy as np

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
        """Return the next rows; ``start`` has begun them."""
        for task in self._tasks:
            task.result()
        self._tasks.clear()
        rows, self._rows = self._rows[:num_rows], self._rows[num_rows:]
        return rows

    def _decompress(
        self, parts: list[tuple[Any, int, bytes]], chunk: tuple[int, ...], band: np.ndarray
    ) -> None:
        """Fill a band of rows from its chunks; those at the dataset's edge reach beyond it."""
        import numpy as np

        size = math.prod(chunk) * band.dtype.itemsize
        for corner, unfiltered, data in parts:
            values = data if unfiltered else self._inflate(data, size)
            if len(values) != size:
                raise self._damaged(f"it has {len(values)} of {size} bytes")
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
            raise self._damaged(f"its end is missing, or it has more than {size} bytes")
        return values

    def _damaged(self, why: str) -> SourceError:
        return SourceError(f"{self._dataset.name} has a damaged chunk: {why}.")


def _is_gzip(dataset: h5py.Dataset) -> bool:
    """Tell whether ``_GzipRows`` reads it: gzip and no other filter, all chunks there, not huge."""
    import h5py

    filters = dataset.id.get_create_plist()
    return (
        dataset.chunks is not None
        and filters.get_nfilters() == 1
        and filters.get_filter(0)[0] == h5py.h5z.FILTER_DEFLATE
        and dataset.dtype.kind in "biufc"
        and dataset.id.get_type().equal(h5py.h5t.py_create(dataset.dtype))
        and dataset.chunks[0] * _row_bytes(dataset) <= MAX_BAND_BYTES
        and dataset.id.get_num_chunks()
        == math.prod(math.ceil(n / c) for n, c in zip(dataset.shape, dataset.chunks, strict=True))
    )


def _row_bytes(dataset: h5py.Dataset) -> int:
    return int(math.prod(dataset.shape[1:]) * dataset.dtype.itemsize)


def _fastest_zlib() -> Any:
    """Return isal's zlib where it is installed (the extra ``fast``), or Python's own."""
    try:
        from isal import isal_zlib
    except ImportError:
        import zlib

        return zlib
    return isal_zlib
