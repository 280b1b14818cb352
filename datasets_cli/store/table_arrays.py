"""Arrays among the tables of a committed dataset, such as one number a trajectory.

<root>/tables/<content>/<name>.array    32 bytes of sha256, then the values, little-endian

The digest is of what the array is as well as of its values, so that a file under another's name, or
of another shape, is no array. As every table it can be made again: what cannot be read, or is not
what was written, is as good as absent.
"""

from __future__ import annotations

import hashlib
import uuid

import numpy as np

from datasets_cli.errors import DamagedDataset
from datasets_cli.sources.disk import disk_errors, make_folder, open_regular, replace_file
from datasets_cli.store.cache_root import CacheRoot

DIGEST_BYTES = 32


def save_array(root: CacheRoot, content: str, name: str, array: np.ndarray) -> None:
    """Keep an array, in place of an older one of that name.

    Args:
        root: the cache root.
        content: identity of the data that it is about.
        name: of the array; a file is named by it.
        array: numbers of any shape.

    Raises:
        DiskFull: no room.
        UsageError: a file is where the folder would be.
        OSError: neither the root nor the user's cache can be written.
    """
    values = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    folder = root.tables(content)
    with disk_errors(folder):
        make_folder(folder)
        new = folder / f".{name}.{uuid.uuid4().hex}"
        try:
            with new.open("xb") as file:
                file.write(_digest(content, name, values))
                file.write(values.reshape(-1).view(np.uint8).data)
            replace_file(new, folder / f"{name}.array")
        finally:
            new.unlink(missing_ok=True)


def load_array(
    root: CacheRoot, content: str, name: str, dtype: np.dtype, shape: tuple[int, ...]
) -> np.ndarray | None:
    """Return an array, or None where there is none of this type and shape that was not changed."""
    values = np.empty(shape, dtype.newbyteorder("<"))
    for folder in root.tables_to_read(content):
        try:
            with open_regular(folder / f"{name}.array") as file:
                digest = file.read(DIGEST_BYTES)
                size = file.readinto(values.reshape(-1).view(np.uint8).data)
                is_whole = size == values.nbytes and not file.read(1)
        except (OSError, DamagedDataset):
            continue
        if is_whole and digest == _digest(content, name, values):
            return values.astype(dtype, copy=False)
    return None


def _digest(content: str, name: str, values: np.ndarray) -> bytes:
    what = f"{content} {name} {values.dtype.str} {list(values.shape)}\n"
    found = hashlib.sha256(what.encode())
    found.update(values.reshape(-1).view(np.uint8).data)
    return found.digest()
