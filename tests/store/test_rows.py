"""Rows of an opened dataset: gathered, selected, in runs, and mapped from files."""

from __future__ import annotations

import gc
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import datasets_cli
from datasets_cli.config import Config
from datasets_cli.core.progress import silent
from datasets_cli.errors import DamagedDataset
from datasets_cli.schema.bits import MOVABLE, join_tensors, stack_tensors, take, to_array
from datasets_cli.schema.mapped_bytes import map_descriptor
from datasets_cli.schema.mapping import map_file
from datasets_cli.schema.summary import RunningMoments, RunningStatistics
from datasets_cli.schema.trajectories import (
    ends_of,
    first_rows,
    lengths_of,
    num_records,
    numbers_of,
    offsets_from_ends,
    record_of,
    runs_within,
)
from datasets_cli.schema.tree import leaves_in
from datasets_cli.store.dataset import Dataset, open_dataset
from datasets_cli.store.layouts.compact_writer import CompactWriter
from datasets_cli.store.layouts.ted_writer import TedWriter
from datasets_cli.store.selection import SelectedRowMap, Selection
from tests.store.test_compact import Rows, pixel_rows, transitions, write
from tests.support.processes import Child

NUM_ROWS = 50
SHAPES = [(), (1,), (17,), (3, 2), (0,)]


def of_every_type(num_rows: int = NUM_ROWS) -> list[torch.Tensor]:
    torch.manual_seed(0)
    bits = [torch.randint(0, 2, (num_rows, *shape, 16), dtype=torch.uint8) for shape in SHAPES]
    types = sorted(MOVABLE, key=str)
    return [
        rows[..., : dtype.itemsize].clone().view(dtype)[..., 0] for rows in bits for dtype in types
    ]


@pytest.mark.parametrize("size", [0, 1, 7, 4096])
def test_rows_of_every_type_and_shape_are_those_of_plain_indexing(size: int) -> None:
    index = torch.randint(NUM_ROWS, (size,))
    for tensor in of_every_type():
        taken = take(tensor, index)
        assert taken.dtype == tensor.dtype
        assert torch.equal(taken, tensor[index])
        assert not taken.nbytes or taken.data_ptr() != tensor.data_ptr()


@pytest.mark.parametrize("wrong", [-1, -NUM_ROWS, -NUM_ROWS - 1, NUM_ROWS, 1 << 40])
def test_number_of_no_row_is_refused(wrong: int) -> None:
    for tensor in of_every_type():
        with pytest.raises(IndexError):
            take(tensor, torch.tensor([0, wrong, 3]))


def test_no_rows_of_no_rows_are_none() -> None:
    for tensor in of_every_type(0):
        assert len(take(tensor, torch.empty(0, dtype=torch.int64))) == 0


@pytest.mark.parametrize("marked", [torch.conj, lambda rows: rows.conj().imag], ids=["conj", "neg"])
def test_rows_that_torch_marks_as_changed_have_the_changed_values(marked: object) -> None:
    rows = marked(torch.randn(NUM_ROWS, 3, dtype=torch.complex64))
    index = torch.tensor([3, 0, 49])
    assert torch.equal(take(rows, index), rows[index])


def test_gradients_go_through_rows_that_have_some() -> None:
    rows = torch.randn(NUM_ROWS, 3, requires_grad=True)
    take(rows, torch.tensor([2, 2])).sum().backward()
    assert rows.grad is not None and rows.grad.sum(1).tolist() == [0, 0, 6, *[0] * 47]


@pytest.mark.parametrize("dim", [0, 1])
def test_joined_tensors_of_every_type_are_those_of_plain_joining(dim: int) -> None:
    for tensor in of_every_type():
        if tensor.ndim > dim:
            expected = torch.cat([tensor, tensor[:, :1] if dim else tensor[:3]], dim)
            joined = join_tensors([tensor, tensor[:, :1] if dim else tensor[:3]], dim)
            assert joined.dtype == tensor.dtype and torch.equal(joined, expected)


@pytest.mark.parametrize("size", [1, 3000, 40_000])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.bfloat16, torch.uint16])
def test_stacked_tensors_are_their_rows_in_order(size: int, dtype: torch.dtype) -> None:
    numbers = torch.arange(25 * size).view(25, size) % 251
    items = [row.to(dtype) for row in numbers]
    stacked = stack_tensors(items)
    assert stacked.dtype == dtype and torch.equal(stacked.long(), numbers)


@pytest.mark.parametrize("odd", [torch.zeros(2999), torch.zeros(3000).double()])
def test_items_that_differ_are_stacked_as_torch_does_or_refused(odd: torch.Tensor) -> None:
    items = [torch.zeros(3000)] * 12 + [odd] * 10
    if len(odd) < 3000:
        with pytest.raises(RuntimeError):
            stack_tensors(items)
    else:
        assert stack_tensors(items).dtype == torch.float64


def test_a_few_rows_of_a_dataset_of_billions_are_found() -> None:
    offsets = np.array([0, 4, 2**31, 2**31 + 4])
    parts = Selection("", np.array([2, 0]), np.array([1, 2]), np.array([3, 2]))
    rows = SelectedRowMap(parts, offsets).rows(torch.arange(5))
    assert rows.tolist() == [2**31 + 1, 2**31 + 2, 2**31 + 3, 2, 3]


WRITERS = {"ted": TedWriter, "compact": CompactWriter}
NAMES = ["ted numbers", "ted frames", "compact numbers", "compact frames"]


def values_of(tree: Any) -> dict[Any, tuple[Any, ...]]:
    arrays = {key: to_array(leaf) for key, leaf in leaves_in(tree)}
    return {key: (leaf.dtype, leaf.shape, leaf.tobytes()) for key, leaf in arrays.items()}


def of_source(rows: Rows, start: int, stop: int) -> dict[Any, tuple[Any, ...]]:
    parts = {key: values[start:stop] for key, values in rows.items()}
    return {key: (part.dtype, part.shape, part.tobytes()) for key, part in parts.items()}


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Rows, Dataset]]:
    folder = tmp_path_factory.mktemp("runs")
    lengths = [3, 1, 1, 20, 2]
    episode = {("episode",): np.repeat(np.arange(len(lengths)), lengths)}
    sources = {"numbers": transitions(lengths, 0, shared=False), "frames": pixel_rows(lengths)}
    return {
        f"{layout} {name}": (rows | episode, write(kind, folder / layout / name, rows))
        for layout, kind in WRITERS.items()
        for name, rows in sources.items()
    }


@settings(max_examples=30)
@given(data=st.data())
@pytest.mark.parametrize("name", NAMES)
def test_every_run_has_the_rows_of_the_source(
    name: str, datasets: Any, data: st.DataObject
) -> None:
    rows, dataset = datasets[name]
    start = data.draw(st.integers(0, len(dataset)))
    stop = data.draw(st.integers(start, len(dataset)))
    assert values_of(dataset.run(start, stop)) == of_source(rows, start, stop)
    chosen = data.draw(st.sets(st.sampled_from(sorted(rows)), min_size=1))
    some = {key: rows[key] for key in chosen}
    assert values_of(dataset.rows_of(frozenset(chosen)).run(start, stop)) == of_source(
        some, start, stop
    )


@pytest.mark.parametrize("run", [(-1, 3), (0, 28), (5, 4), (28, 28)])
@pytest.mark.parametrize("layout", WRITERS)
def test_a_run_of_no_rows_that_are_there_is_refused(
    layout: str, run: tuple[int, int], datasets: Any
) -> None:
    _, dataset = datasets[f"{layout} numbers"]
    with pytest.raises(IndexError):
        dataset.rows_of(frozenset([("action",)])).run(*run)


@pytest.mark.parametrize("number", [-1, 27, 28, -(2**63), 2**63 - 1])
@pytest.mark.parametrize("name", NAMES)
def test_a_number_of_no_row_is_refused(name: str, number: int, datasets: Any) -> None:
    _, dataset = datasets[name]
    for index in ([number], [0, number, 3]):
        for read in (dataset.gather, dataset.read):
            with pytest.raises(IndexError):
                read(torch.tensor(index))


@pytest.mark.parametrize("width", [1, 3, 12, 100])
@pytest.mark.parametrize("num_rows", [1, 5])
def test_records_of_any_size_come_back(width: int, num_rows: int, tmp_path: Path) -> None:
    bits = np.random.default_rng(0).integers(0, 2, (num_rows, width), np.uint8)
    done = np.arange(num_rows)[:, None] == num_rows - 1
    none = np.zeros_like(done)
    flags = {(name,): none for name in ("done", "terminated", "truncated")}
    flags |= {("next", "done"): done, ("next", "terminated"): none, ("next", "truncated"): done}
    dataset = write(CompactWriter, tmp_path / "rows", flags | {("action",): bits})
    index = torch.arange(num_rows).flip(0)
    assert np.array_equal(dataset.gather(index)["action"].numpy(), bits[::-1])
    assert np.array_equal(dataset.run(0, num_rows)["action"].numpy(), bits)


@pytest.mark.parametrize("entry", [-1, -(2**31), 2**31 - 1, 31])
@pytest.mark.parametrize("row", [0, 3, 26])
def test_a_wrong_record_of_a_row_is_damage_in_a_batch_and_in_a_run(
    row: int, entry: int, tmp_path: Path
) -> None:
    write(CompactWriter, tmp_path / "rows", transitions([3, 1, 1, 20, 2], 0))
    path = tmp_path / "rows" / "row.memmap"
    records = np.fromfile(path, np.int32)
    records[row] = entry  # 27 rows and 5 trajectories are 32 records: the last row has number 30
    records.tofile(path)
    dataset = open_dataset(tmp_path / "rows")
    for read in (lambda: dataset.gather(torch.tensor([1, row, 2])), lambda: dataset.run(0, 27)):
        with pytest.raises(DamagedDataset) as caught:
            read()
        assert (caught.value.row, caught.value.found) == (row, entry)


LENGTHS = st.lists(st.integers(1, 5), min_size=1, max_size=8)


@given(lengths=LENGTHS, data=st.data())
def test_every_form_of_a_table_says_the_same(lengths: list[int], data: st.DataObject) -> None:
    numbers = np.repeat(np.arange(len(lengths)), lengths)
    num_rows = len(numbers)
    is_end = np.append(numbers[1:] != numbers[:-1], True)
    offsets = offsets_from_ends(np.flatnonzero(is_end), num_rows)
    assert lengths_of(offsets).tolist() == lengths
    start = data.draw(st.integers(0, num_rows))
    stop = data.draw(st.integers(start, num_rows))
    assert numbers_of(offsets, start, stop).tolist() == numbers[start:stop].tolist()
    assert numbers_of(offsets, start, stop).dtype == np.int64
    assert ends_of(offsets, start, stop).tolist() == is_end[start:stop].tolist()


@given(lengths=LENGTHS, data=st.data())
def test_first_rows_cut_the_last_trajectory(lengths: list[int], data: st.DataObject) -> None:
    offsets = np.cumsum([0, *lengths])
    num_rows = data.draw(st.integers(1, int(offsets[-1])))
    cut = first_rows(offsets, num_rows)
    assert cut[-1] == num_rows and (lengths_of(cut) > 0).all()
    assert numbers_of(cut, 0, num_rows).tolist() == numbers_of(offsets, 0, num_rows).tolist()


@given(lengths=LENGTHS, data=st.data())
def test_runs_within_rows_are_those_of_their_numbers(
    lengths: list[int], data: st.DataObject
) -> None:
    offsets = np.cumsum([0, *lengths])
    start = data.draw(st.integers(0, int(offsets[-1]) - 1))
    stop = data.draw(st.integers(start + 1, int(offsets[-1])))
    numbers = np.repeat(np.arange(len(lengths)), lengths)[start:stop].tolist()
    found, starts = runs_within(offsets, start, stop)
    assert [*range(len(lengths))[found]] == sorted(set(numbers))
    assert starts.tolist() == [numbers.index(number) for number in sorted(set(numbers))]


@given(lengths=LENGTHS)
def test_records_count_a_step_more_than_rows_in_every_trajectory(lengths: list[int]) -> None:
    offsets = np.cumsum([0, *lengths])
    found = [
        record_of(offsets, trajectory, position)
        for trajectory, length in enumerate(lengths)
        for position in range(length + 1)
    ]
    assert found == list(range(num_records(offsets)))


@given(
    st.lists(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9), min_size=1, max_size=6),
)
def test_moments_of_blocks_are_those_of_all_numbers(blocks: list[list[float]]) -> None:
    whole = np.array([value for block in blocks for value in block])
    statistics = RunningStatistics()
    rows = RunningMoments(np.zeros(2), np.zeros(2))
    for block in blocks:
        values = np.array(block)
        statistics.add(values)
        pairs = np.stack([values, -values], axis=1)
        rows.merge(pairs.mean(0), ((pairs - pairs.mean(0)) ** 2).sum(0), len(pairs))
    expected = whole.mean(), whole.std(), whole.min(), whole.max()
    found = statistics.to_json()
    assert [found["mean"], found["std"]] == pytest.approx(expected[:2], rel=1e-6, abs=1e-3)
    assert (found["min"], found["max"]) == expected[2:]
    assert rows.count == len(whole)
    assert rows.mean == pytest.approx(np.array([whole.mean(), -whole.mean()]), abs=1e-3)
    deviation = np.sqrt(rows.squares / rows.count)
    assert deviation == pytest.approx(np.full(2, whole.std()), rel=1e-6, abs=1e-3)


def test_statistics_of_nothing_and_of_no_number_are_none() -> None:
    assert set(RunningStatistics().to_json().values()) == {None, 0.0}
    statistics = RunningStatistics()
    statistics.add(np.array([1.0, np.nan]))
    assert set(statistics.to_json().values()) == {None}


def mappings(path: Path) -> int:
    return Path("/proc/self/maps").read_text().count(str(path))


def num_descriptors() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def open_many(_: object, folder: Path, count: int) -> tuple[int, list[int]]:
    """Open a dataset many times with few descriptors; return how many took any, and lengths."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
    before = num_descriptors()
    datasets: list[Dataset] = [open_dataset(folder, text=True) for _ in range(count)]
    lengths = [len(dataset.run(0, 2)["action"]) for dataset in datasets]
    return num_descriptors() - before, lengths


@pytest.mark.parametrize(("id", "layout"), [("demo/pong", "compact")])
def test_two_hundred_datasets_are_open_with_256_descriptors(
    id: str, layout: str, config: Config
) -> None:
    done = datasets_cli.download(id, layout=layout, progress=silent, config=config)
    child = Child("spawn", open_many, Path(done.datasets[0].path), 200)
    assert child.result() == (0, [2] * 200)


def test_a_mapping_lives_as_long_as_what_reads_it_and_no_longer(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    np.arange(4096, dtype="<i8").tofile(path)
    tail = map_file(path, torch.int64, (4096,))[4000:].numpy()[::2]
    path.unlink()
    gc.collect()
    assert tail.tolist() == [*range(4000, 4096, 2)] and mappings(path) == 1
    del tail
    gc.collect()
    assert mappings(path) == 0


def test_what_is_mapped_cannot_be_written_and_a_wrong_descriptor_is_an_error(
    tmp_path: Path,
) -> None:
    (tmp_path / "rows").write_bytes(b"abc")
    with (tmp_path / "rows").open("rb") as file:
        mapped = map_descriptor(file.fileno(), 3)
    assert bytes(mapped) == b"abc" and mapped.readonly
    with pytest.raises(OSError, match=r"Bad file descriptor"):
        map_descriptor(-1, 3)
