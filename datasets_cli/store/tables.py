"""Caches tables and arrays computed from a committed dataset.

<root>/tables/<content>/<name>.json     one JSON object a file, replaced whole
<root>/tables/<content>/<name>.array    32 bytes of sha256, then the values, little-endian

The digest covers the name, dtype, shape and values of the array, so a renamed file is rejected.
Every file can be computed again: a damaged or unreadable file counts as missing.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from datasets_cli.errors import DamagedDataset
from datasets_cli.sources.new_files import replacing
from datasets_cli.sources.regular_file import open_regular, read_bounded
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.sealed_json import parse

if TYPE_CHECKING:
    import numpy as np


MAX_BYTES = 64 << 20
DIGEST_BYTES = 32
PIECE_BYTES = 1 << 16


def save_table(root: CacheRoot, content: str, name: str, table: Mapping[str, Any]) -> None:
    """Write a table, or replace the table of this name."""
    with replacing(root.tables(content) / f"{name}.json") as new:
        new.write_text(json.dumps(table, allow_nan=False), encoding="ascii")


def load_table(root: CacheRoot, content: str, name: str) -> dict[str, Any] | None:
    """Return a table, or None if it is missing or cannot be read."""
    for folder in root.tables_to_read(content):
        try:
            return parse(read_bounded(folder / f"{name}.json", MAX_BYTES))
        except (OSError, ValueError, DamagedDataset):
            continue
    return None


def remove_tables(root: CacheRoot, content: str) -> None:
    """Delete all tables of the data with this identity."""
    for folder in root.tables_to_read(content):
        shutil.rmtree(folder, ignore_errors=True)


def write_array(
    root: CacheRoot,
    content: str,
    name: str,
    dtype: np.dtype,
    shape: tuple[int, ...],
    blocks: Iterable[tuple[int, np.ndarray]],
) -> None:
    """Write an array block by block, or replace the array of this name."""
    import numpy as np

    row_bytes = math.prod(shape[1:]) * dtype.itemsize
    with replacing(root.tables(content) / f"{name}.array") as new, new.open("x+b") as file:
        for first, rows in blocks:
            values = np.ascontiguousarray(rows, dtype.newbyteorder("<"))
            file.seek(DIGEST_BYTES + first * row_bytes)
            file.write(values.reshape(-1).view(np.uint8).data)
        file.seek(DIGEST_BYTES)
        hashed = _kind(content, name, dtype, shape)
        while piece := file.read(PIECE_BYTES):
            hashed.update(piece)
        file.seek(0)
        file.write(hashed.digest())


def map_array(
    root: CacheRoot, content: str, name: str, dtype: np.dtype, shape: tuple[int, ...]
) -> np.ndarray | None:
    """Return an array, or None if it is missing, damaged, or of another dtype or shape."""
    import numpy as np

    from datasets_cli.schema.mapped_bytes import map_descriptor

    # Little-endian and mapped read-only: processes share its memory.
    size = DIGEST_BYTES + math.prod(shape) * dtype.itemsize
    for folder in root.tables_to_read(content):
        try:
            with open_regular(folder / f"{name}.array") as file:
                if os.fstat(file.fileno()).st_size != size:
                    continue
                mapped = map_descriptor(file.fileno(), size)
        except (OSError, ValueError, DamagedDataset):
            continue
        hashed = _kind(content, name, dtype, shape)
        hashed.update(mapped[DIGEST_BYTES:])
        if mapped[:DIGEST_BYTES] == hashed.digest():
            flat = np.frombuffer(mapped, dtype.newbyteorder("<"), offset=DIGEST_BYTES)
            return flat.reshape(shape)
    return None


def _kind(content: str, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> hashlib._Hash:
    what = f"{content} {name} {dtype.newbyteorder('<').str} {list(shape)}\n"
    return hashlib.sha256(what.encode())


STATISTICS = "statistics"
STATISTICS_VERSION = 3


def load_summary(root: CacheRoot, content: str) -> dict[str, Any] | None:
    """Return the summary of the data with this identity, or None."""
    summary = load_table(root, content, STATISTICS)
    known = {"version": STATISTICS_VERSION, "content": content}  # rejects a copied file
    return summary if summary and known.items() <= summary.items() else None
