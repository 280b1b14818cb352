"""What the buffers of an Arrow IPC file say they have unpacked, found without unpacking one.

    ARROW1 | message | message | … | footer | its size | ARROW1
    message    0xffffffff | size of what follows | flatbuffer: kind, lengths, buffers | body
    buffer     in a packed body: int64 of unpacked bytes, -1 for none | packed bytes

Eight bytes of a buffer ask for any memory, and zstd packs 30,000 bytes into one. Facts: Arrow's
``Message.fbs`` and ``File.fbs``, and the internals of FlatBuffers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

MAGIC = b"ARROW1\0\0"
DICTIONARY_BATCH, RECORD_BATCH = 2, 3
MAX_MESSAGE_BYTES = 64 << 20
"""Of a message without its body; a column takes some 100 bytes."""

_CONTINUES = 0xFFFFFFFF


class BadMessage(ValueError):
    """The bytes are not an Arrow file."""


@dataclass(frozen=True)
class Message:
    """A run of rows, or a dictionary.

    Args:
        kind: ``RECORD_BATCH``, ``DICTIONARY_BATCH`` or another.
        num_rows: as it says.
        num_bytes: of all its buffers, unpacked; those that share bytes count each.
        num_values: of the longest column, at any depth.
    """

    kind: int
    num_rows: int
    num_bytes: int
    num_values: int


def messages(file: BinaryIO, size: int) -> Iterator[Message]:
    """Yield what each message of a file says, in order; no body is read.

    Args:
        file: at any position.
        size: of the file in bytes.

    Raises:
        BadMessage: it is not an Arrow file.
    """
    file.seek(0)
    if file.read(len(MAGIC)) != MAGIC:
        raise BadMessage(f"it does not begin with {MAGIC!r}")
    position = len(MAGIC)
    try:
        while True:
            file.seek(position)
            length, position = _envelope(file, position)
            if not length:
                return
            if not 0 < length <= min(MAX_MESSAGE_BYTES, size - position):
                raise BadMessage(f"a message at byte {position} has {length} bytes")
            table = _Table.root(file.read(length))
            position += length
            body_bytes = table.number(3, "<q")
            if not 0 <= body_bytes <= size - position:
                raise BadMessage(f"a body at byte {position} has {body_bytes} bytes")
            yield _message(table, file, position, body_bytes)
            position += body_bytes
    except (struct.error, IndexError) as error:
        raise BadMessage(f"a message before byte {position} is cut off") from error


def _envelope(file: BinaryIO, position: int) -> tuple[int, int]:
    """Return the size of a message and its first byte; old files have no mark before the size."""
    (first,) = struct.unpack("<I", file.read(4))
    if first != _CONTINUES:
        return first, position + 4
    (length,) = struct.unpack("<I", file.read(4))
    return length, position + 8


def _message(table: _Table, file: BinaryIO, start: int, body_bytes: int) -> Message:
    kind, batch = table.number(1, "<B"), table.table(2)
    if kind == DICTIONARY_BATCH and batch:
        batch = batch.table(1)
    if kind not in (DICTIONARY_BATCH, RECORD_BATCH) or batch is None:
        return Message(kind, 0, 0, 0)
    is_packed = batch.table(3) is not None
    num_bytes = 0
    for offset, length in batch.pairs(2):
        if not 0 <= offset <= offset + length <= body_bytes:
            raise BadMessage(f"a buffer of {length} bytes at {offset} is not in its body")
        num_bytes += _unpacked(file, start + offset, length) if is_packed and length else length
    num_values = max((length for length, _ in batch.pairs(1)), default=0)
    return Message(kind, batch.number(0, "<q"), num_bytes, num_values)


def _unpacked(file: BinaryIO, position: int, length: int) -> int:
    file.seek(position)
    (size,) = struct.unpack("<q", file.read(8))
    if size < -1:
        raise BadMessage(f"a buffer at byte {position} has {size} bytes")
    return length if size == -1 else int(size)


@dataclass(frozen=True)
class _Table:
    """A table of a flatbuffer: a list of where its fields are is before or after it."""

    data: bytes
    position: int

    @staticmethod
    def root(data: bytes) -> _Table:
        return _Table(data, struct.unpack_from("<I", data)[0])

    def number(self, field: int, form: str) -> int:
        """Return a whole number; 0 where the field is not there."""
        at = self._find(field)
        return int(struct.unpack_from(form, self.data, at)[0]) if at else 0

    def table(self, field: int) -> _Table | None:
        at = self._find(field)
        if not at:
            return None
        return _Table(self.data, at + struct.unpack_from("<I", self.data, at)[0])

    def pairs(self, field: int) -> Iterator[tuple[int, int]]:
        """Return the items of a vector of structs of two int64."""
        at = self._find(field)
        if not at:
            return iter(())
        start = at + struct.unpack_from("<I", self.data, at)[0]
        (count,) = struct.unpack_from("<I", self.data, start)
        items = self.data[start + 4 : start + 4 + 16 * count]
        if len(items) < 16 * count:
            raise BadMessage(f"a list of {count} is cut off")
        return struct.iter_unpack("<qq", items)

    def _find(self, field: int) -> int:
        """Return where a field is; 0 where it is not there."""
        where = self.position - struct.unpack_from("<i", self.data, self.position)[0]
        if where < 0 or self.position < 0:
            raise BadMessage("a list of fields is outside its message")
        (size,) = struct.unpack_from("<H", self.data, where)
        if 4 + 2 * field >= size:
            return 0
        offset = struct.unpack_from("<H", self.data, where + 4 + 2 * field)[0]
        return self.position + int(offset) if offset else 0
