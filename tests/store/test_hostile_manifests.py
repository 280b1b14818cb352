"""A manifest that says anything at all: the dataset opens, or ``DamagedDataset`` says why not."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datasets_cli.errors import DamagedDataset
from datasets_cli.replay.storages.dataset import DatasetStorage
from datasets_cli.store.dataset import Dataset, open_dataset
from datasets_cli.store.manifest import LAYOUTS
from datasets_cli.store.sealed_json import seal
from datasets_cli.store.writer import LayoutWriter
from tests.store.test_compact import pixel_rows, transitions, write
from tests.store.test_manifest import changed, places
from tests.support.refusals import refused

NUM_EXAMPLES = int(os.environ.get("RLDS_TEST_MUTATIONS", "40"))

Json = dict[str, Any]
Place = tuple[str | int, ...]
LENGTHS = [9, 1, 5]
FINAL = [(0, 9), (-1, 11), (2, 17)]
"""The trajectory and the number of each final step; the second one is a trajectory alone."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    above = tmp_path_factory.mktemp("manifests")
    rows = transitions(LENGTHS, 0)
    pixels = pixel_rows(LENGTHS)
    rows |= {("pixels",): pixels["observation",], ("next", "pixels"): pixels["next", "observation"]}
    rows["mission",] = np.array([f"take {number % 7} keys" for number in range(15)], object)
    return {
        layout: write(partial(LayoutWriter, layout), above / layout, rows, final=FINAL).folder
        for layout in LAYOUTS
    }


def open_with(folder: Path, entry: Any) -> Dataset:
    """Open a dataset whose manifest is another JSON value, and read its final steps."""
    path = folder / "manifest.json"
    content = path.read_bytes()
    try:
        path.write_bytes(_sealed(entry))
        dataset = open_dataset(folder)
        read_final(dataset)
        return dataset
    finally:
        path.write_bytes(content)


def read_final(dataset: Dataset) -> None:
    final = dataset.final
    values = [final.steps, final.episodes, *(final[key] for key in final.keys)]
    assert {len(each) for each in values} == {len(final)}


def _sealed(entry: Any) -> bytes:
    """Return a manifest with the digest that it needs, where JSON can state what it says."""
    if isinstance(entry, str):
        return entry.encode()
    try:
        return seal(entry)
    except (TypeError, ValueError):
        return json.dumps(entry).encode()


NUMBERS = [-1, 0, 1, 2, 3, 8, 15, 2**31, 2**40, 2**62, 2**63, 2**64, 10**400, 1.5, 1e308]
JSON = st.recursive(
    st.sampled_from(
        [None, True, "", "..", "/", "\0", "\ud800", "a" * 5000, "uint8", "00", *NUMBERS]
    )
    | st.integers()
    | st.floats()
    | st.text(max_size=5),
    lambda inside: st.lists(inside, max_size=4) | st.dictionaries(st.text(max_size=5), inside),
    max_leaves=6,
)


@pytest.mark.parametrize("layout", ["ted", "compact"])
@settings(
    max_examples=NUM_EXAMPLES,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_another_value_anywhere(layout: str, folders: dict[str, Path], data: st.DataObject) -> None:
    folder = folders[layout]
    entry = json.loads((folder / "manifest.json").read_text())
    for _ in range(data.draw(st.integers(1, 2))):
        place = data.draw(st.sampled_from(places(entry)[1:]))
        entry = changed(entry, place, data.draw(JSON | st.just(...)))
    try:
        dataset = open_with(folder, entry)
        DatasetStorage(dataset).get(torch.arange(15))
    except DamagedDataset:
        return
    assert dataset.offsets.tolist() == [0, 9, 10, 15]


def field(entry: Json, name: str) -> Json:
    """Return the entry of a field of the record whose key ends so."""
    return next(each for each in entry["record"]["fields"] if each["key"][-1] == name)


def swap(entry: Json) -> None:
    one, other = entry["record"]["fields"][:2]
    one["offset"], other["offset"] = other["offset"], one["offset"]


def add_flag(entry: Json) -> None:
    column = {"key": ["flag"], "dtype": "bool", "shape": [2]}
    entry["columns"].append(column)
    entry["record"]["constants"].append({**column, "value": "0102"})


@pytest.mark.parametrize("name", ["next/", "next/..", "../x", "a/../x", "/x", "..\\x"])
def test_a_file_outside_the_folder_is_named_so(name: str, folders: dict[str, Path]) -> None:
    entry = json.loads((folders["compact"] / "manifest.json").read_text())
    entry["files"][name] = {"bytes": 1, "sha256": "0" * 64}
    with pytest.raises(DamagedDataset) as caught:
        open_with(folders["compact"], entry)
    assert f"{name}: the manifest names a file outside the folder" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "key", "found"),
    [
        (lambda e: e.update(num_transitions=0), "num_trajectories", 3),
        (lambda e: e.update(num_trajectories=16), "num_trajectories", 16),
        (lambda e: e.update(columns=[], texts=[]), "columns", []),
        (lambda e: e["columns"][0].update(key=["x"] * 65), "columns[0].key", ["x"] * 65),
        (lambda e: e["columns"][0].update(shape=[-1]), "columns[0].shape[0]", -1),
        (lambda e: e.update(files=[]), "files", []),
        (lambda e: e["files"].update(x={"bytes": -1, "sha256": "0"}), "files.x.bytes", -1),
        (lambda e: e["files"].update(x={"bytes": 1}), "files.x.sha256", None),
        (lambda e: e["record"].update(num_records=17), "record.num_records", 17),
        (lambda e: e["record"].update(record_bytes=12), "record.record_bytes", 12),
        (lambda e: e["record"].update(record_bytes=8), "record.fields", ...),
        (lambda e: e["record"].pop("made"), "record.made", None),
        (lambda e: e["record"]["fields"].pop(), "record", 0),
        (lambda e: field(e, "action").update(offset=-8), "record.fields[{action}].offset", -8),
        (
            lambda e: field(e, "action").update(offset=10**30),
            "record.fields[{action}].offset",
            10**30,
        ),
        (
            lambda e: field(e, "action").update(successor="x"),
            "record.fields[{action}].successor",
            "x",
        ),
        (lambda e: field(e, "float32").update(successor=None), "record", 0),
        (swap, "record.fields", ...),
        (
            lambda e: e["record"]["constants"][0].update(value="0"),
            "record.constants[0].value",
            "0",
        ),
        (lambda e: e["record"]["constants"][0].update(value="00" * 99), "record.constants", 99),
        (lambda e: e["record"]["constants"].append(e["record"]["constants"][0]), "record", 2),
        (add_flag, "record.constants", "0102"),
        (
            lambda e: e["record"]["made"][0].update(dtype="int32"),
            "record.made",
            "episode int32 []",
        ),
        (lambda e: e["record"]["frames"][0].update(dtype="int8"), "record.frames", ...),
        (lambda e: e["record"]["frames"][0].update(shape=[36, 0]), "record.frames", ...),
        (lambda e: e["record"]["frames"][0].update(shape=[36, 35]), "record", 0),
    ],
)
def test_each_contradiction_is_named(
    change: Callable[[Json], None], key: str, found: object, folders: dict[str, Path]
) -> None:
    entry = json.loads((folders["compact"] / "manifest.json").read_text())
    keys = [each["key"][-1] for each in entry["record"]["fields"]]
    change(entry)
    attributes = {"key": key.format(action=keys.index("action"))}
    if found is not ...:
        attributes["found"] = found
    with refused(DamagedDataset, **attributes):
        open_with(folders["compact"], entry)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("number", [-1, 1.5, "3", 2, 4, 2**47, 2**48, 2**63, 10**400])
def test_another_number_of_final_steps_is_refused(
    number: Any, layout: str, folders: dict[str, Path]
) -> None:
    entry = json.loads((folders[layout] / "manifest.json").read_text())
    assert (entry["final_steps"], entry["final_steps_alone"]) == (3, 1)
    with pytest.raises(DamagedDataset):
        open_with(folders[layout], entry | {"final_steps": number})
    if number != 2:
        with pytest.raises(DamagedDataset):
            open_with(folders[layout], entry | {"final_steps_alone": number})
