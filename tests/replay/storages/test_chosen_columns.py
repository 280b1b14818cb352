"""Columns that are chosen when a dataset is opened: nothing else is in a batch, in any layout."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from datasets_cli import ExperienceReplay, FrameStack, open_storage
from datasets_cli.errors import UnknownKey, Unsupported, UsageError, WrongRows
from datasets_cli.schema.tree import entry, leaves_in
from tests.support.refusals import refused
from tests.support.text_rows import LENGTHS, ODD_TEXTS, steps_of, write

NUM_ROWS = sum(LENGTHS)
SUCCESSOR = ("next", "observation")
CHOICES: list[tuple[Any, set[tuple[str, ...]]]] = [
    ("action", {("action",)}),
    ([("observation", "x")], {("observation", "x")}),
    ([(*SUCCESSOR, "x"), "action"], {(*SUCCESSOR, "x"), ("action",)}),
    ([(*SUCCESSOR, "frame")], {(*SUCCESSOR, "frame")}),
    (
        [("observation", "frame"), ("next", "reward")],
        {("observation", "frame"), ("next", "reward")},
    ),
    ("observation", {("observation", name) for name in ("x", "frame", "mission")}),
]


@pytest.fixture(params=["ted", "compact"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    frames = np.arange(NUM_ROWS * 1200, dtype=np.uint8).reshape(NUM_ROWS, 1200)
    return write(tmp_path, request.param, steps_of(ODD_TEXTS, frame=frames))


@pytest.mark.parametrize(("columns", "expected"), CHOICES)
def test_a_batch_has_the_chosen_columns_and_no_other(
    folder: Path, columns: Any, expected: set[tuple[str, ...]]
) -> None:
    has_text = ("observation", "mission") in expected
    whole = open_storage(folder, text=has_text)
    part = pickle.loads(pickle.dumps(open_storage(folder, text=has_text, columns=columns)))
    rows = torch.tensor([5, 0, 13, 5])
    batch, other = part.gather(rows), whole.gather(rows)
    assert {key for key, _ in leaves_in(batch)} == set(part.dataset.keys) == expected
    for key, leaf in leaves_in(batch):
        same = entry(other, key)
        assert torch.equal(leaf, same) if isinstance(leaf, torch.Tensor) else leaf[2] == same[2]
        assert part.has(key) and str(key[-1]) in repr(part)
    if not has_text:
        arrays = part.read(rows).arrays(0, 4)
        assert {key for key, _ in leaves_in(arrays)} == expected
        assert all(np.array_equal(leaf, entry(other, key)) for key, leaf in leaves_in(arrays))
    assert part.row_bytes < whole.dataset.row_bytes


def test_stacks_of_frames_come_without_what_is_not_chosen(folder: Path) -> None:
    pair = [("observation", "frame"), (*SUCCESSOR, "frame")]
    stack = FrameStack(open_storage(folder, columns=pair), 2, key=pair[0])
    batch = stack.gather(torch.tensor([2]))
    assert {key for key, _ in leaves_in(batch)} == set(pair)
    assert batch["observation"]["frame"].shape == (1, 2, 1200)
    with refused(WrongRows, key=("observation", "frame")):
        FrameStack(open_storage(folder, columns=pair[:1]), 2, key=pair[0])


@pytest.mark.parametrize(
    ("columns", "error", "key"),
    [
        ("reward", UnknownKey, ("reward",)),
        ("next.rewards", UnknownKey, ("next.rewards",)),
        (("next.reward", "x"), UnknownKey, ("next.reward", "x")),
        (("observation", "mission"), UnknownKey, ("observation", "mission")),
        ([], UsageError, None),
        (5, UsageError, None),
    ],
)
def test_columns_that_cannot_be_read_are_rejected(
    folder: Path, columns: Any, error: type[UsageError], key: Any
) -> None:
    with refused(error, argument="columns", key=key):
        open_storage(folder, columns=columns)


def test_a_column_that_is_left_out_is_named_so(folder: Path) -> None:
    storage = open_storage(folder, columns=["observation"])
    with refused(UnknownKey, key=("action",)):
        storage.column(("action",))
    assert storage.column(("observation",))["x"].shape == (NUM_ROWS, 2)


def test_views_specs_and_tables_of_chosen_columns(hopper: str) -> None:
    replay = ExperienceReplay(hopper, batch_size=8, columns=["observation", "action"])
    assert replay.specs.keys() == ["action", "observation"]
    assert np.isfinite(replay.trajectories["return"]).all()
    view = replay.take(1, by="-return")
    assert {*view.sample().keys()} == {"observation", "action", "index"}
    assert {*view.episode(0).keys()} == {"observation", "action"}


def test_jax_takes_a_dataset_with_wide_columns_by_cast_or_by_columns(hopper: str) -> None:
    pytest.importorskip("jax")
    with pytest.raises(Unsupported) as wide:
        ExperienceReplay(hopper, batch_size=8, format="jax")
    assert (wide.value.argument, wide.value.key) == ("format", ("info", "qpos"))
    assert wide.value.found == "float64"
    assert all(word in str(wide.value.advice) for word in ("columns=", "cast=True"))
    chosen = ["observation", "action", "next"]
    few = ExperienceReplay(hopper, batch_size=8, format="jax", columns=chosen, seed=0)
    cast = ExperienceReplay(hopper, batch_size=8, format="jax", cast=True, seed=0)
    assert "info" not in few.sample() and cast.sample()["info"]["qpos"].dtype == "float32"
    sequences = cast.sequences(length=3, batch_size=2)  # in the same format
    assert sequences.sample()["info"]["qvel"].dtype == "float32"
    with refused(UsageError, argument="cast", found="torch"):
        ExperienceReplay(hopper, cast=True)
