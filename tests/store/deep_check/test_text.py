"""Verifying reads text too: codes and offsets that were written wrong are named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from datasets_cli.config import Config
from datasets_cli.core.progress import silent
from datasets_cli.errors import DamagedDataset
from datasets_cli.store import deep_check as offsets
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.commit import commit_folder
from datasets_cli.store.dataset import open_dataset
from datasets_cli.store.deep_check import deep_check
from datasets_cli.store.layouts.ted_writer import describe_files
from datasets_cli.store.manifest import read_manifest, write_manifest
from datasets_cli.verbs.verify import verify_deep
from datasets_cli.verbs.verify import verify_installed as verify
from tests.support.refusals import refused
from tests.support.text_rows import ID, objects, steps_of, write

CODES = "text/observation/mission.memmap"
PAIRS = "text/info/pair.memmap"


@pytest.fixture(params=["ted", "compact"])
def folder(request: pytest.FixtureRequest, config: Config, tmp_path: Path) -> Path:
    """Return an installed dataset of 14 rows, whose values take 0, 1, 2 and 3 bytes."""
    more = {("info", "pair"): objects(["a", "bb"] * 14, (2,))}
    made = write(tmp_path, request.param, steps_of(["a", "bb", "ccc"]) | more)
    place = CacheRoot(config.root).dataset(ID)
    commit_folder(made, place, read_manifest(made))
    return place


def edit(folder: Path, name: str, dtype: str, change: Callable[[np.ndarray], object]) -> None:
    """Change a file and what the manifest says of it, as if it had been written so."""
    values = np.fromfile(folder / name, dtype)
    change(values)
    values.tofile(folder / name)
    manifest = read_manifest(folder)
    files = {**manifest.files, **describe_files(folder, [name])}
    write_manifest(folder, replace(manifest, files=files))


def put(place: int, value: int) -> Callable[[np.ndarray], object]:
    return lambda values: values.__setitem__(place, value)


def test_text_without_fault_is_verified(folder: Path, config: Config) -> None:
    verify(ID, config)
    manifest, report = verify_deep(ID, config)
    assert {column.key for column in report.columns} == {c.key for c in manifest.columns}


@pytest.mark.parametrize(
    ("name", "width", "value", "chunk"), [(CODES, 1, -1, 3), (CODES, 1, 4, 1000), (PAIRS, 2, 4, 3)]
)
def test_a_code_without_a_value_is_named_with_its_row(
    folder: Path,
    config: Config,
    value: int,
    chunk: int,
    name: str,
    width: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(offsets, "CHUNK_ROWS", chunk)
    edit(folder, name, "<i4", put(5 * width, value))
    verify(ID, config)  # reads the first row and the last one
    message = f"{name}: row 5 has the code {value}; expected one from 0 to 3"
    with pytest.raises(DamagedDataset, match=message):
        verify_deep(ID, config)


def test_the_first_and_last_rows_are_always_read(folder: Path, config: Config) -> None:
    edit(folder, CODES, "<i4", put(13, 4))
    with refused(DamagedDataset, key=("observation", "mission"), row=13, found=4):
        verify(ID, config)


@pytest.mark.parametrize("chunk", [1, 1000])
def test_offsets_of_text_rise(folder: Path, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "CHUNK_ROWS", chunk)
    starts = np.fromfile(folder / "text.offsets", "<i8")
    edit(folder, "text.offsets", "<i8", put(2, int(starts[3]) + 1))
    with pytest.raises(DamagedDataset, match=r"text\.offsets: value 2 goes from byte"):
        deep_check(open_dataset(folder), silent)


@pytest.mark.parametrize("place", [0, -1])
def test_offsets_of_text_begin_and_end_where_the_values_do(
    folder: Path, config: Config, place: int
) -> None:
    edit(folder, "text.offsets", "<i8", lambda values: put(place, values[place] + 1)(values))
    with pytest.raises(DamagedDataset, match=r"text\.offsets: goes from byte .* expected 0 to 6"):
        deep_check(open_dataset(folder), silent)
    with refused(DamagedDataset, expected="0 and 6"):
        verify(ID, config)
