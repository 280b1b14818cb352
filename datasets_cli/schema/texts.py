"""A column of text: one value, or an array of values, a row.

Text is not a leaf of numbers: the rows are int32 codes below ``text/``, and the values are in one
vocabulary of the dataset. On its way to the disk a column of text is a numpy object array of str.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from datasets_cli.core.checked_json import JsonForm
from datasets_cli.errors import SourceError
from datasets_cli.schema.columns import (
    Column,
    Key,
    RowShape,
    StoredKey,
    check_key,
    column_of,
    show_key,
)

if TYPE_CHECKING:
    import numpy as np

TEXT = "text"
"""What stands for an element type where people read one, and the folder of the codes."""

VALUES_FILENAME = "text.utf8"
"""The distinct values, one after the other, each once, in the order of first appearance."""
OFFSETS_FILENAME = "text.offsets"
"""Where each value begins, and where the last one ends: int64 ``[V + 1]``, little-endian."""


@dataclass(frozen=True)
class TextColumn(JsonForm):
    """One column of text of a dataset."""

    key: StoredKey
    shape: RowShape

    @property
    def dtype(self) -> str:
        """What stands for its element type where people read one."""
        return TEXT

    @property
    def codes(self) -> Column:
        """The column's rows as numbers of values, ``[N, *shape]``."""
        return Column(self.key, "int32", self.shape)

    @property
    def filename(self) -> str:
        """Path of the codes, relative to the dataset folder; no file where a row has no value."""
        return f"{TEXT}/{self.codes.filename}"


AnyColumn = Column | TextColumn


def any_column(key: Key, rows: np.ndarray) -> AnyColumn:
    """Return the column that rows ``[n, *shape]`` of numbers or text would fill."""
    return text_column(key, rows) if is_text(rows) else column_of(key, rows)


def is_text(rows: np.ndarray) -> bool:
    """Return whether rows are text: numpy's str or bytes, or objects, which must then be text."""
    return rows.dtype.kind in "OSU"


def text_column(key: Key, rows: np.ndarray) -> TextColumn:
    """Return the column that text ``[n, *shape]`` would fill."""
    check_key(key)
    return TextColumn(key, rows.shape[1:])


def as_text(key: Key, rows: np.ndarray) -> np.ndarray:
    """Return text as an object array of str; nothing is lost, and None becomes ``""``."""
    # rows: str, bytes (UTF-8; other bytes become surrogate escapes) or None, `[n, *shape]`.
    values = rows.astype(object)  # a copy; entries of numpy's text types become str and bytes
    flat = values.reshape(-1)
    for place, value in enumerate(flat):
        if type(value) is not str:
            flat[place] = _as_str(key, value)
    return values


def text_files(texts: tuple[TextColumn, ...]) -> list[str]:
    """Return the files that columns of text have, relative to the dataset folder."""
    if not texts:
        return []
    codes = [column.filename for column in texts if column.codes.row_bytes]
    return [*codes, VALUES_FILENAME, OFFSETS_FILENAME]


def encode_text(value: str) -> bytes:
    """Return the bytes of a value; ``decode_text`` returns the value of them."""
    if not is_escaped(value):
        return value.encode()
    with suppress(UnicodeEncodeError):  # it has another lone surrogate
        data = value.encode(errors="surrogateescape")
        # Escapes of bytes that are UTF-8 after all would come back as the character they mean.
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
    if isinstance(value, str):  # a type derived from it, such as numpy's
        return str(value)
    raise SourceError(
        f"{show_key(key)} cannot be stored: expected numbers of one shape, or text, found an entry "
        f"of type {type(value).__name__}.",
        key=key,
        expected="numbers of one shape, or text",
        found=type(value).__name__,
    )
