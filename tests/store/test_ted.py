"""The rule of successors, step by step, and the files that complete rows become."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from datasets_cli.errors import DamagedDataset, SourceError
from datasets_cli.schema.columns import Key
from datasets_cli.schema.mapped_bytes import TrajectoryTable
from datasets_cli.schema.steps import StepRows
from datasets_cli.schema.trajectories import offsets_from_ends
from datasets_cli.schema.transitions import Transitions, iterate_rows
from datasets_cli.store.layouts.ted_writer import TedWriter

ID = "family/name"


def steps(flags: str, first: int = 1, **columns: Any) -> dict[Key, np.ndarray]:
    """Return steps numbered from ``first``; in ``flags`` T terminates, | truncates, c cuts."""
    marks = np.array(list(flags), "U1")
    numbers = np.arange(first, first + len(marks), dtype=np.float32)
    made = {
        ("observation",): numbers[:, None],
        ("action",): 10 * numbers[:, None],
        ("next", "reward"): 100 * numbers,
        ("next", "terminated"): marks == "T",
        ("next", "truncated"): marks == "|",
        ("cut",): marks == "c",
    }
    made |= {tuple(name.split("_")): rows for name, rows in columns.items()}
    return {key: rows for key, rows in made.items() if rows is not None}


def convert(*blocks: Mapping[Key, np.ndarray]) -> tuple[StepRows, Transitions]:
    transitions = Transitions(ID)
    found = list(iterate_rows(transitions, iter(blocks)))
    assert found, "no rows"
    return {key: np.concatenate([rows[key] for rows in found]) for key in found[0]}, transitions


def numbers(rows: StepRows, *key: str) -> list[float]:
    return rows[key].reshape(-1).tolist()


# The rule.


def test_successors_are_those_of_the_drawing() -> None:
    rows, transitions = convert(steps("..T..|"))
    assert numbers(rows, "observation") == [1, 2, 3, 4, 5]
    assert numbers(rows, "next", "observation") == [2, 3, 0, 5, 6]
    assert numbers(rows, "next", "done") == [False, False, True, False, True]
    assert numbers(rows, "next", "terminated") == [False, False, True, False, False]
    assert numbers(rows, "next", "truncated") == [False, False, False, False, True]
    assert numbers(rows, "next", "reward") == [100, 200, 300, 400, 500]
    assert transitions.num_final == 1


def test_recorded_successors_keep_every_step() -> None:
    recorded = np.arange(50.0, 56.0, dtype=np.float32)[:, None]
    rows, transitions = convert(steps("..T..|", next_observation=recorded))
    assert numbers(rows, "next", "observation") == [50, 51, 52, 53, 54, 55]
    assert numbers(rows, "next", "truncated") == [False] * 5 + [True]
    assert transitions.rule == {"rule": "recorded"} and not transitions.num_final


@pytest.mark.parametrize("end", ["|", "c", "."])
def test_time_limit_cut_and_end_of_source_end_alike(end: str) -> None:
    rows, _ = convert(steps("..." + end))
    assert numbers(rows, "next", "observation") == [2, 3, 4]
    assert numbers(rows, "next", "truncated") == [False, False, True]
    assert not any(numbers(rows, "next", "terminated"))


def test_single_step_that_is_cut_off_is_no_row_and_counted() -> None:
    rows, transitions = convert(steps(".T||.T"))
    assert numbers(rows, "observation") == [1, 2, 5, 6]
    assert numbers(rows, "next", "done") == [False, True, False, True]
    assert (transitions.num_final, transitions.num_alone) == (2, 2)


def test_single_step_that_terminates_stays() -> None:
    rows, _ = convert(steps("TT"))
    assert numbers(rows, "next", "observation") == [0, 0]
    assert numbers(rows, "next", "terminated") == [True, True]


def test_cut_at_a_termination_is_no_truncation() -> None:
    cut = np.array([False, True, False, False])
    rows, _ = convert(steps(".T.T", cut=cut))
    assert numbers(rows, "next", "terminated") == [False, True, False, True]
    assert not any(numbers(rows, "next", "truncated"))


def test_both_flags_at_one_step_are_both_kept() -> None:
    rows, _ = convert(steps(".T.T", next_truncated=np.array([False, True, False, False])))
    assert numbers(rows, "next", "terminated") == [False, True, False, True]
    assert numbers(rows, "next", "truncated") == [False, True, False, False]


def test_root_flags_are_false_and_flags_have_one_column() -> None:
    rows, _ = convert(steps("..T..|"))
    for name in ("done", "terminated", "truncated"):
        assert rows[name,].shape == rows["next", name].shape == (5, 1)
        assert rows[name,].dtype == rows["next", name].dtype == np.bool_
        assert not rows[name,].any()


def test_parts_of_an_observation_each_get_their_successor() -> None:
    whole = steps("..T|.T")
    parts = {
        ("observation", "near"): whole["observation",],
        ("observation", "far", "left"): -whole["observation",],
    }
    rows, _ = convert(steps("..T|.T", observation=None) | parts)
    assert numbers(rows, "next", "observation", "near") == [2, 3, 0, 6, 0]
    assert numbers(rows, "next", "observation", "far", "left") == [-2, -3, 0, -6, 0]


def test_empty_blocks_change_nothing() -> None:
    empty = steps("")
    whole, _ = convert(steps("..T..|"))
    rows, _ = convert(empty, steps("..T"), empty, empty, steps("..|", first=4), empty)
    assert {key: values.tobytes() for key, values in rows.items()} == {
        key: values.tobytes() for key, values in whole.items()
    }


def test_whole_numbers_become_float64_rewards() -> None:
    rows, _ = convert(steps("..T", next_reward=np.array([1, 2, 3], np.int32)))
    assert rows["next", "reward"].dtype == np.float64
    assert numbers(rows, "next", "reward") == [1, 2, 3]


def test_rows_do_not_keep_the_last_block_in_memory() -> None:
    transitions, block = Transitions(ID), steps("." * 100)
    transitions.rows(block)
    block["observation",][:] = -1
    rows = transitions.last_rows()
    assert rows is not None
    assert numbers(rows, "observation") == [99]


# What is refused.


@pytest.mark.parametrize("wrong", [2, -1, np.nan, 0.5])
def test_flag_that_is_not_0_or_1_is_refused_by_row(wrong: float) -> None:
    flags = np.array([0.0, 0.0, wrong, 1.0])
    blocks = steps("..."), steps(".."), steps("....", next_terminated=flags)
    with pytest.raises(SourceError) as caught:
        convert(*blocks)
    assert (caught.value.id, caught.value.key) == (ID, ("next", "terminated"))
    assert caught.value.row == 5  # the block's first
    assert str(caught.value.found).startswith(str(wrong))
    assert str(caught.value.found).endswith("in row 7")


@pytest.mark.parametrize("dtype", ["float32", "uint8", "int64", "bool", ">f4"])
def test_flags_of_any_number_type_are_read(dtype: str) -> None:
    rows, _ = convert(steps("....", next_terminated=np.array([[0], [1], [0], [1]], dtype)))
    assert numbers(rows, "next", "terminated") == [False, True, False, True]


@pytest.mark.parametrize("shape", [(6, 2), (6, 1, 1), (6, 0)])
@pytest.mark.parametrize("last", [0, 7])
def test_flags_of_another_shape_are_refused(shape: tuple[int, ...], last: int) -> None:
    flags = np.zeros(shape)
    flags[-1] = last
    with pytest.raises(SourceError) as caught:
        convert(steps("......", next_truncated=flags))
    assert caught.value.key == ("next", "truncated")
    assert caught.value.found == f"shape {[*shape]}"


@pytest.mark.parametrize(
    "rewards", [np.zeros((3, 2)), np.zeros((3, 1, 1)), np.zeros(3, complex), np.array(list("abc"))]
)
def test_rewards_that_are_not_one_number_are_refused(rewards: np.ndarray) -> None:
    with pytest.raises(SourceError) as caught:
        convert(steps("..T", next_reward=rewards))
    assert caught.value.key == ("next", "reward")
    assert caught.value.expected == "one number per step"


@pytest.mark.parametrize("name", ["observation", "action", "next_reward"])
def test_missing_column_is_refused_by_name(name: str) -> None:
    with pytest.raises(SourceError) as caught:
        convert(steps("..T", **{name: None}))
    assert caught.value.key == tuple(name.split("_"))
    assert caught.value.expected == "numbers"


def test_ragged_columns_are_refused_by_name() -> None:
    with pytest.raises(SourceError) as caught:
        convert(steps("..T", action=np.zeros((2, 1))))
    assert caught.value.row == 0 and "action 2" in str(caught.value.found)


@pytest.mark.parametrize(
    "changes",
    [
        {"action": np.zeros((3, 2), np.float32)},
        {"action": np.zeros((3, 1), np.float64)},
        {"info_new": np.zeros(3)},
        {"next_terminated": None},
        {"next_truncated": None},
        {"next_observation": np.zeros((3, 1), np.float32)},
    ],
    ids="".join,
)
def test_column_that_changes_on_the_way_is_refused(changes: dict[str, Any]) -> None:
    (name,) = changes
    with pytest.raises(SourceError) as caught:
        convert(steps("..."), steps("..T", first=4, **changes))
    assert (caught.value.key, caught.value.row) == (tuple(name.split("_")), 3)
    assert caught.value.expected != caught.value.found


def test_cut_column_may_come_and_go() -> None:
    rows, _ = convert(steps("..."), steps("..T", first=4, cut=None), steps("c.T", first=7))
    assert numbers(rows, "next", "done") == [False] * 5 + [True] + [False, True]


@pytest.mark.parametrize(
    "successor",
    [
        {("next", "observation"): np.zeros((3, 2), np.float32)},
        {("next", "observation", "part"): np.zeros((3, 1), np.float32)},
    ],
    ids=["shape", "parts"],
)
def test_successor_unlike_its_observation_is_refused(successor: StepRows) -> None:
    with pytest.raises(SourceError) as caught:
        convert(steps("..T") | successor)
    assert caught.value.key == ("next", "observation")
    assert caught.value.expected != caught.value.found


@pytest.mark.parametrize("key", [("observation", "part"), ("episode", "number"), ("done", "why")])
def test_value_that_is_also_a_group_is_refused(key: Key) -> None:
    with pytest.raises(SourceError) as caught:
        convert(steps("..T") | {key: np.zeros(3)})
    assert caught.value.key == key[:1]


@pytest.mark.parametrize("flags", ["", "|", "||c."])
def test_source_without_any_transition_is_refused(flags: str, tmp_path: Path) -> None:
    writer = TedWriter(tmp_path / "data", ID)
    for rows in iterate_rows(Transitions(ID), iter([steps(flags)])):
        writer.write(rows)
    with pytest.raises(SourceError) as caught:
        writer.finish({})
    assert (caught.value.id, caught.value.found) == (ID, 0)


# The trajectory table.


def test_trajectory_without_an_end_is_refused() -> None:
    assert offsets_from_ends(np.array([2, 6]), 7).tolist() == [0, 3, 7]
    for ends in ([], [2, 5]):
        with pytest.raises(DamagedDataset) as caught:
            offsets_from_ends(np.array(ends, np.int64), 7)
        assert caught.value.row == 6


@pytest.mark.parametrize(
    "offsets",
    [[0, 3, 6], [1, 3, 7], [0, 3, 3, 7], [0, 5, 3, 7], [[0, 7]], [0.0, 7.0], []],
    ids=str,
)
def test_damaged_trajectory_table_is_refused(offsets: Any, tmp_path: Path) -> None:
    path = tmp_path / "trajectories.npy"
    np.save(path, np.array([0, 3, 7]))
    assert TrajectoryTable(path, 7, 2).read().tolist() == [0, 3, 7]
    np.save(path, np.array(offsets))
    with pytest.raises(DamagedDataset) as caught:
        TrajectoryTable(path, 7, len(offsets) - 1).read()
    assert caught.value.path == path


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"no table", "archive", None])
def test_trajectory_table_that_is_no_array_is_refused(
    content: bytes | str | None, tmp_path: Path
) -> None:
    path = tmp_path / "trajectories.npy"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content:
        with path.open("wb") as file:
            np.savez(file, offsets=np.array([0, 7]))
    with pytest.raises(DamagedDataset):
        TrajectoryTable(path, 7, 1).read()
