"""docs/format.md is enough to read a dataset: a reader written from it finds all values."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import datasets_cli
from datasets_cli.config import Config
from datasets_cli.schema.columns import ITEM_BYTES, numpy_dtype
from datasets_cli.store.arrays import open_arrays
from datasets_cli.store.manifest import LAYOUTS, Manifest
from tests.support import format_reader
from tests.support.format_reader import FormatReader
from tests.support.paths import PROJECT

DEMOS = ("demo/door-human", "demo/door-minari", "demo/iris", "demo/pong")
LENGTHS = (9, 1, 12)


def steps() -> dict[Any, np.ndarray]:
    """Steps of every dtype, of text, frames, and names that a disk cannot have."""
    rng, count = np.random.default_rng(0), sum(LENGTHS)
    missions = [f"go to {number % 3} é" for number in range(count)]
    missions[4] = b"\xff?".decode(errors="surrogateescape")
    columns: dict[Any, np.ndarray] = {
        ("observation", "pixels"): rng.integers(0, 4, (count, 40, 40), np.uint8),
        ("observation", "mission"): np.array(missions, object),
        ("action",): rng.normal(size=(count, 2)),
        ("reward",): rng.normal(size=count),
        ("terminated",): np.arange(count) == count - 1,
        ("info", "words"): np.array([[text, ""] for text in missions], object),
        ("info", "empty"): np.zeros((count, 0), np.float32),
    }
    for name, size in ITEM_BYTES.items():
        values = rng.integers(0, 2 if name == "bool" else 100, (count, 3 * size), np.uint8)
        columns["info", "types", name] = values.view(numpy_dtype(name))
    for key in (("shape",), ("final", "x"), ("text", "a.json", "b"), ("TEXT~",), ("é %/:",)):
        columns["info", *key] = columns[key] = np.arange(count)
    for key in ((".",), ("..", "x.memmap~"), ("_names~",), ("Final",), ("a.zst",)):
        columns[key] = np.arange(count)
    return columns


def compare(id: str) -> Manifest:
    """Compare every value of the reader with the package; return the manifest."""
    datasets_cli.verify(id, deep=True)
    folder = Path(str(datasets_cli.dataset_path(id)))
    reader, dataset = FormatReader(folder), open_arrays(folder)
    keys = frozenset(column.key for column in dataset.manifest.all_columns)
    package = dataset.arrays_of(keys).run(0, len(dataset))
    check(reader.rows(), {key: package[key] for key in keys})
    final = dataset.final
    check(reader.final(), {key: final[key] for key in final.keys} if len(final) else {})
    assert reader.offsets.tolist() == dataset.starts.tolist()
    return dataset.manifest


def check(found: dict[tuple[str, ...], Any], package: dict[tuple[str, ...], Any]) -> None:
    assert found.keys() == package.keys()
    for key, values in package.items():
        if values.dtype == object:
            assert found[key] == values.reshape(len(values), -1).tolist(), key
        else:
            assert found[key].tobytes() == np.ascontiguousarray(values).tobytes(), key


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("id", DEMOS)
def test_every_demo_is_read_from_the_page_alone(id: str, layout: str, config: Config) -> None:
    datasets_cli.download(id, layout=layout)
    manifest = compare(id)
    assert manifest.layout == layout
    assert (manifest.final_steps > 0) == (id in ("demo/door-human", "demo/pong"))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_dtype_name_and_kind_of_column_is_read_from_it(layout: str, config: Config) -> None:
    datasets_cli.create_dataset("mine/all", steps(), lengths=LENGTHS, layout=layout)
    manifest = compare("mine/all")
    assert (manifest.final_steps, manifest.final_steps_alone, len(manifest.texts)) == (2, 1, 3)
    assert {column.dtype for column in manifest.columns} >= ITEM_BYTES.keys()


def test_a_dictionary_of_frames_is_read_from_it(config: Config) -> None:
    shots = np.repeat(np.arange(200, dtype=np.uint8), 32 * 32).reshape(200, 32, 32)
    columns = {"observation": shots, "action": np.arange(200), "reward": np.ones(200)}
    datasets_cli.create_dataset("mine/shots", columns, lengths=[200])
    assert "frames/observation.zst.dictionary" in compare("mine/shots").files


def test_the_reader_knows_the_page_alone() -> None:
    source = Path(format_reader.__file__).read_text(encoding="utf-8")
    assert "import datasets_cli" not in source and "from datasets_cli" not in source
    page = (PROJECT / "docs" / "format.md").read_text(encoding="utf-8")
    entries = {field.name for field in dataclasses.fields(Manifest)} | {"digest", "rewards"}
    for name in (*format_reader.SIZES, *format_reader.ENDINGS, *format_reader.RESERVED, *entries):
        assert f"`{name}`" in page, name
