"""Frames decoded as one stream: the same as one by one, whatever somebody else compressed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zstandard

from datasets_cli.errors import DamagedDataset
from datasets_cli.store.layouts.frames import FrameDecoder, FrameReader, FrameWriter

Compress = Callable[[bytes], bytes]
SIZE = 1296
SHAPE = (36, 36)
FRAMES = [bytes(np.random.default_rng(n).integers(0, 4, SIZE, np.uint8)) for n in range(4)]
SKIPPED = b"\x50\x2a\x4d\x18\x04\x00\x00\x00rows"  # a frame that decoders skip
COMPRESS: dict[str, Compress] = {
    "level 3": zstandard.compress,
    "level 19": zstandard.ZstdCompressor(level=19).compress,
    "checksum": zstandard.ZstdCompressor(write_checksum=True).compress,
    "no size": zstandard.ZstdCompressor(write_content_size=False).compress,
}


def reader_of(folder: Path, frames: list[bytes]) -> FrameReader:
    (folder / "x.zst").write_bytes(b"".join(frames))
    np.cumsum([0, *map(len, frames)], dtype=np.int64).tofile(folder / "x.zst.offsets")
    return FrameReader(folder / "x.zst", len(frames), SHAPE, has_dictionary=False)


@pytest.fixture
def no_frame_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let decoding fail where frames are not decoded as one stream."""
    monkeypatch.delattr(FrameDecoder, "_one_by_one")


@pytest.mark.parametrize("after", [b"", SKIPPED, b"?", zstandard.compress(FRAMES[3])], ids=range(4))
@pytest.mark.parametrize("compress", COMPRESS.values(), ids=COMPRESS)
def test_frame_comes_back_whatever_comes_after_it(
    compress: Compress, after: bytes, tmp_path: Path
) -> None:
    reader = reader_of(
        tmp_path,
        [zstandard.compress(FRAMES[0]), compress(FRAMES[1]) + after, zstandard.compress(FRAMES[2])],
    )
    for index in ([0, 1, 2], [1], [2, 1, 1, 0], [1, 2]):
        read = reader.read(np.array(index))
        assert [frame.tobytes() for frame in read] == [FRAMES[number] for number in index]


@pytest.mark.parametrize("sizes", [(SIZE - 1, SIZE + 1), (SIZE + 1, SIZE - 1), (0, 2 * SIZE)])
@pytest.mark.parametrize("compress", COMPRESS.values(), ids=COMPRESS)
def test_two_frames_that_are_together_as_long_as_two_are_refused(
    compress: Compress, sizes: tuple[int, int], tmp_path: Path
) -> None:
    good = zstandard.compress(FRAMES[0])
    reader = reader_of(tmp_path, [good, *(compress(bytes(size)) for size in sizes), good])
    with pytest.raises(DamagedDataset) as caught:
        reader.read(np.arange(4))
    assert Path(caught.value.path).name == "x.zst"


def test_frames_whose_offsets_are_shifted_are_named(tmp_path: Path) -> None:
    reader_of(tmp_path, [zstandard.compress(frame) for frame in FRAMES])
    offsets = np.fromfile(tmp_path / "x.zst.offsets", np.int64)
    offsets[2] -= 1
    offsets.tofile(tmp_path / "x.zst.offsets")
    reader = FrameReader(tmp_path / "x.zst", 4, SHAPE, has_dictionary=False)
    with pytest.raises(DamagedDataset) as caught:
        reader.read(np.arange(4))
    assert Path(caught.value.path).name == "x.zst"
    assert reader.read(np.array([3, 0])).tobytes() == FRAMES[3] + FRAMES[0]


@pytest.mark.parametrize("number", [1, 7, 100])  # 100 have a dictionary
@pytest.mark.parametrize("shape", [(36, 36), (210, 160, 3)])
def test_what_is_written_here_is_decoded_as_one_stream(
    number: int, shape: tuple[int, ...], no_frame_alone: None, tmp_path: Path
) -> None:
    frames = np.random.default_rng(0).integers(0, 4, (number, *shape), np.uint8)
    writer = FrameWriter(tmp_path / "x.zst", frames[0].size)
    writer.write(frames)
    writer.finish()
    has_dictionary = (tmp_path / "x.zst.dictionary").exists()
    reader = FrameReader(tmp_path / "x.zst", number, shape, has_dictionary=has_dictionary)
    index = np.random.default_rng(0).integers(number, size=20)
    assert np.array_equal(reader.read(index), frames[index])
    assert np.array_equal(reader.read(np.arange(number)), frames)
    header = zstandard.get_frame_parameters((tmp_path / "x.zst").read_bytes())
    assert (header.has_checksum, header.dict_id) == (False, 0)  # 8 bytes a frame


def test_a_large_frame_of_one_colour_is_read(tmp_path: Path) -> None:
    writer = FrameWriter(tmp_path / "x.zst", 4 << 20)
    writer.write(np.full((1, 2048, 2048), 7, np.uint8))
    writer.finish()
    assert (tmp_path / "x.zst").stat().st_size < 160  # of 32 blocks
    reader = FrameReader(tmp_path / "x.zst", 1, (2048, 2048), has_dictionary=False)
    assert np.unique(reader.read(np.array([0]))).tolist() == [7]
