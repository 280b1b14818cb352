"""What every recipe must do: its rows, as they are stored, checked, moved and sampled.

``test_conformance.py`` has what comes before; ``tests/conformance.py`` says how a recipe joins.
"""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import datasets_cli
from datasets_cli import (
    ExperienceReplay,
    RandomSampler,
    SliceSampler,
)
from datasets_cli.catalogue import names
from datasets_cli.catalogue.entries import load_recipe
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.recipe import Block, Source
from datasets_cli.store.dataset import Dataset, open_dataset
from tests.support.conformance import Case, install, prepared, published_families
from tests.support.values import FLAGS, Expected, Key, assert_folder, assert_same

Leaves = dict[Key, np.ndarray]


@pytest.fixture(scope="module", params=published_families())
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    with prepared(request.param) as found:
        yield found


@pytest.fixture(scope="module")
def expected(case: Case) -> Expected:
    return case.expected()


@dataclass(frozen=True)
class Installed:
    """A case that was downloaded and converted."""

    config: Config
    dataset: Dataset
    leaves: Leaves

    @property
    def id(self) -> str:
        return self.dataset.manifest.id

    @property
    def layout(self) -> str:
        return self.dataset.manifest.layout


@pytest.fixture(scope="module", params=["ted", "compact"])
def installed(
    request: pytest.FixtureRequest, case: Case, tmp_path_factory: pytest.TempPathFactory
) -> Installed:
    root = tmp_path_factory.mktemp("root")
    dataset = open_dataset(install(case, root, request.param))
    return Installed(Config(root=root), dataset, read(dataset))


def read(dataset: Dataset) -> Leaves:
    return {key: rows.numpy() for key, rows in dataset.columns(()).items()}


# The rows.


def test_every_value_equals_the_source_read_independently(
    installed: Installed, expected: Expected
) -> None:
    assert_same(installed.leaves, expected.leaves)
    texts = open_dataset(installed.dataset.folder, text=True).texts
    found = {key: texts.column(key) for key in texts.keys} if texts else {}
    assert found == expected.texts
    assert installed.dataset.offsets.tolist() == expected.offsets
    if installed.layout == "ted":
        assert_folder(installed.dataset.folder, expected)


def under(leaves: Leaves, *prefix: str) -> dict[Key, tuple[Any, ...]]:
    """Return element type and shape of every leaf below a key."""
    size = len(prefix)
    return {
        key[size:]: (rows.dtype, rows.shape) for key, rows in leaves.items() if key[:size] == prefix
    }


def test_every_column_of_ted_is_there_in_its_form(installed: Installed) -> None:
    leaves, num_rows = installed.leaves, len(installed.dataset)
    assert {len(rows) for rows in leaves.values()} == {num_rows}
    for flag in FLAGS:
        for key in ((flag,), ("next", flag)):
            assert (leaves[key].dtype, leaves[key].shape) == (bool, (num_rows, 1)), key
    assert (leaves["episode",].dtype, leaves["episode",].shape) == (np.int64, (num_rows,))
    reward = leaves["next", "reward"]
    assert reward.dtype.kind == "f" and reward.shape == (num_rows, 1)
    assert under(leaves, "observation") and under(leaves, "action")
    assert under(leaves, "observation") == under(leaves, "next", "observation")
    known = {"observation", "action", "info", "next", "episode", *FLAGS}
    assert {key[0] for key in leaves} <= known
    assert {key[1] for key in leaves if key[0] == "next"} <= known | {"reward"}


def test_flags_episodes_and_the_table_agree(installed: Installed) -> None:
    leaves, num_rows = installed.leaves, len(installed.dataset)
    assert not any(leaves[flag,].any() for flag in FLAGS)
    done = leaves["next", "done"][:, 0]
    same = done == (leaves["next", "terminated"] | leaves["next", "truncated"])[:, 0]
    assert same.all()
    assert done[-1]
    ends = np.flatnonzero(done) + 1
    assert installed.dataset.offsets.tolist() == [0, *ends.tolist()]
    assert installed.dataset.manifest.num_trajectories == len(ends)
    counted = np.searchsorted(ends, np.arange(num_rows), side="right")
    assert np.array_equal(leaves["episode",], counted)


def test_a_successor_is_the_next_step_and_zeros_only_where_the_source_has_none(
    installed: Installed, expected: Expected
) -> None:
    leaves = installed.leaves
    done = leaves["next", "done"][:, 0]
    may_be_zero = leaves["next", "terminated"][:, 0] & (not expected.recorded)
    for path in under(leaves, "observation"):
        now, following = leaves["observation", *path], leaves["next", "observation", *path]
        zero = ~following.reshape(len(done), -1).any(1)
        assert np.array_equal(zero, may_be_zero), path
        inside = np.flatnonzero(~done)
        same = now[inside + 1].tobytes() == following[inside].tobytes()
        assert same or expected.recorded, path


# Planted faults, of which the comparison must see every one.


def test_a_recipe_that_shifts_its_actions_is_seen(
    case: Case, expected: Expected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = load_recipe(case.family)

    def shifted(source: Source) -> Iterator[Block]:
        for block in recipe.blocks(source):
            actions = np.roll(block.columns["action",], 1, axis=0)
            yield replace(block, columns={**block.columns, ("action",): actions})

    monkeypatch.setattr(names, "load_recipe", lambda family: replace(recipe, blocks=shifted))
    leaves = read(open_dataset(install(case, tmp_path, "ted")))
    with pytest.raises(AssertionError, match="action"):
        assert_same(leaves, expected.leaves)


# Using what is installed.


def test_rlds_verify_accepts_it(installed: Installed) -> None:
    assert main(["verify", installed.id, "--root", str(installed.config.root)]) == 0


def test_there_and_back_to_the_other_layout_gives_the_same_bytes(
    installed: Installed, expected: Expected, tmp_path: Path
) -> None:
    root = shutil.copytree(installed.config.root, tmp_path / "copy")
    config = replace(installed.config, root=root)
    for layout in ("compact", "ted"):
        folder = datasets_cli.convert(installed.id, layout, config=config).path
    assert_folder(folder, expected)
    if installed.layout == "ted":
        assert open_dataset(folder).manifest.files == installed.dataset.manifest.files


def open_replay(installed: Installed, sampler: Any, batch_size: int) -> ExperienceReplay:
    root = installed.config.root
    return ExperienceReplay(
        installed.id, batch_size, root=root, download=False, sampler=sampler, seed=0, text=True
    )


def assert_batch(batch: Any, expected: Expected) -> np.ndarray:
    """Compare leaves and text of a batch with the rows that its index names; return the index."""
    index: np.ndarray = batch["index"].numpy()
    assert index.ndim == 1 and len(index)
    for key, rows in expected.leaves.items():
        found = batch[key].numpy()
        assert (found.dtype, found.shape) == (rows.dtype, (len(index), *rows.shape[1:])), key
        same = found.tobytes() == rows[index].tobytes()
        assert same, key
    for key, values in expected.texts.items():
        assert batch[key] == [values[row] for row in index], key
    return index


def test_a_sampler_of_rows_and_one_of_slices_draw_rows_of_the_source(
    installed: Installed, expected: Expected
) -> None:
    assert_batch(open_replay(installed, RandomSampler(), 20).sample(), expected)
    length = min(5, int(np.diff(expected.offsets).max()))
    sampler = SliceSampler(slice_len=length, truncated_key=None)
    index = assert_batch(open_replay(installed, sampler, 4 * length).sample(), expected)
    slices = index.reshape(-1, length)
    assert (np.diff(slices) == 1).all()
    assert (np.diff(expected.leaves["episode",][slices]) == 0).all()


def test_a_pickled_buffer_opens_the_same_rows(installed: Installed, expected: Expected) -> None:
    replay = open_replay(installed, RandomSampler(), 32)
    copy = pickle.loads(pickle.dumps(replay))
    first, second = (assert_batch(each.sample(), expected) for each in (replay, copy))
    assert first.tolist() == second.tolist()
