"""The compact layout: the same values bit for bit, each step once, in blocks of any size."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import datasets_cli
from datasets_cli import ExperienceReplay, FrameStack, ReplayBuffer, open_storage
from datasets_cli.config import Config
from datasets_cli.core.checked_json import decode
from datasets_cli.errors import DamagedDataset, SourceError
from datasets_cli.schema import columns
from datasets_cli.schema.columns import Column, Key
from datasets_cli.schema.tree import entry
from datasets_cli.sources.regular_file import sha256_of
from datasets_cli.store.dataset import Dataset, open_dataset
from datasets_cli.store.layouts import frames as dictionary
from datasets_cli.store.layouts import records as compact
from datasets_cli.store.layouts.compact_writer import CompactWriter
from datasets_cli.store.layouts.frames import FrameReader, FrameWriter
from datasets_cli.store.layouts.records import Record, lay_out
from datasets_cli.store.layouts.ted_writer import TedWriter
from datasets_cli.store.manifest import Manifest, read_manifest, write_manifest
from tests.support.derived import preprocess
from tests.support.refusals import refused
from tests.support.values import assert_same, everything

Rows = dict[Key, np.ndarray]
DTYPES = ["float64", "float32", "float16", "int64", "uint16", "uint8", "bool", "complex64"]


def transitions(lengths: list[int], seed: int, *, shared: bool = True) -> Rows:
    """Random TED rows of trajectories of these lengths, every element type, NaN and -0.0."""
    rng = np.random.default_rng(seed)
    num_rows, num_steps = sum(lengths), sum(lengths) + len(lengths)
    starts = np.cumsum([0, *(length + 1 for length in lengths)])[:-1]
    row = np.concatenate([np.arange(n) + s for n, s in zip(lengths, starts, strict=True)])
    rows: Rows = {}
    for dtype in DTYPES:
        steps = rng.integers(0, 2 if dtype == "bool" else 250, (num_steps, 3)).astype(dtype)
        if np.dtype(dtype).kind == "f":
            steps[rng.random(steps.shape) < 0.2] = rng.choice([np.nan, -0.0, np.inf])
        rows["observation", dtype] = steps[row]
        rows["next", "observation", dtype] = steps[row + 1].copy()
    if not shared:
        rows["next", "observation", "float32"][0] += 1
    done = np.zeros((num_rows, 1), np.bool_)
    done[np.cumsum(lengths) - 1] = True
    flags = {("next", "done"): done, ("next", "terminated"): done & (rng.random(done.shape) < 0.5)}
    rows |= flags | {("next", "truncated"): done & ~flags["next", "terminated"]}
    rows["action",] = rng.normal(size=(num_rows, 2))
    rows["next", "reward"] = rng.normal(size=(num_rows, 1)).astype("float32")
    rows["info", "scalar"] = rng.integers(0, 9, num_rows)
    rows["info", "empty"] = np.zeros((num_rows, 0), "float32")
    rows["info", "same"] = np.full((num_rows, 2), 7, "int16")
    for name in ("done", "terminated", "truncated"):
        rows[name,] = np.zeros_like(done)
    return rows


def final_of(rows: Rows, numbers: list[tuple[int, int]]) -> Rows:
    """Return final steps with values of the first rows, and these trajectories and numbers."""
    made = {("episode",), ("done",), ("terminated",), ("truncated",), ("next", "done")}
    final = {
        key: values[: len(numbers)]
        for key, values in rows.items()
        if key not in made and key[:2] != ("next", "observation")
    }
    episodes, steps = np.array(numbers).T
    return final | {("episode",): episodes, ("recorded_step",): steps}


def write(
    kind: Any,
    folder: Path,
    rows: Rows,
    cut: int = 5,
    final: list[tuple[int, int]] | None = None,
    **known: Any,
) -> Dataset:
    """Write rows in runs of ``cut`` and open what was written."""
    writer = kind(folder, "test/rows", **known)
    num_rows = len(rows["action",])
    with closing(writer):
        for start in range(0, num_rows, cut):
            writer.write({key: values[start : start + cut] for key, values in rows.items()})
        if final:
            writer.write_final(final_of(rows, final))
        written = writer.finish({})
    fields = {name: getattr(written, name) for name in vars(written)}
    write_manifest(folder, Manifest(id="test/rows", **fields))
    return open_dataset(folder)


@settings(max_examples=12)
@given(
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6),
    seed=st.integers(0, 99),
    shared=st.booleans(),
    cut=st.integers(1, 30),
)
def test_there_and_back_gives_the_same_files(
    lengths: list[int], seed: int, shared: bool, cut: int, tmp_path_factory: Any
) -> None:
    folder = tmp_path_factory.mktemp("layouts")
    rows = transitions(lengths, seed, shared=shared)
    ted = write(TedWriter, folder / "ted", rows, cut)
    packed = write(CompactWriter, folder / "compact", rows, cut)
    episode = np.repeat(np.arange(len(lengths)), lengths)
    assert_same(everything(packed), rows | {("episode",): episode})
    back = write(TedWriter, folder / "back", everything(packed), offsets=packed.offsets.numpy())
    assert back.manifest.files == ted.manifest.files


@pytest.mark.parametrize("kind", [TedWriter, CompactWriter])
def test_a_block_of_rows_with_frames_is_cut_into_views(tmp_path: Path, kind: Any) -> None:
    rows = pixel_rows([7, 1, 12])
    block = write(kind, tmp_path / "rows", rows).read(torch.tensor([19, 0, 6, 7, 6, 3]))
    assert len(block) == 6
    for start, stop, index in ((0, 2, [19, 0]), (2, 6, [6, 7, 6, 3])):
        part = block.arrays(start, stop)
        for key in (("observation",), ("next", "observation"), ("next", "reward"), ("done",)):
            assert np.array_equal(entry(part, key), rows[key][index]), key
        assert part["episode"].tolist() == [[2, 0], [0, 1, 0, 0]][start > 0]


def test_each_step_is_stored_once_and_constants_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "BLOCK_ROWS", 20)  # a trajectory ends with a block
    dataset = write(CompactWriter, tmp_path / "compact", transitions([40, 3, 70], 0))
    record = decode(Record, dataset.manifest.record)
    assert record.num_records == 113 + 3
    stored = {field.column.key for field in record.fields}
    assert ("observation", "float64") in stored
    assert not {key for key in stored if key[:2] == ("next", "observation")}
    constant = {field.column.key for field in record.constants}
    assert ("info", "same") in constant
    assert not constant & stored
    assert {column.key for column in record.made} == {("episode",)}


def test_constant_flags_fill_the_padding_of_a_record_and_never_make_it_longer() -> None:
    flags = [Column((f"flag{number}",), "bool", (1,)) for number in range(9)]
    wide = Column(("wide",), "int16", (1,))
    number = Column(("number",), "float32", (1,))
    fields, size, left = lay_out([(number, None)], [wide, *flags])
    assert (size, left) == (8, (wide, *flags[4:]))
    assert [field.offset for field in fields] == [0, 4, 5, 6, 7]


def test_a_small_successor_that_deviates_becomes_a_column_of_its_own(tmp_path: Path) -> None:
    dataset = write(CompactWriter, tmp_path / "compact", transitions([9, 9], 0, shared=False))
    fields = {field.column.key: field for field in decode(Record, dataset.manifest.record).fields}
    assert fields["next", "observation", "float32"].successor is None
    assert fields["observation", "float32"].successor is None
    assert fields["observation", "float64"].successor == ("next", "observation", "float64")


@given(st.lists(st.sampled_from(DTYPES), min_size=1, max_size=8), st.integers(1, 5))
def test_fields_are_aligned_and_do_not_overlap(dtypes: list[str], width: int) -> None:
    columns = [Column((f"x{n}",), dtype, (width,)) for n, dtype in enumerate(dtypes)]
    fields, size, _ = lay_out([(column, None) for column in columns])
    end = 0
    for field in fields:
        assert field.offset % np.dtype(field.column.dtype).itemsize == 0
        assert field.offset >= end
        end = field.offset + field.column.row_bytes
    assert end <= size
    assert size % 8 == 0


def test_a_long_row_map_has_wider_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = transitions([20, 30], 0)
    monkeypatch.setattr(compact, "LONG_ROW_MAP", 10)
    dataset = write(CompactWriter, tmp_path / "compact", rows)
    assert dataset.manifest.files["row.memmap"]["bytes"] == 50 * 8
    assert_same({("action",): everything(dataset)["action",]}, {("action",): rows["action",]})


# Frames


def frames_of(num: int, seed: int = 0) -> np.ndarray:
    """Random but similar frames uint8 ``[num, 36, 36]``, each different."""
    rng = np.random.default_rng(seed)
    scene = rng.integers(0, 4, (36, 36)).astype(np.uint8) * 60
    shots = np.stack([np.roll(scene, number, axis=1) for number in range(num)])
    shots[:, 0, :4] = rng.integers(0, 255, (num, 4))
    return shots


def pixel_rows(lengths: list[int]) -> Rows:
    rows = transitions(lengths, 0)
    rows = {key: values for key, values in rows.items() if "observation" not in key}
    num_steps = sum(lengths) + len(lengths)
    starts = np.cumsum([0, *(length + 1 for length in lengths)])[:-1]
    row = np.concatenate([np.arange(n) + s for n, s in zip(lengths, starts, strict=True)])
    shots = frames_of(num_steps)
    rows["observation",], rows["next", "observation"] = shots[row], shots[row + 1].copy()
    last = np.cumsum(lengths) - 1
    rows["next", "observation"][last[rows["next", "terminated"][last, 0]]] = 0
    return rows


@pytest.mark.parametrize(("lengths", "cut"), [([1], 1), ([3, 2], 64), ([700, 1, 900], 64)])
def test_frames_come_back_bit_for_bit(tmp_path: Path, lengths: list[int], cut: int) -> None:
    rows = pixel_rows(lengths)
    dataset = write(CompactWriter, tmp_path / "compact", rows, cut)
    episode = np.repeat(np.arange(len(lengths)), lengths)
    assert_same(everything(dataset), rows | {("episode",): episode})
    frames_kept = "frames/observation.zst.dictionary" in dataset.manifest.files
    assert frames_kept == (sum(lengths) > 1000)


def test_the_files_do_not_depend_on_how_rows_were_cut(tmp_path: Path) -> None:
    rows = pixel_rows([700, 1, 900])
    kinds = [write(CompactWriter, tmp_path / str(cut), rows, cut) for cut in (1, 5000)]
    assert kinds[0].manifest.files == kinds[1].manifest.files


@pytest.mark.parametrize("cut", [2, 4, 50])
def test_frames_whose_successor_is_another_are_refused_by_row(tmp_path: Path, cut: int) -> None:
    rows = pixel_rows([10, 10])
    rows["next", "observation"][13, 0, 0] += 1
    with refused(SourceError, key=("next", "observation"), row=13):
        write(CompactWriter, tmp_path / "compact", rows, cut)


def test_two_threads_read_right_frames(tmp_path: Path) -> None:
    shots = frames_of(2000)
    writer = FrameWriter(tmp_path / "x.zst", 36 * 36)
    writer.write(shots)
    writer.finish()
    reader = FrameReader(tmp_path / "x.zst", 2000, (36, 36), has_dictionary=True)

    def read(seed: int) -> bool:
        index = np.random.default_rng(seed).integers(2000, size=64)
        return np.array_equal(reader.read(index), shots[index])

    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(read, range(60)))


def test_frames_that_are_read_stay_as_they_are(tmp_path: Path) -> None:
    dataset = write(CompactWriter, tmp_path / "compact", pixel_rows([50]))
    first = dataset.gather(torch.tensor([3, 4]))["observation"]
    copy = first.clone()
    first.zero_()
    for _ in range(50):
        dataset.gather(torch.arange(20))
    assert torch.equal(dataset.gather(torch.tensor([3, 4]))["observation"], copy)
    assert not first.any()


@pytest.mark.parametrize("number", [0, 1, 7, 8])
def test_a_few_frames_need_no_dictionary(tmp_path: Path, number: int) -> None:
    writer = FrameWriter(tmp_path / "x.zst", 36 * 36)
    writer.write(frames_of(number) if number else np.zeros((0, 36, 36), np.uint8))
    writer.finish()
    kept = (tmp_path / "x.zst.dictionary").exists()
    assert kept == (number >= dictionary.FRAMES_PER_DICTIONARY_FRAME)


def test_a_dictionary_is_whole_frames_spread_over_the_first_ones() -> None:
    shots = frames_of(1000).reshape(1000, -1)
    content = np.frombuffer(dictionary.choose_dictionary(shots), np.uint8)
    chosen = dictionary.DICTIONARY_BYTES // shots.shape[1]
    assert content.tobytes() == shots[[n * 1000 // chosen for n in range(chosen)]].tobytes()
    assert dictionary.choose_dictionary(np.zeros((9, 1 << 20), np.uint8)) == b""


@pytest.mark.parametrize("name", ["x.zst", "x.zst.dictionary"])
def test_frames_that_are_damaged_say_so(tmp_path: Path, name: str) -> None:
    writer = FrameWriter(tmp_path / "x.zst", 36 * 36)
    writer.write(frames_of(100))
    writer.finish()
    path = tmp_path / name
    path.write_bytes(b"?" * path.stat().st_size)
    with pytest.raises(DamagedDataset, match="rlds verify"):
        reader = FrameReader(tmp_path / "x.zst", 100, (36, 36), has_dictionary=True)
        reader.read(np.arange(100))


# Installed datasets


def test_converting_an_installed_dataset_there_and_back(door: str, config: Config) -> None:
    folder = config.root / "datasets" / door
    before = read_manifest(folder)
    first = ExperienceReplay(door)[:100]
    assert datasets_cli.convert(door, "compact", config=config).path == folder
    assert read_manifest(folder).layout == "compact"
    assert not (folder / "observation.memmap").exists()
    assert bool((ExperienceReplay(door)[:100] == first).all())
    datasets_cli.convert(door, "ted", config=config)
    assert read_manifest(folder) == before
    assert list((config.root / "tmp").iterdir()) == []


DAMAGES: dict[str, Callable[[Path], Any]] = {
    "missing records": lambda folder: (folder / "rows.memmap").unlink(),
    "short records": lambda folder: (folder / "rows.memmap").open("r+b").truncate(64),
    "short row map": lambda folder: (folder / "row.memmap").open("r+b").truncate(64),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_damaged_compact_dataset_is_refused(
    door: str, config: Config, damage: Callable[[Path], Any]
) -> None:
    folder = datasets_cli.convert(door, "compact", config=config).path
    damage(folder)
    with refused(DamagedDataset, path=folder):
        ExperienceReplay(door)


def test_nothing_written_into_a_compact_batch_reaches_the_disk(door: str, config: Config) -> None:
    folder = datasets_cli.convert(door, "compact", config=config).path
    before = (folder / "rows.memmap").read_bytes()
    replay = ExperienceReplay(door, batch_size=16)
    replay.sample()["observation"].fill_(0)
    replay[:3]["action"].zero_()
    replay.sample()["done"].fill_(True)
    assert (folder / "rows.memmap").read_bytes() == before
    assert not replay.sample()["done"].any()


@pytest.mark.parametrize("kind", [TedWriter, CompactWriter])
@pytest.mark.parametrize("arguments", [{"device": "cpu"}, {"contiguous": True}])
def test_rows_in_memory_or_contiguous_are_the_same(
    tmp_path: Path, kind: Any, arguments: Any
) -> None:
    write(kind, tmp_path / "rows", transitions([40, 3, 70], 0))
    index = torch.tensor([112, 0, 39, 40])
    plain = open_storage(tmp_path / "rows").get(index)
    other = open_storage(tmp_path / "rows", **arguments)
    for storage in (other, pickle.loads(pickle.dumps(other))):
        batch = storage.get(index)
        for key in plain.keys(True, True):
            assert batch[key].numpy().tobytes() == plain[key].numpy().tobytes()
            assert batch[key].is_contiguous() or "contiguous" not in arguments
        batch["action"].zero_()
        assert torch.equal(storage.get(index)["action"], plain["action"])


@pytest.mark.parametrize("index", [[], slice(5, 5), torch.zeros(12, dtype=torch.bool)])
@pytest.mark.parametrize("length", [None, 3])
def test_no_rows_of_frames_are_no_frames(tmp_path: Path, index: Any, length: int | None) -> None:
    write(CompactWriter, tmp_path / "rows", pixel_rows([12]))
    storage = open_storage(tmp_path / "rows")
    buffer = ReplayBuffer(storage=FrameStack(storage, length) if length else storage)
    assert buffer[index]["observation"].shape[0] == 0


def test_frames_of_two_shapes_are_not_shared(tmp_path: Path) -> None:
    rows = pixel_rows([12])
    rows["info", "x"], rows["next", "info", "x"] = frames_of(12, 1), frames_of(12, 2)[:, :32]
    dataset = write(CompactWriter, tmp_path / "rows", rows)
    assert_same(everything(dataset), rows | {("episode",): np.zeros(12, np.int64)})


# Derived datasets


def darker(batch: Any) -> Any:
    batch["observation"] //= 2
    batch["next", "observation"] //= 2
    return batch


def test_preprocess_reads_compact_and_its_result_converts(tmp_path: Path, config: Config) -> None:
    rows = pixel_rows([20, 30])
    write(CompactWriter, tmp_path / "rows", rows)
    dest = config.root / "datasets" / "derived" / "dark"
    storage = preprocess(tmp_path / "rows", darker, dest, num_workers=0, num_frames=35)
    assert storage.dataset.manifest.layout == "compact"
    expected = {key: values[:35] for key, values in rows.items()}
    expected["observation",], expected["next", "observation"] = (
        expected[key] // 2 for key in (("observation",), ("next", "observation"))
    )
    for flag in ("done", "truncated"):
        expected["next", flag] = expected["next", flag].copy()
        expected["next", flag][-1] = True  # num_frames cuts the second trajectory
    expected["episode",] = np.repeat([0, 1], [20, 15])
    assert_same(everything(storage.dataset), expected)
    datasets_cli.convert("derived/dark", "ted", config=config)
    assert_same(everything(open_dataset(dest)), expected)


def test_trajectories_of_a_derived_dataset_need_no_flags(tmp_path: Path, config: Config) -> None:
    write(CompactWriter, tmp_path / "rows", pixel_rows([20, 30]))
    dest = config.root / "datasets" / "derived" / "frames"
    preprocess(tmp_path / "rows", lambda b: b.select("observation"), dest, num_workers=0)
    before = everything(open_dataset(dest))
    datasets_cli.convert("derived/frames", "ted", config=config)
    assert_same(everything(open_dataset(dest)), before)


def test_files_that_a_recipe_laid_beside_the_data_stay(door: str, config: Config) -> None:
    folder = config.root / "datasets" / door
    manifest = read_manifest(folder)
    (folder / "readme.txt").write_text("hello")
    entry = {"bytes": 5, "sha256": sha256_of(folder / "readme.txt")}
    files = {**manifest.files, "readme.txt": entry}
    write_manifest(folder, replace(manifest, files=files))
    datasets_cli.convert(door, "compact", config=config)
    assert (folder / "readme.txt").read_text() == "hello"


DEMOS = ["demo/iris", "demo/pong"]


@pytest.mark.parametrize(("block_rows", "row"), [(1, 4), *((3, row) for row in range(12)), (7, 6)])
def test_a_successor_that_deviates_in_any_one_row_is_kept(
    block_rows: int, row: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row may be the last of a block, whose successor is compared with the next block's."""
    monkeypatch.setattr(columns, "BLOCK_ROWS", block_rows)
    rows = transitions([5, 1, 6], seed=row)
    rows["next", "observation", "float32"][row] += 1
    found = everything(write(CompactWriter, tmp_path / "rows", rows))
    del found["episode",]
    assert_same(found, rows)


@pytest.mark.parametrize(
    ("block_rows", "layout"),
    [pytest.param(1, "ted", marks=pytest.mark.slow), (3, "compact"), (7, "ted")],
)
def test_an_installation_and_a_conversion_write_the_same_files(
    block_rows: int, layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, cut, converted = (Config(tmp_path / name) for name in ("whole", "cut", "converted"))
    datasets_cli.download(DEMOS, layout=layout, config=whole)
    monkeypatch.setattr(columns, "BLOCK_ROWS", block_rows)
    datasets_cli.download(DEMOS, layout=layout, config=cut, num_workers=0)
    other = "compact" if layout == "ted" else "ted"
    datasets_cli.download(DEMOS, layout=other, config=converted, num_workers=0)
    for id in DEMOS:
        datasets_cli.convert(id, layout=layout, config=converted)
        expected = files_of(whole, id)
        assert files_of(cut, id) == expected, id
        rows, right = (
            everything(open_dataset(each.root / "datasets" / id)) for each in (converted, whole)
        )
        assert_same(rows, right)
        if layout == "ted":  # a conversion trains its own dictionary of frames
            assert files_of(converted, id) == expected, id


def files_of(config: Config, id: str) -> dict[str, bytes]:
    """Return the files of a dataset but the manifest, which has the times of this run."""
    folder = config.root / "datasets" / id
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths} | {
        "manifest.json": b""
    }
