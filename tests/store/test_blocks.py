"""Rows are the same however many of them are handled at a time: 1, 3 or 7."""

from __future__ import annotations

from pathlib import Path

import pytest

import datasets_cli
from datasets_cli.config import Config
from datasets_cli.schema import columns
from datasets_cli.store.dataset import open_dataset
from datasets_cli.store.layouts.compact_writer import CompactWriter
from tests.store.test_compact import transitions, write
from tests.support.values import assert_same, everything

BLOCKS = [1, 3, 7]
NUM_ROWS = 12
DEMOS = ["demo/iris", "demo/pong"]


@pytest.mark.parametrize("block_rows", BLOCKS)
@pytest.mark.parametrize("row", range(NUM_ROWS))
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
