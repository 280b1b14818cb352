"""RL Unplugged's Atari files, read plainly: gzip, struct, protobuf's wire format and Pillow.

It shares no code with the reader that it checks. Facts: TensorFlow's ``record_writer.h`` and
``example.proto``, protobuf's encoding guide.
"""

from __future__ import annotations

import gzip
import io
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

Features = dict[str, Any]


def read_run(path: Path) -> list[Features]:
    """Return the features of every record of a file; frames are uint8 ``[T, 84, 84]``."""
    return [decode(record) for record in records(gzip.decompress(path.read_bytes()))]


def records(data: bytes) -> Iterator[bytes]:
    """Yield what is between length, its checksum, and the checksum of the data."""
    place = 0
    while place < len(data):
        (length,) = struct.unpack_from("<Q", data, place)
        yield data[place + 12 : place + 12 + length]
        place += 12 + length + 4


def decode(record: bytes) -> Features:
    """Return an Example's lists by their names, and its PNG files as frames."""
    found = lists(record)
    pngs = [Image.open(io.BytesIO(png)) for png in found["observations"]]
    assert {png.mode for png in pngs} == {"L"}
    return found | {"observations": np.stack([np.asarray(png) for png in pngs])}


def lists(record: bytes) -> Features:
    """Return an Example's lists by their names."""
    (features,) = fields(record)[1]
    found: Features = {}
    for entry in fields(features)[1]:
        pair = fields(entry)
        found[pair[1][0].decode()] = feature(pair[2][0])
    return found


def feature(data: bytes) -> Any:
    ((kind, (values,)),) = fields(data).items()
    items = fields(values).get(1, [])
    if kind == 1:
        return items
    packed = b"".join(items)
    if kind == 2:
        return np.frombuffer(packed, "<f4")
    numbers, place = [], 0
    while place < len(packed):
        number, place = varint(packed, place)
        numbers.append(number - (number >> 63 << 64))
    return np.array(numbers, np.int64)


def fields(data: bytes) -> dict[int, list[bytes]]:
    """Return the fields of a message, all of which have a length, by their numbers."""
    found: dict[int, list[bytes]] = {}
    place = 0
    while place < len(data):
        tag, place = varint(data, place)
        assert tag & 7 == 2, f"a field of kind {tag & 7}"
        length, place = varint(data, place)
        found.setdefault(tag >> 3, []).append(data[place : place + length])
        place += length
    return found


def varint(data: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[place]
        place += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number, place
