"""Small PNG files: the pixels that Pillow finds, and no damaged file."""

from __future__ import annotations

import io
import itertools
import struct
import sys
import zlib
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from datasets_cli.errors import SourceError
from datasets_cli.formats.images import decode_image, decode_pngs
from tests.support.ale_games import play
from tests.support.refusals import check_refused
from tests.support.unplugged_files import png

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def written(rows: np.ndarray, *, parts: int = 1, head: tuple[int, ...] = (8, 0, 0, 0, 0)) -> bytes:
    """Return a PNG file of filtered rows, uint8 ``[height, 1 + width]``, in several chunks."""
    size = struct.pack(">II5B", rows.shape[1] - 1, rows.shape[0], *head)
    packed = zlib.compress(rows.tobytes())
    cuts = [len(packed) * part // parts for part in range(parts + 1)]
    data = [chunk(b"IDAT", packed[a:b]) for a, b in itertools.pairwise(cuts)]
    text = chunk(b"tEXt", b"Software\0test")
    return SIGNATURE + chunk(b"IHDR", size) + text + b"".join(data) + chunk(b"IEND", b"")


def one_by_one(files: list[bytes]) -> np.ndarray:
    return np.stack([np.asarray(Image.open(io.BytesIO(file))) for file in files])


def decode(files: list[bytes], height: int, width: int) -> np.ndarray:
    return decode_pngs([memoryview(data) for data in files], (height, width), "a", first=7)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**32), st.integers(1, 4))
def test_every_filter_gives_the_pixels_that_pillow_finds(
    height: int, width: int, seed: int, parts: int
) -> None:
    random = np.random.default_rng(seed)
    rows = random.integers(0, 256, (5, height, 1 + width), dtype=np.uint8)
    rows[:, :, 0] %= 5
    files = [written(frame, parts=parts) for frame in rows]
    found, right = decode(files, height, width), one_by_one(files)
    assert (found.dtype, found.shape) == (right.dtype, right.shape)
    same = found.tobytes() == right.tobytes()
    assert same


@pytest.mark.parametrize("isal", [True, False])
def test_real_frames_come_back(isal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not isal:
        monkeypatch.setitem(sys.modules, "isal", None)
    (episode,) = play("seaquest", 256)
    found = decode([png(frame) for frame in episode.frames], 84, 84)
    same = found.tobytes() == episode.frames.tobytes()
    assert found.shape == (257, 84, 84)
    assert same


def test_no_flipped_bit_of_a_file_passes() -> None:
    good = png(np.arange(12, dtype=np.uint8).reshape(3, 4))
    for position in range(len(good)):
        bad = good[:position] + bytes([good[position] ^ 0x10]) + good[position + 1 :]
        with pytest.raises(SourceError) as caught:
            decode([good, bad], 3, 4)
        assert caught.value.row == 8 and "a, frame 8 is damaged: " in str(caught.value)


def test_every_cut_of_a_file_is_refused() -> None:
    good = png(np.arange(12, dtype=np.uint8).reshape(3, 4))
    for size in range(len(good)):
        with pytest.raises(SourceError) as caught:
            decode([good[:size], good], 3, 4)
        assert caught.value.row == 7 and "a, frame 7 is damaged: " in str(caught.value)


def with_data(packed: bytes) -> bytes:
    head = chunk(b"IHDR", struct.pack(">II5B", 4, 3, 8, 0, 0, 0, 0))
    return SIGNATURE + head + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


ROWS = np.zeros((3, 5), np.uint8)
FAULTS = [
    ("is a PNG file of 2 x 4 pixels; expected 3 x 4", written(np.zeros((2, 5), np.uint8))),
    ("is damaged: image file is truncated", written(ROWS, head=(8, 2, 0, 0, 0))),
    ("is damaged: image file is truncated", written(ROWS, head=(8, 0, 0, 0, 1))),
    ("is damaged: ", written(ROWS, head=(3, 0, 0, 0, 0))),
    ("is damaged: its palette is missing", written(ROWS, head=(8, 3, 0, 0, 0))),
    ("cannot decode image data", written(np.full((3, 5), 5, np.uint8))),  # an unknown filter
    ("not a PNG file, it begins with b'<!DOCTYPE html>", b"<!DOCTYPE html>"),
    ("not a PNG file, it begins with b''", b""),
    ("have 16 bytes or more", with_data(zlib.compress(np.random.default_rng(0).bytes(2000)))),
    ("have 16 bytes or more", with_data(zlib.compress(bytes(10_000_000)))),
    ("its rows have 14 bytes; expected 15", with_data(zlib.compress(bytes(14)))),
    ("its rows have 16 bytes or more; expected 15", with_data(zlib.compress(bytes(16)))),
    ("its rows have 0 bytes; expected 15", with_data(b"")),
    ("its rows do not end", with_data(zlib.compress(bytes(15))[:-1])),
    ("is damaged: .*check", with_data(zlib.compress(bytes(15))[:-1] + b"?")),
]
"""What a message says, and the file that gives it where 3 rows of 4 pixels are expected."""


@pytest.mark.parametrize("isal", [True, False])
def test_what_is_no_such_file_is_refused(isal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not isal:
        monkeypatch.setitem(sys.modules, "isal", None)
    calls = [(f"^a, frame 7 .*{words}", partial(decode, [file], 3, 4)) for words, file in FAULTS]
    check_refused(SourceError, calls)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "RGB", "RGBA", "P", "I;16"])
def test_an_image_of_any_mode_has_its_own_channels(mode: str) -> None:
    pixels = np.arange(0, 192, 3, np.uint8).reshape(8, 8)
    image = Image.fromarray(pixels).convert("I;16" if mode == "I;16" else "L")
    image = image if mode == "I;16" else image.convert("RGB").convert(mode)
    file = io.BytesIO()
    image.save(file, "PNG")
    found = decode_image(memoryview(file.getvalue()), "an image")
    plain = {"1": "L", "P": "RGB"}.get(mode)
    expected = np.asarray(image.convert(plain) if plain else image)
    assert found.dtype == (np.uint16 if mode == "I;16" else np.uint8)
    assert found.shape == (8, 8, {"LA": 2, "RGB": 3, "P": 3, "RGBA": 4}.get(mode, 1))
    assert np.array_equal(found.squeeze(), expected)
    damaged = bytearray(file.getvalue())
    damaged[-20] ^= 1  # of the pixels or their checksum
    for wrong in (bytes(damaged), file.getvalue()[:-12], b"GIF89a", b""):
        with pytest.raises(SourceError):
            decode_image(memoryview(wrong), "an image")


def test_a_jpeg_image_is_what_pillow_decodes() -> None:
    file = io.BytesIO()
    Image.fromarray(np.arange(64, dtype=np.uint8).reshape(8, 8)).save(file, "JPEG")
    found = decode_image(memoryview(file.getvalue()), "an image")
    assert np.array_equal(found[:, :, 0], np.asarray(Image.open(file))) and found.shape == (8, 8, 1)
    with pytest.raises(SourceError):
        decode_image(memoryview(file.getvalue()[:-30]), "an image")
