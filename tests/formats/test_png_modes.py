"""PNG files of every mode: the greys that they show, or what they are and why that is not grey."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from datasets_cli.errors import SourceError
from datasets_cli.formats.images import decode_pngs, other_modes
from tests.formats.test_png import SIGNATURE, chunk
from tests.support.ale_games import play

SHAPE = (5, 9)
GREYS = np.random.default_rng(3).integers(0, 256, SHAPE, dtype=np.uint8)
RAMP = np.repeat(np.arange(256, dtype=np.uint8), 3).tobytes()
"""A palette in which index i is the grey i."""

PASSES = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2)]


def written(
    samples: np.ndarray, bits: int, colour: int, *, interlaced: bool = False, **parts: bytes
) -> bytes:
    """Return a PNG file of samples ``[height, width, channels]``, each row without a filter."""
    height, width = samples.shape[:2]
    passes = [*PASSES, (0, 1, 1, 2)] if interlaced else [(0, 0, 1, 1)]
    rows = [row for x, y, dx, dy in passes for row in samples[y::dy, x::dx] if len(row)]
    data = b"".join(b"\0" + packed(row.reshape(-1), bits) for row in rows)
    size = struct.pack(">II5B", width, height, bits, colour, 0, 0, interlaced)
    extra = b"".join(chunk(kind.encode(), value) for kind, value in parts.items())
    end = chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")
    return SIGNATURE + chunk(b"IHDR", size) + extra + end


def packed(samples: np.ndarray, bits: int) -> bytes:
    if bits == 16:
        return samples.astype(">u2").tobytes()
    digits = np.unpackbits(samples.astype(np.uint8)[:, None], axis=1)[:, 8 - bits :]
    return np.packbits(digits).tobytes()


def grey_of(file: bytes, shape: tuple[int, int] = SHAPE) -> np.ndarray:
    return decode_pngs([memoryview(file)], shape, "record 4", first=7)[0]


def channels(*arrays: np.ndarray | int) -> np.ndarray:
    return np.stack([np.broadcast_to(array, SHAPE) for array in arrays], axis=-1)


LOW = {bits: GREYS % 2**bits for bits in (1, 2, 4)}
SCALE = {1: 255, 2: 85, 4: 17}
FEW = GREYS % 3
PALE = bytes((7, 7, 7, 200, 200, 200, 9, 9, 9, 255, 0, 0))
"""A palette of three greys, and a red that is index 3."""

CONVERTED: dict[str, tuple[bytes, np.ndarray]] = {
    "8-bit palette": (written(GREYS, 8, 3, PLTE=RAMP), GREYS),
    "2-bit palette": (
        written(FEW, 2, 3, PLTE=PALE, tRNS=b"\xff\xff\xff\0"),
        np.frombuffer(PALE, np.uint8)[FEW * 3],
    ),
    "1-bit palette, interlaced": (
        written(LOW[1], 1, 3, PLTE=PALE, interlaced=True),
        np.array([7, 200], np.uint8)[LOW[1]],
    ),
    "8-bit RGB": (written(channels(GREYS, GREYS, GREYS), 8, 2), GREYS),
    "8-bit RGB, interlaced": (
        written(channels(GREYS, GREYS, GREYS), 8, 2, interlaced=True),
        GREYS,
    ),
    "8-bit grey with alpha": (written(channels(GREYS, 255), 8, 4), GREYS),
    "8-bit RGB with alpha": (written(channels(GREYS, GREYS, GREYS, 255), 8, 6), GREYS),
    "16-bit grey": (written(GREYS.astype(np.uint16) * 257, 16, 0), GREYS),
    "16-bit grey, interlaced": (
        written(GREYS.astype(np.uint16) * 257, 16, 0, interlaced=True),
        GREYS,
    ),
    "8-bit grey, interlaced": (written(GREYS, 8, 0, interlaced=True), GREYS),
    **{
        f"{bits}-bit grey": (written(low, bits, 0), low * np.uint8(SCALE[bits]))
        for bits, low in LOW.items()
    },
}


@pytest.mark.parametrize("mode", CONVERTED)
def test_a_mode_that_can_only_mean_greys_is_converted_and_named(mode: str) -> None:
    file, right = CONVERTED[mode]
    found = grey_of(file)
    assert (found.dtype, found.tolist()) == (np.uint8, right.tolist())
    assert other_modes([memoryview(file)]) == {mode: 1}
    image = Image.open(io.BytesIO(file))
    if image.mode.startswith("I"):  # Pillow shows the same
        assert (np.asarray(image) // 257).tolist() == right.tolist()
    else:
        assert np.asarray(image.convert("RGB"))[..., 0].tolist() == right.tolist()


@settings(max_examples=40)
@given(
    st.integers(1, 20),
    st.integers(1, 20),
    st.sampled_from(["L", "RGB", "LA", "RGBA", "P", "1"]),
    st.integers(0, 2**32),
)
def test_what_pillow_writes_of_a_grey_image_comes_back(
    height: int, width: int, mode: str, seed: int
) -> None:
    right = np.random.default_rng(seed).integers(0, 256, (height, width), dtype=np.uint8)
    if mode == "1":
        right = (right > 99) * np.uint8(255)
    file = io.BytesIO()
    Image.fromarray(right).convert(mode).save(file, "PNG")
    assert grey_of(file.getvalue(), (height, width)).tolist() == right.tolist()


RED = channels(GREYS, GREYS, GREYS)
RED[2, 3] = (255, 0, 1)
THROUGH = np.full(SHAPE, 255)
THROUGH[4, 8] = 254
REFUSED: dict[str, tuple[bytes, str]] = {
    "a colour": (
        written(RED, 8, 2),
        "(8-bit RGB) in which the pixel in row 2, column 3 is (255, 0, 1)",
    ),
    "a colour of a palette": (
        written(np.full(SHAPE, 3), 8, 3, PLTE=PALE),
        "(8-bit palette) in which the pixel in row 0, column 0 is (255, 0, 0)",
    ),
    "alpha": (
        written(channels(GREYS, THROUGH), 8, 4),
        "(8-bit grey with alpha) in which a pi",
    ),
    "colour and alpha": (
        written(channels(GREYS, GREYS, GREYS, THROUGH), 8, 6),
        "(8-bit RGB with alpha) in which a pixel is transparent",
    ),
    "a transparent index": (
        written(FEW, 8, 3, PLTE=PALE, tRNS=b"\xff\x7f"),
        "(8-bit palette) in which a pixel is transparent",
    ),
    "a transparent colour": (
        written(LOW[4], 4, 0, tRNS=b"\0\0"),
        "(4-bit grey) in which a colour is transparent",
    ),
    "more greys than 256": (
        written(GREYS.astype(np.uint16) * 256, 16, 0),
        "(16-bit grey) in which a grey is between two of 8 bits",
    ),
    "16 bits of colour": (
        written(channels(GREYS, GREYS, GREYS), 16, 2),
        "(16-bit RGB) in which channels have 16 bits",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_mode_that_means_more_is_refused_by_its_name(name: str) -> None:
    file, words = REFUSED[name]
    with pytest.raises(SourceError) as caught:
        grey_of(file)
    assert caught.value.row == 7 and words in str(caught.value)
    assert "damaged" not in str(caught.value)


@pytest.mark.parametrize("mode", ["2-bit palette", "8-bit RGB, interlaced"])
def test_every_cut_and_flipped_bit_of_another_mode_is_damage(mode: str) -> None:
    file, _ = CONVERTED[mode]
    flipped = [file[:i] + bytes([file[i] ^ 0x10]) + file[i + 1 :] for i in range(len(file))]
    for bad in [*flipped, *(file[:size] for size in range(len(file)))]:
        with pytest.raises(SourceError) as caught:
            grey_of(bad)
        assert "record 4, frame 7 is damaged: " in str(caught.value)


def test_a_filter_that_is_none_is_damage() -> None:
    data = bytearray(b"".join(b"\0" + bytes(27) for _ in range(5)))
    data[28] = 9
    size = struct.pack(">II5B", 9, 5, 8, 2, 0, 0, 0)
    file = (
        SIGNATURE + chunk(b"IHDR", size) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")
    )
    with pytest.raises(SourceError) as caught:
        grey_of(file)
    assert "record 4, frame 7 is damaged: " in str(caught.value)


def test_real_frames_come_back_from_a_palette_and_from_colour() -> None:
    (episode,) = play("seaquest", 8)
    for frame in episode.frames[:4]:
        for image in (Image.fromarray(frame).convert("P"), Image.fromarray(frame).convert("RGB")):
            file: Any = io.BytesIO()
            image.save(file, "PNG", optimize=True)
            assert grey_of(file.getvalue(), (84, 84)).tobytes() == frame.tobytes()


def test_grey_files_and_what_is_no_png_file_are_not_counted() -> None:
    files = [written(GREYS, 8, 0), b"GIF89a", b"", written(GREYS, 8, 0)[:20]]
    assert not other_modes(map(memoryview, files))
