"""A column: the key, element type and row shape of one leaf, and the file that holds it.

File names and ``meta.json`` are those of tensordict's memory-mapped folders, so that
``TensorDict.load_memmap`` opens what is written here. Rules read in tensordict 0.14.3.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets_cli.errors import SourceError

if TYPE_CHECKING:
    import numpy as np

Key = tuple[str, ...]
"""A path of names, such as ``("next", "observation")``; never a dotted text."""

META_FILENAME = "meta.json"

EPISODE: Key = ("episode",)
REWARD: Key = ("next", "reward")
DONE: Key = ("next", "done")
TERMINATED: Key = ("next", "terminated")
TRUNCATED: Key = ("next", "truncated")
TRAJECTORY_END: Key = ("cut",)
"""A bool column of steps that marks the last one of a trajectory which no flag ends."""

BLOCK_ROWS = 65_536
BLOCK_BYTES = 8 << 20

ITEM_BYTES = {
    **dict.fromkeys(("bool", "uint8", "int8"), 1),
    **dict.fromkeys(("uint16", "int16", "float16"), 2),
    **dict.fromkeys(("uint32", "int32", "float32"), 4),
    **dict.fromkeys(("uint64", "int64", "float64", "complex64"), 8),
    "complex128": 16,
}
"""numpy names of the element types that a leaf may have, which are torch's too, and their sizes."""

# tensordict keeps these names for itself at every level of meta.json.
RESERVED_NAMES = frozenset({"shape", "device", "_type", "_class", "_format_version", "_names"})

_UNSAFE = frozenset('/<>:"|?*\\ %') | {chr(code) for code in (*range(32), 127)}


@dataclass(frozen=True)
class Column:
    """One leaf of a dataset.

    Args:
        key: path of names.
        dtype: numpy name of the element type, one of ``ITEM_BYTES``.
        shape: shape of one row; ``()`` for a scalar.
    """

    key: Key
    dtype: str
    shape: tuple[int, ...]

    @property
    def row_bytes(self) -> int:
        """Size of one row in bytes; 0 for a leaf of zero width, which has no file."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]

    @property
    def filename(self) -> str:
        """Path of the leaf's file, relative to the dataset folder, with ``/`` between names."""
        return "/".join(encode_name(name) for name in self.key) + ".memmap"

    def to_json(self, num_rows: int) -> dict[str, Any]:
        """Return the manifest's entry: key, dtype, shape of a row, size of the file in bytes."""
        return {
            "key": list(self.key),
            "dtype": self.dtype,
            "shape": list(self.shape),
            "bytes": num_rows * self.row_bytes,
        }

    @staticmethod
    def from_json(entry: dict[str, Any]) -> Column:
        """Return the column that ``to_json`` described."""
        return Column(tuple(entry["key"]), str(entry["dtype"]), tuple(entry["shape"]))


def rows_per_block(row_bytes: int) -> int:
    """Return how many rows of this size are handled at a time, so that memory stays bounded."""
    return max(1, min(BLOCK_ROWS, BLOCK_BYTES // max(1, row_bytes)))


def can_store(key: Key, dtype: np.dtype) -> bool:
    """Tell whether a dataset can have a leaf of this key and element type."""
    return dtype.newbyteorder("=").name in ITEM_BYTES and not RESERVED_NAMES.intersection(key)


def column_of(key: Key, rows: np.ndarray) -> Column:
    """Return the column that ``rows`` ``[n, *shape]`` would fill.

    Raises:
        SourceError: the element type cannot be stored, or a name is reserved by tensordict.
    """
    dtype = rows.dtype.newbyteorder("=").name
    if dtype not in ITEM_BYTES:
        raise SourceError(
            f"{show_key(key)} has element type {rows.dtype}, which cannot be a memory-mapped leaf. "
            f"Expected one of {', '.join(sorted(ITEM_BYTES))}."
        )
    if not key or any(not name or name in RESERVED_NAMES for name in key):
        raise SourceError(
            f"The key {list(key)} cannot be stored: a name is empty or one of "
            f"{sorted(RESERVED_NAMES)}, which tensordict's meta.json keeps for itself."
        )
    return Column(key, dtype, rows.shape[1:])


def successor_of(key: Key) -> Key:
    """Return the key that holds a field's value of the following step."""
    return ("next", *key)


def show_key(key: Key) -> str:
    """Return a key as people write it in messages: ``next.observation``."""
    return ".".join(key)


def encode_name(name: str) -> str:
    """Return the file name of one name of a key, percent-encoded as tensordict does."""
    if name in (".", ".."):
        return "%2E" * len(name)
    return "".join(f"%{ord(char):02X}" if char in _UNSAFE else char for char in name)


def write_meta_files(folder: Path, columns: Iterable[Column], num_rows: int) -> list[str]:
    """Write the ``meta.json`` of every level; return their paths relative to ``folder``.

    Args:
        folder: the dataset folder.
        columns: every leaf.
        num_rows: the leading dimension N of every leaf.
    """
    levels: dict[Key, dict[str, Any]] = {(): {}}
    for column in columns:
        for depth in range(1, len(column.key)):
            levels.setdefault(column.key[:depth], {})
            levels[column.key[: depth - 1]][column.key[depth - 1]] = {"type": "TensorDict"}
        levels[column.key[:-1]][column.key[-1]] = {
            "device": "cpu",
            "shape": [num_rows, *column.shape],
            "dtype": f"torch.{column.dtype}",
            "is_nested": False,
        }
    names = []
    for key, level in levels.items():
        level |= {
            "shape": [num_rows],
            "device": "cpu",
            "_type": "<class 'tensordict._td.TensorDict'>",
        }
        name = "/".join([*(encode_name(part) for part in key), META_FILENAME])
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(level, separators=(",", ":")), encoding="utf-8")
        names.append(name)
    return names
