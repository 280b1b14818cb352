"""Arrays among the tables of a committed dataset, such as one number a trajectory.

<root>/tables/<content>/<name>.array    32 bytes of sha256, then the values, little-endian

The digest is of what the array is as well as of its values, so that a file under another's name, or
of another shape, is no array. As every table it can be made again: what cannot be read, or is not
what was written, is as good as absent.
"""

from __future__ import annotations

import hashlib
import math
import mmap
from collections.abc import Iterable

import numpy as np

from datasets_cli.errors import DamagedDataset
from datasets_cli.sources.disk import open_regular, replacing
from datasets_cli.store.cache_root import CacheRoot

DIGEST_BYTES = 32
PIECE_BYTES = 1 << 16


def save_array(root: CacheRoot, content: str, name: str, array: np.ndarray) -> None:
    """Keep an array, in place of an older one of that name."""
    write_array(root, content, name, array.dtype, array.shape, [(0, array)])


def write_array(
    root: CacheRoot,
    content: str,
    name: str,
    dtype: np.dtype,
    shape: tuple[int, ...],
    blocks: Iterable[tuple[int, np.ndarray]],
) -> None:
    """Keep an array of which there is a block at a time, as ``save_array`` keeps a whole one."""
    row_bytes = math.prod(shape[1:]) * dtype.itemsize
    with replacing(root.tables(content) / f"{name}.array") as new, new.open("x+b") as file:
        for first, rows in blocks:
            values = np.ascontiguousarray(rows, dtype.newbyteorder("<"))
            file.seek(DIGEST_BYTES + first * row_bytes)
            file.write(values.reshape(-1).view(np.uint8).data)
        file.seek(DIGEST_BYTES)
        found = _kind(content, name, dtype, shape)
        while piece := file.read(PIECE_BYTES):
            found.update(piece)
        file.seek(0)
        file.write(found.digest())


def map_array(
    root: CacheRoot, content: str, name: str, dtype: np.dtype, shape: tuple[int, ...]
) -> np.ndarray | None:
    """Return an array, or None where there is none of this type and shape that was not changed."""
    # It is little-endian, and read from its file when used.
    # Processes that use the same one share the memory that it takes; it cannot be written.
    size = DIGEST_BYTES + math.prod(shape) * dtype.itemsize
    for folder in root.tables_to_read(content):
        try:
            with open_regular(folder / f"{name}.array") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError, DamagedDataset):  # ValueError: the file is empty
            continue
        if len(mapped) != size:
            continue
        found = _kind(content, name, dtype, shape)
        found.update(memoryview(mapped)[DIGEST_BYTES:])
        if mapped[:DIGEST_BYTES] == found.digest():
            flat = np.frombuffer(mapped, dtype.newbyteorder("<"), offset=DIGEST_BYTES)
            return flat.reshape(shape)
    return None


def _kind(content: str, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> hashlib._Hash:
    """Return the hash of what an array is, to which its values are added."""
    what = f"{content} {name} {dtype.newbyteorder('<').str} {list(shape)}\n"
    return hashlib.sha256(what.encode())
