"""Columns of text: one value, or an array of values, for each row.

The rows are int32 codes in ``text/``, and the values are in the vocabulary of the dataset. Before
it is written, a column of text is a numpy object array of str.
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from datasets_cli.core.checked_json import Check, JsonForm
from datasets_cli.errors import SourceError
from datasets_cli.schema.columns import (
    Column,
    Key,
    RowShape,
    StoredKey,
    check_key,
    column_of,
    show_key,
    wrong_column,
)

if TYPE_CHECKING:
    import numpy as np

TEXT = "text"
"""The dtype of text in messages, and the folder of the codes."""

VALUES_FILENAME = "text.utf8"
"""The concatenated distinct values, in the order of first appearance."""
OFFSETS_FILENAME = "text.offsets"
"""The start of each value, and the end of the last one: int64 ``[V + 1]``, little-endian."""
SPLIT: Key = ("split",)
"""The publisher's split of a trajectory, such as train or val."""
LANGUAGE: Key = ("language",)
"""The instruction of a trajectory."""
TEXT_BYTES = 1 << 10
"""The memory of one text, as an object."""


@dataclass(frozen=True)
class TextColumn(JsonForm):
    """One column of text of a dataset."""

    key: StoredKey
    shape: RowShape

    @property
    def dtype(self) -> str:
        """The dtype in messages."""
        return TEXT

    @property
    def codes(self) -> Column:
        """The column of the codes, ``[N, *shape]``."""
        return Column(self.key, "int32", self.shape)

    @property
    def filename(self) -> str:
        """Path of the codes, relative to the dataset folder; not written if rows are empty."""
        return f"{TEXT}/{self.codes.filename}"


AnyColumn = Column | TextColumn
DTYPE = re.compile("[<>|](O|b1|[iu][1248]|f[248]|c8|c16|[SUV][0-9]{0,8})")


@dataclass(frozen=True)
class RecordedColumn(JsonForm):
    """A column of a source: its name there, the key here, the dtype, and the shape of one step."""

    name: Annotated[str, Check("a name", len)]
    key: StoredKey
    dtype: Annotated[str, Check("a text of numpy.dtype.str", DTYPE.fullmatch)]
    shape: RowShape

    @classmethod
    def of(cls, key: Key, rows: np.ndarray) -> RecordedColumn:
        """Return the column of rows ``[n, *shape]`` of a source."""
        is_str = rows.dtype.kind == "O" and not isinstance(next(rows.flat, None), bytes)
        return cls(show_key(key), key, "<U0" if is_str else rows.dtype.str, rows.shape[1:])

    @property
    def numpy_dtype(self) -> np.dtype:
        """The dtype of an array: str are objects, and a dtype that numpy lacks is its bytes."""
        import numpy as np

        return np.dtype("O" if "U" in self.dtype else self.dtype)

    @property
    def row_bytes(self) -> int:
        """The memory of one step, in bytes."""
        dtype = self.numpy_dtype
        return math.prod(self.shape) * (TEXT_BYTES if dtype.hasobject else dtype.itemsize)

    def restored(self, rows: np.ndarray) -> np.ndarray:
        """Return stored rows in the dtype and shape of the source."""
        values = rows.reshape(len(rows), *self.shape)
        if rows.dtype.hasobject and "U" not in self.dtype:
            flat = values.reshape(-1)
            flat[:] = [encode_text(value) for value in flat]
        return values if "V" in self.dtype else values.astype(self.numpy_dtype, copy=False)


def any_column(key: Key, rows: np.ndarray) -> AnyColumn:
    """Return the column of rows ``[n, *shape]`` of numbers or text."""
    return text_column(key, rows) if is_text(rows) else column_of(key, rows)


def is_text(rows: np.ndarray) -> bool:
    """Return whether rows are text: numpy str or bytes, or objects, which must then be text."""
    return rows.dtype.kind in "OSU"


def text_column(key: Key, rows: np.ndarray) -> TextColumn:
    """Return the column of text ``[n, *shape]``."""
    check_key(key)
    return TextColumn(key, rows.shape[1:])


def as_text(key: Key, rows: np.ndarray) -> np.ndarray:
    """Return text as an object array of str, without losses; None becomes ``""``."""
    # rows: str, bytes (UTF-8; other bytes become surrogate escapes) or None, `[n, *shape]`.
    values = rows.astype(object)  # a copy; text dtypes of numpy become str and bytes
    flat = values.reshape(-1)
    for place, value in enumerate(flat):
        if type(value) is not str:
            flat[place] = _as_str(key, value)
    return values


def text_files(texts: tuple[TextColumn, ...]) -> list[str]:
    """Return the files of columns of text, relative to the dataset folder."""
    if not texts:
        return []
    codes = [column.filename for column in texts if column.codes.row_bytes]
    return [*codes, VALUES_FILENAME, OFFSETS_FILENAME]


def encode_text(value: str) -> bytes:
    """Return the bytes of a value, for ``decode_text``."""
    if not is_escaped(value):
        return value.encode()
    with suppress(UnicodeEncodeError):  # of another lone surrogate
        data = value.encode(errors="surrogateescape")
        # Escapes of bytes that are valid UTF-8 would be decoded as a character.
        if decode_text(data) == value:
            return data
    raise SourceError(
        f"The text {value[:80]!r} cannot be stored: expected characters, or surrogate escapes of "
        "bytes that are not UTF-8, found another lone surrogate.",
        expected="characters, or surrogate escapes of bytes that are not UTF-8",
        found=value[:80],
        advice="Replace it, for example with '?'.",
    )


def decode_text(data: bytes) -> str:
    """Return the text of UTF-8 bytes; invalid bytes become surrogate escapes."""
    return data.decode(errors="surrogateescape")


def is_escaped(value: str) -> bool:
    """Return whether a value has surrogate escapes: its bytes are not UTF-8."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return True
    return False


def _as_str(key: Key, value: Any) -> str:
    if isinstance(value, bytes):
        return decode_text(value)
    if value is None:
        return ""
    if isinstance(value, str):  # a subclass, such as that of numpy
        return str(value)
    raise wrong_column(key, "numbers of one shape, or text", type(value).__name__, kind=SourceError)
