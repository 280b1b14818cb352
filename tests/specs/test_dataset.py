"""Specs of installed datasets and of Minari's catalogue."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from datasets_cli import (
    Bounded,
    Categorical,
    Composite,
    ExperienceReplay,
    MultiCategorical,
    NonTensor,
    Unbounded,
    spec_from_gymnasium,
)
from datasets_cli.specs import Binary
from datasets_cli.specs.gymnasium_spaces import dataset_specs, spec_of_space
from tests.support import minari_files as files
from tests.support.paths import DEMO_DATA, PROJECT, TEST_DATA

# The specs of installed datasets.


FLAG = Categorical(2, (1,), dtype=torch.bool)


def opened(folder: Path, name: str = files.NAME, **options: object) -> ExperienceReplay:
    return ExperienceReplay(f"minari/{name}", source=str(folder), **options)  # type: ignore[arg-type]


def test_a_minari_dataset_has_the_spaces_of_its_publisher(tmp_path: Path) -> None:
    replay = opened(files.unpack_door(tmp_path / "minari"), "D4RL/door/human-v2", batch_size=64)
    specs = replay.specs
    assert specs["action"] == Bounded(-1, 1, (28,))
    assert specs["observation"] == Unbounded((39,), dtype=torch.float64)
    assert specs["next", "observation"] == specs["observation"]
    assert specs["next", "reward"] == Unbounded((1,), dtype=torch.float64)
    assert specs["next", "terminated"] == specs["done"] == FLAG
    assert specs["info", "success"] == Unbounded((), dtype=torch.bool)
    assert specs.is_in(replay.sample())


def test_other_data_has_the_shapes_and_element_types_of_its_columns(door: str) -> None:
    replay = ExperienceReplay(door, batch_size=64)
    assert replay.specs["action"] == Unbounded((28,))
    assert replay.specs["next", "done"] == FLAG
    assert replay.specs.is_in(replay.sample())


BUILDS: list[tuple[Callable[[], Path], dict[tuple[str, ...], object]]] = [
    (
        files.tuples,
        {
            ("observation", "1", "0"): Categorical(5),
            ("observation", "0"): Unbounded((3,)),
            ("action", "1"): Categorical(4),
        },
    ),
    (
        files.discrete,
        {
            ("observation",): Categorical(16),
            ("next", "observation"): Categorical(16),
            ("action",): Bounded(1, 4, (), dtype=torch.int64),
        },
    ),
    (
        files.multi,
        {
            ("observation", "bits"): Binary(6),
            ("next", "observation", "dice"): MultiCategorical([3, 9]),
            ("action",): MultiCategorical([[2, 3], [4, 5]]),
        },
    ),
    (files.no_spaces, {("action",): Unbounded((), dtype=torch.int64)}),
    (files.raw_frames, {}),
    (
        files.nested,
        {("observation", "achieved_goal", "kettle"): Unbounded((7,), dtype=torch.float64)},
    ),
]


@pytest.mark.parametrize(
    ("build", "expected"), BUILDS, ids=lambda part: getattr(part, "__name__", "")
)
def test_every_row_is_in_the_specs(
    build: Callable[[], Path], expected: dict[tuple[str, ...], object]
) -> None:
    replay = opened(build())
    assert {key: replay.specs[key] for key in expected} == expected
    rows = replay[:]
    assert replay.specs.is_in(rows)
    assert set(replay.specs.keys(True, True)) <= set(rows.keys(True, True))


def test_text_that_is_read_has_a_spec() -> None:
    folder = files.text_in_dict()
    assert ("observation", "mission") not in opened(folder).specs
    replay = opened(folder, text=True)
    spec = replay.specs["observation", "mission"]
    assert isinstance(spec, NonTensor)
    assert (spec.space.max_length, spec.space.characters) == (10, frozenset("abc"))
    assert replay.specs.is_in(replay[:])
    rows = replay[:]
    rows["observation", "mission"] = ["d"] * len(rows)
    assert not replay.specs.is_in(rows)


def test_frame_stacks_have_the_spec_of_each_frame() -> None:
    folder = files.raw_frames()
    replay = opened(folder, frame_stack=3)
    frames = opened(folder).specs["observation"]
    assert replay.specs["observation"].shape == (3, *frames.shape)
    assert replay.specs.is_in(replay[:])
    assert replay.episodes_at([1]).specs == replay.specs


def test_derived_data_has_no_spaces() -> None:
    manifest = opened(files.discrete()).manifest
    assert dataset_specs(manifest)["observation"] == Categorical(16)
    derived = replace(manifest, parent={"id": manifest.id})
    assert dataset_specs(derived)["observation"] == Unbounded((), dtype=torch.int64)


@pytest.mark.parametrize(
    "space",
    [
        '{"type": "Sequence", "feature_space": {}}',
        '{"type": "Box", "dtype": "float32", "shape": [9], "low": [0], "high": [1]}',
        '{"type": "Discrete"}',
        '{"type": "Dict", "subspaces": {}}',
        "{",
        3,
    ],
)
def test_a_space_that_does_not_fit_its_column_is_not_taken(space: object) -> None:
    manifest = opened(files.discrete()).manifest
    other = replace(manifest, metadata={"observation_space": space})
    assert dataset_specs(other)["observation"] == Unbounded((), dtype=torch.int64)


def test_specs_do_not_import_gymnasium(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = files.discrete()
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    assert opened(folder).specs["observation"] == Categorical(16)


def test_specs_of_a_batch_on_the_cpu_say_so(door: str) -> None:
    specs = ExperienceReplay(door, device="cpu").specs
    assert specs.device == torch.device("cpu")
    assert isinstance(specs, Composite)


# Every space of the Minari catalogue as a spec.


CATALOGUE = PROJECT / "recipes" / "minari" / "catalogue.tsv"
COLUMNS = ("observation_space", "action_space")


def catalogue() -> list[dict[str, str]]:
    with CATALOGUE.open(encoding="utf-8") as file:
        return [*csv.DictReader(file, delimiter="\t")]


def test_all_datasets_but_three_state_their_spaces() -> None:
    missing = [row["name"] for row in catalogue() if not all(row[column] for column in COLUMNS)]
    assert missing == [f"D4RL/kitchen/{kind}-v1" for kind in ("complete", "mixed", "partial")]


PUBLISHED = [
    path
    for folder in (TEST_DATA / "minari", DEMO_DATA / "minari")
    for path in sorted(folder.rglob("metadata.json"))
]


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.parent.name)
@pytest.mark.parametrize("column", COLUMNS)
def test_a_space_of_a_real_file_has_a_spec(path: Any, column: str) -> None:
    from minari.serialization import deserialize_space

    text = json.loads(path.read_text(encoding="utf-8"))[column]
    space = deserialize_space(text)
    spec = spec_of_space(json.loads(text))
    assert spec == spec_from_gymnasium(space)
