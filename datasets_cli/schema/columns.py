"""Columns: the key, dtype, row shape and file of a leaf.

A name is that of torch, without ``torch.``. Rows of a dtype that numpy lacks are structured arrays
with one unsigned field, which has the name of the dtype:

    bfloat16 [n, 3]    np.zeros((n, 3), np.dtype([("bfloat16", "<u2")]))
    its bits           rows["bfloat16"], uint16 [n, 3]

Slices, ``take``, ``concatenate``, ``zeros`` and ``==`` work as for numbers.

File names and ``meta.json`` follow the memory-mapped folders of tensordict 0.14.3, so
``TensorDict.load_memmap`` opens the files.

A key may have any names. Names that a folder cannot have are escaped on the disk only, by
``escape_key``; ``TensorDict.load_memmap`` shows them escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from datasets_cli.core.checked_json import Check, JsonForm, whole
from datasets_cli.errors import ROOT, NoRewards, RldsError, SourceError, WrongRows
from datasets_cli.sources.disk import MAX_NAME_BYTES

if TYPE_CHECKING:
    import numpy as np


NUMPY_TYPES = frozenset(
    {
        *("bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    }
)
"""The dtypes that numpy has, with the same names."""

ITEM_BYTES = {
    **dict.fromkeys(("bool", "uint8", "int8"), 1),
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"), 1),
    **dict.fromkeys(("float8_e8m0fnu", "float4_e2m1fn_x2"), 1),
    **dict.fromkeys(("uint16", "int16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("uint32", "int32", "float32", "complex32"), 4),
    **dict.fromkeys(("uint64", "int64", "float64", "complex64"), 8),
    "complex128": 16,
}
"""The bytes of one element, for each dtype that a leaf may have.

Other dtypes of torch have no operations (``int4``, ``bits8``) or need a scale (``qint8``). An
element of ``float4_e2m1fn_x2`` is a pair of numbers.
"""

EXACT_BELOW = 2**53
"""float64 represents all smaller whole numbers exactly."""


def first_rounded(numbers: Iterable[tuple[int, int]]) -> tuple[int, int, str] | None:
    """Return the row of the first number that float64 would round, the number, and a message."""
    # numbers: pairs of a row and its number.
    for row, number in numbers:
        if (nearest := float(str(number))) != number:
            problem = f"has {number} in row {row:,}, which float64 would round to {nearest:.0f}"
            return row, number, problem
    return None


@lru_cache
def numpy_dtype(name: str) -> np.dtype:
    """Return the numpy dtype of rows of a dtype."""
    import numpy as np

    if name in NUMPY_TYPES:
        return np.dtype(name)
    return np.dtype([(name, f"<u{ITEM_BYTES[name]}")])


def row_data(rows: np.ndarray, name: str) -> memoryview:
    """Return the bytes of rows ``[n, *shape]`` as a leaf file stores them."""
    import numpy as np

    return np.ascontiguousarray(rows, numpy_dtype(name)).data


@lru_cache
def element_type(dtype: np.dtype) -> str | None:
    """Return the name of the dtype of numpy rows, or None if leaves cannot have it."""
    native = dtype.newbyteorder("=")
    if native.names is None:
        return native.name if native.name in NUMPY_TYPES else None
    name = native.names[0]
    if len(native.names) > 1 or name in NUMPY_TYPES or name not in ITEM_BYTES:
        return None
    field = native[name]
    fits = field.kind == "u" and field.itemsize == native.itemsize == ITEM_BYTES[name]
    return name if fits else None


Key = tuple[str, ...]
"""A path of names, such as ``("next", "observation")``; never a dotted text."""

LARGEST = 2**48
"""The bound of numbers of rows, bytes and dimensions: products of two do not overflow."""
MOST_NAMES = 64  # of one key: nested dicts are read recursively
MOST_DIMENSIONS = 62  # of one row: numpy allows 64 dimensions, with that of the rows

# The declarations of these values in a manifest.
Count = Annotated[int, whole(0, LARGEST, "2**48")]
StoredKey = Annotated[
    Key,
    Check(
        f"a list of 1 to {MOST_NAMES} names", lambda key: 1 <= len(key) <= MOST_NAMES and all(key)
    ),
]
ElementType = Annotated[
    str, Check(f"one of {', '.join(sorted(ITEM_BYTES))}", ITEM_BYTES.__contains__)
]
RowShape = Annotated[
    tuple[Count, ...],
    Check(
        f"a list of at most {MOST_DIMENSIONS} dimensions",
        lambda shape: len(shape) <= MOST_DIMENSIONS,
    ),
]

META_FILENAME = "meta.json"

EPISODE: Key = ("episode",)
REWARD: Key = ("next", "reward")
DONE: Key = ("next", "done")
TERMINATED: Key = ("next", "terminated")
TRUNCATED: Key = ("next", "truncated")
MEMBER: Key = ("member",)
"""A column of batches: the number of the member of a mixture that a row comes from."""
RECORDED_STEP: Key = ("recorded_step",)
"""A column of final steps: the number of the step among all steps of the source, int64."""
TRAJECTORY_END: Key = ("cut",)
"""A bool column of steps: the last step of a trajectory that ends without a flag."""

BLOCK_ROWS = 65_536
BLOCK_BYTES = 8 << 20

TEXT_FOLDER, FINAL_FOLDER = "text", "final"
"""The folders of text and of final steps in both layouts."""

# Entries of meta.json that describe the level itself. tensordict 0.14.3 reads batch size, device
# and class. Further names with a leading underscore are reserved: they belong to tensordict.
RESERVED_NAMES = frozenset({"shape", "device", "_type", "_class", "_format_version", "_names"})

# A group of leaves is a folder. Its name must differ from the files of the same folder: leaves
# (.memmap), meta.json, manifest.json, trajectories.npy, values of text (.utf8, .offsets), frames
# (.zst, .zst.offsets, .zst.dictionary) and their segments (.part).
_FILE_ENDINGS = (
    *(".memmap", ".json", ".npy", ".utf8"),
    *(".zst", ".offsets", ".dictionary", ".part"),
)
_ESCAPE = "~"

# Percent-encoded in file names, as tensordict does.
_ENCODED = {code: f"%{code:02X}" for code in (*map(ord, '/<>:"|?*\\ %'), *range(32), 127)}


@dataclass(frozen=True)
class Column(JsonForm):
    """One leaf of a dataset."""

    key: StoredKey
    dtype: ElementType
    shape: RowShape

    @cached_property
    def row_bytes(self) -> int:
        """Size of one row in bytes; 0 for an empty row, whose leaf has no file."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]

    @cached_property
    def filename(self) -> str:
        """Path of the leaf's file, relative to the dataset folder, with ``/`` between names."""
        return f"{leaf_path(self.key)}.memmap"

    def entry(self, num_rows: int) -> dict[str, Any]:
        """Return the manifest's entry: key, dtype, shape of a row, size of the file in bytes."""
        return {**self.json_fields(), "bytes": num_rows * self.row_bytes}


_MADE = frozenset({EPISODE, DONE, ("done",), ("terminated",), ("truncated",)})


def is_of_final(key: Key) -> bool:
    """Return whether final steps have a column of the rows."""
    return key not in _MADE and key[:2] != ("next", "observation")


def final_columns(columns: Iterable[Column]) -> tuple[Column, ...]:
    """Return the columns of the final steps of a dataset with these columns."""
    recorded = (column for column in columns if is_of_final(column.key))
    return (*recorded, *(Column(key, "int64", ()) for key in (EPISODE, RECORDED_STEP)))


def refuse_missing_reward(key: Key, what: str, rows: str) -> None:
    """Raise ``NoRewards`` if a missing key is the key of the reward."""
    if ".".join(key) == show_key(REWARD):
        raise NoRewards.of(what, rows)


def key_in(known: Iterable[Key], written: Key) -> Key:
    """Return the key of a column or group; dots separate names unless a known key contains them."""
    nested, keys = tuple(".".join(written).split(".")), [*known]
    is_exact = any(key[: len(written)] == written for key in keys)
    is_nested = any(key[: len(nested)] == nested for key in keys)
    return nested if is_nested and not is_exact else written


def rows_per_block(row_bytes: int) -> int:
    """Return the number of rows of this size for one block in bounded memory."""
    return max(1, min(BLOCK_ROWS, BLOCK_BYTES // max(1, row_bytes)))


def can_store(key: Key, dtype: np.dtype) -> bool:
    """Return whether a dataset can have a leaf of this key and dtype."""
    return element_type(dtype) is not None and not _wrong_name(key)


def column_of(key: Key, rows: np.ndarray) -> Column:
    """Return the column that ``rows`` ``[n, *shape]`` would fill."""
    name = element_type(rows.dtype)
    if name is None:
        known = ", ".join(sorted(ITEM_BYTES))
        raise SourceError(
            f"{show_key(key)} has the dtype {rows.dtype}, which cannot be stored. Expected one of "
            f"{known}. Pass a dtype that numpy lacks as a structured array, such as "
            'np.dtype([("bfloat16", "<u2")]).',
            key=key,
            expected=known,
            found=str(rows.dtype),
        )
    check_key(key)
    return Column(key, name, rows.shape[1:])


def check_key(key: Key) -> None:
    """Check that a leaf can have a key."""
    if problem := _wrong_name(key):
        raise SourceError(
            f"The key {list(key)!r} cannot be stored: {problem}.", key=key, advice="Rename it."
        )


@lru_cache(4096)
def _wrong_name(key: Key) -> str:
    """Return why a leaf cannot have a key; empty if it can."""
    if not key or not all(key):
        return "it needs one or more names, none of them empty"
    for name in key:
        try:
            size = len(encode_name(f"{name}{_ESCAPE}").encode())
        except UnicodeEncodeError:
            return f"the name {name!r} has half of a surrogate pair, which UTF-8 cannot encode"
        if size > MAX_NAME_BYTES:
            return (
                f"the name {name[:40]!r}... takes {size} bytes in a file name; "
                f"expected {MAX_NAME_BYTES} or fewer"
            )
    return ""


def successor_of(key: Key) -> Key:
    """Return the key of the values of a column in the following step."""
    return ("next", *key)


def show_key(key: Key) -> str:
    """Return a key for messages: ``next.observation``."""
    return ".".join(key)


def wrong_column(
    key: Key,
    expected: object,
    found: object,
    advice: str | None = None,
    *,
    owner: str = "",
    kind: type[RldsError] = WrongRows,
) -> RldsError:
    """Return the error of a column whose values are not the expected ones."""
    name = f"{owner}: {show_key(key)}" if owner else show_key(key)
    message = f"{name} is {found}; expected {expected}."
    return kind(message, key=key, expected=expected, found=found, advice=advice)


@lru_cache(4096)
def escape_key(key: Key) -> Key:
    """Return the names of a leaf's key on the disk, as in ``meta.json``, before ``encode_name``.

    A reserved name gets a ``~``, and so does a reserved name followed by any number of ``~``. So
    different keys have different names:

        shape -> shape~    shape~ -> shape~~    shapes -> shapes    observation~ -> observation~

    The last name is that of a file, which gets an ending; the names before it are folders.
    """
    last = len(key) - 1
    return tuple(
        f"{name}{_ESCAPE}" if _is_escaped(name, depth, depth < last) else name
        for depth, name in enumerate(key)
    )


def _is_escaped(name: str, depth: int, is_folder: bool) -> bool:
    """Return whether a name at a depth of a key gets a ``~``."""
    plain = name.rstrip(_ESCAPE)
    if plain in RESERVED_NAMES:
        return True
    # Case is ignored: on some disks TEXT and text are the same file.
    folded = plain.lower()
    is_file = folded.endswith(_FILE_ENDINGS) or (
        depth == 0 and folded in (TEXT_FOLDER, FINAL_FOLDER)
    )
    # A leaf "a.json" keeps its name, but the leaf "a.json~" would clash with the group "a.json".
    return is_file and (is_folder or name != plain)


@lru_cache(4096)
def leaf_path(key: Key) -> str:
    """Return the path of a leaf's file without its ending, ``/`` between names."""
    return "/".join(map(encode_name, escape_key(key)))


@contextmanager
def one_file_each(path: Path, key: Key) -> Iterator[None]:
    """Convert the error of an existing file to one that names the key."""
    try:
        yield
    except FileExistsError as error:
        raise SourceError(
            f"{show_key(key)} cannot have its own file: {path} exists. Two keys have the same file "
            "name on this disk, for example because they differ only in case.",
            key=key,
            path=path,
            advice=f"Rename one, or choose another disk with {ROOT}.",
        ) from error


def encode_name(name: str) -> str:
    """Return the file name of one name of a key, percent-encoded like in tensordict."""
    if name in (".", ".."):
        return "%2E" * len(name)
    return name.translate(_ENCODED)
