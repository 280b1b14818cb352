"""Frames: their decoder, and frames that are read apart from their steps."""

from __future__ import annotations

import shutil
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets_cli.catalogue.names import Resolved
from datasets_cli.config import Config, load_config
from datasets_cli.core.progress import silent
from datasets_cli.errors import DamagedDataset, DiskFull, RldsError, SourceError
from datasets_cli.install.installation import stage
from datasets_cli.parallel.engine import Workers
from datasets_cli.recipe import Block, CatalogueEntry, DeferredFrames, Key, Recipe, Source
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.dataset import open_dataset
from datasets_cli.store.layouts.frames import FrameDecoder, FrameReader, FrameWriter
from datasets_cli.store.manifest import write_manifest
from tests.store.test_compact import Rows
from tests.support.frame_parts import NUM_STEPS, Part, broken, killed, read, shots
from tests.support.refusals import refused
from tests.support.user_recipe import recipe_of
from tests.support.values import assert_same, everything

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


def test_frames_that_are_too_large_for_a_dictionary_do_not_wait_in_memory(tmp_path: Path) -> None:
    writer = FrameWriter(tmp_path / "x.zst", 1 << 20)
    tracemalloc.start()
    for _ in range(40):
        writer.write(np.zeros((1, 1 << 20), np.uint8))
    assert tracemalloc.get_traced_memory()[1] < 10 << 20
    tracemalloc.stop()
    writer.finish()


def test_a_large_frame_of_one_colour_is_read(tmp_path: Path) -> None:
    writer = FrameWriter(tmp_path / "x.zst", 4 << 20)
    writer.write(np.full((1, 2048, 2048), 7, np.uint8))
    writer.finish()
    assert (tmp_path / "x.zst").stat().st_size < 160  # of 32 blocks
    reader = FrameReader(tmp_path / "x.zst", 1, (2048, 2048), has_dictionary=False)
    assert np.unique(reader.read(np.array([0]))).tolist() == [7]


FLAGS = "....T.c||..T...T.."
"""A step each: T terminated, | truncated, c cut off, and the end of the source."""


def recipe(parts: Sequence[Part], reader: Any = read) -> Recipe:
    def blocks(source: Source) -> Iterator[Block]:
        flags = np.array(list(FLAGS))
        for start in range(0, NUM_STEPS, 5):
            some = flags[start : start + 5]
            columns: dict[Key, np.ndarray] = {
                ("action",): np.arange(start, start + len(some)),
                ("next", "reward"): np.ones(len(some), np.float32),
                ("next", "terminated"): some == "T",
                ("next", "truncated"): some == "|",
                ("cut",): some == "c",
            }
            yield Block(columns)

    return recipe_of(
        "steps",
        blocks=blocks,
        deferred_frames=lambda source: DeferredFrames(("observation",), (36, 36), parts, reader),
    )


def install(
    config: Config, recipe: Recipe, layout: str | None = None, workers: int = 0
) -> tuple[Rows, Any]:
    resolved = Resolved(recipe, "steps", CatalogueEntry("steps"))
    manifest, folder = stage(
        resolved, [], CacheRoot(config.root), layout, silent, Workers(num_workers=workers)
    )
    write_manifest(folder, manifest)
    return everything(open_dataset(folder)), manifest


def expected() -> Rows:
    """Work out by hand what ``FLAGS`` become: the action is the number of the step."""
    seen = shots()
    kept = [0, 1, 2, 3, 4, 5, 9, 10, 11, 12, 13, 14, 15, 16]
    terminated = np.isin(kept, [4, 11, 15])[:, None]
    truncated = np.isin(kept, [5, 16])[:, None]
    following = seen[np.array(kept) + 1].copy()
    following[terminated[:, 0]] = 0
    return {
        ("observation",): seen[kept],
        ("action",): np.array(kept),
        ("episode",): np.repeat(np.arange(5), [5, 1, 3, 4, 1]),
        ("next", "observation"): following,
        ("next", "reward"): np.ones((14, 1), np.float32),
        ("next", "terminated"): terminated,
        ("next", "truncated"): truncated,
        ("next", "done"): terminated | truncated,
    } | {(name,): np.zeros((14, 1), np.bool_) for name in ("done", "terminated", "truncated")}


@settings(max_examples=12)
@given(
    order=st.permutations([(0, 3), (3, 6), (6, 8), (8, 13), (13, 18)]),
    cut=st.integers(0, 5),
    layout=st.sampled_from(["ted", "compact"]),
)
def test_frames_in_any_order_and_any_parts_give_the_same_files(
    order: Part, cut: int, layout: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    config = load_config(root=tmp_path_factory.mktemp("root"))
    whole, manifest = install(config, recipe([[(0, 18)]]), layout)
    assert_same(whole, expected())
    rows, other = install(config, recipe([order[:cut], order[cut:]]), layout)
    assert_same(rows, expected())
    if layout == "ted":  # the other one's dictionary is made of the frames that come first
        assert other.files == manifest.files


def test_frames_that_are_read_apart_are_packed_by_default(config: Config) -> None:
    _, manifest = install(config, recipe([[(0, 18)]]))
    assert manifest.layout == "compact"
    assert not list((config.root / "tmp").glob("*/frames/*.part"))


@pytest.mark.parametrize("layout", ["ted", "compact"])
def test_workers_do_not_change_a_byte(config: Config, layout: str) -> None:
    parts = [[(3, 9), (0, 3)], [(14, 18)], [(9, 14)]]
    files = [install(config, recipe(parts), layout, workers)[1].files for workers in (0, 2)]
    assert files[0] == files[1]


@pytest.mark.parametrize(
    ("parts", "problem", "layout"),
    [
        ([[(0, 4), (6, 18)]], "frame of record 4 is missing", "ted"),
        ([[(0, 12)]], "frame of record 12 is missing", "compact"),
        ([[(0, 18)], [(10, 11)]], "frame of record 9 occurs twice", "ted"),
        ([[(0, 18)], [(10, 11)]], "frame of record 9 occurs twice", "compact"),
        # Of the final steps 7 and 8, which are no records.
        ([[(0, 7), (8, 18)], [(8, 9)]], "frame of record 20 is missing", "ted"),
        ([[(0, 18)], [(8, 9)]], "frame of record 21 occurs twice", "compact"),
    ],
)
def test_frames_that_are_missing_or_double_are_refused(
    config: Config, parts: list[Part], problem: str, layout: str
) -> None:
    with pytest.raises(SourceError, match=f"test/steps: the {problem}"):
        install(config, recipe(parts), layout)
    assert not list((config.root / "tmp").iterdir())


@pytest.mark.parametrize("workers", [0, 2])
def test_a_part_that_cannot_be_read_is_refused(config: Config, workers: int) -> None:
    with refused(SourceError, found="EOFError: no more"):
        install(config, recipe([[(0, 9)], [(9, 18)]], broken), "ted", workers)
    assert not list((config.root / "tmp").iterdir())


def test_a_worker_that_dies_is_reported_and_leaves_nothing(config: Config) -> None:
    with pytest.raises(RldsError, match="A worker process died"):
        install(config, recipe([[(0, 9)], [(9, 18)]], killed), "ted", workers=2)
    assert not list((config.root / "tmp").iterdir())


def test_frames_that_do_not_fit_on_the_disk_are_not_begun(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = SimpleNamespace(total=1 << 40, free=2 * 14 * 36 * 36 - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free)
    with refused(DiskFull, found=36287):
        install(config, recipe([[(0, 18)]]), "ted")
    free.free += 1
    assert_same(install(config, recipe([[(0, 18)]]), "ted")[0], expected())
