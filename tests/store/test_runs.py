"""Rows by their numbers and in runs: as the source has them, and what is no row is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets_cli.errors import DamagedDataset
from datasets_cli.schema.bits import to_array
from datasets_cli.schema.tree import leaves_in
from datasets_cli.store.dataset import Dataset, open_dataset
from datasets_cli.store.layouts.compact_writer import CompactWriter
from datasets_cli.store.layouts.ted_writer import TedWriter
from tests.store.test_compact import Rows, pixel_rows, transitions, write

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
        with pytest.raises(IndexError):
            dataset.gather(torch.tensor(index))


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
