"""Arrays in memory become a dataset: every value against the arrays, read by numpy alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import datasets_cli
from datasets_cli import DatasetWriter, create_dataset
from datasets_cli.config import Config, load_config
from datasets_cli.errors import NotWritable, UsageError, WrongRows
from datasets_cli.exchange.steps import trajectory_ends
from datasets_cli.schema.columns import EPISODE, TERMINATED, TRUNCATED
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.commit import commit
from datasets_cli.store.manifest import read_manifest
from tests.support.refusals import refused

LENGTHS = [3, 1, 4]


def steps(count: int = 8) -> dict[Any, Any]:
    rng = np.random.default_rng(count)
    return {
        "observation": {"state": rng.normal(size=(count, 3)).astype(np.float32)},
        "action": rng.integers(0, 9, (count, 2)),
        "reward": rng.normal(size=count),
        "terminated": np.isin(np.arange(count), np.cumsum(LENGTHS) - 1),
        ("info", "task"): [f"task {number % 3}" for number in range(count)],
    }


def columns_of(id: str, config: Config) -> dict[tuple[str, ...], np.ndarray]:
    """Return the leaf files of a dataset, read by numpy."""
    folder = config.root / "datasets" / id
    manifest = read_manifest(folder)
    rows = manifest.num_transitions
    return {
        column.key: np.fromfile(folder / column.filename, column.dtype).reshape(rows, *column.shape)
        for column in manifest.columns
        if column.row_bytes
    }


def test_every_value_is_that_of_the_arrays(config: Config) -> None:
    given = steps()
    made = create_dataset("mine/robot", given, lengths=LENGTHS, config=config)
    found = columns_of("mine/robot", config)
    state = given["observation"]["state"]
    assert (made.num_transitions, made.num_trajectories, made.final_steps) == (8, 3, 0)
    assert found["observation", "state"].tobytes() == state.tobytes()
    assert found["action",].tobytes() == given["action"].tobytes()
    assert found["next", "reward"].tobytes() == given["reward"].tobytes()
    after = np.where(given["terminated"][:, None], 0, np.roll(state, -1, 0))
    np.testing.assert_array_equal(found["next", "observation", "state"], after)
    assert found["episode",].tolist() == [0, 0, 0, 1, 2, 2, 2, 2]
    replay = datasets_cli.ExperienceReplay("mine/robot", text=True, root=config.root)
    assert replay[:]["info", "task"] == given["info", "task"]


@pytest.mark.parametrize("layout", ["ted", "compact"])
def test_recorded_successors_stay_at_truncations(config: Config, layout: str) -> None:
    given = {**steps(), "next_observation": {"state": np.ones((8, 3), "f4")}}
    given["terminated"] = np.zeros(8)
    made = create_dataset("mine/robot", given, lengths=LENGTHS, layout=layout, config=config)
    assert (made.num_transitions, made.final_steps) == (8, 0)
    replay = datasets_cli.ExperienceReplay("mine/robot", root=config.root)
    assert replay[:]["next", "observation", "state"].eq(1).all()
    assert replay[:]["next", "truncated"][:, 0].tolist() == [0, 0, 1, 1, 0, 0, 0, 1]


@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=9))
def test_lengths_flags_and_numbers_say_the_same(lengths: list[int]) -> None:
    count = sum(lengths)
    episode = np.repeat(np.random.default_rng(count).permutation(len(lengths)), lengths)
    ends = np.zeros(count, bool)
    ends[np.cumsum(lengths) - 1] = True
    by_lengths = trajectory_ends({}, count, None, lengths, None)
    np.testing.assert_array_equal(by_lengths, ends)
    np.testing.assert_array_equal(trajectory_ends({}, count, ends[:, None], None, None), ends)
    np.testing.assert_array_equal(trajectory_ends({}, count, None, None, episode), ends)


@pytest.mark.parametrize(
    ("ends", "error"),
    [
        ({}, {"argument": "ends", "expected": ["ends", "lengths", "episode"]}),
        ({"lengths": [3, 1]}, {"argument": "lengths", "expected": 8, "found": 4}),
        ({"lengths": [3, 1, 0, 4]}, {"argument": "lengths", "found": np.int64}),
        ({"lengths": [4, 4]}, {"key": TERMINATED, "row": 2}),  # terminated in the middle
        ({"ends": np.full(8, 2)}, {"argument": "ends", "found": "2 (int64) in row 0"}),
        ({"ends": np.ones(3)}, {"argument": "ends", "found": "float64 [3]"}),
        ({"ends": np.full(8, np.nan)}, {"argument": "ends", "found": "nan (float64) in row 0"}),
        ({"ends": [[1], [1, 2]] * 4}, {"argument": "ends", "found": "list"}),
        ({"lengths": [[1], [1, 2]]}, {"argument": "lengths", "found": "list"}),
        ({"lengths": "332"}, {"argument": "lengths", "found": np.dtype("<U3")}),
        ({"lengths": [2**63 - 1, 2**63 - 1, 10]}, {"argument": "lengths", "found": 2**64 + 8}),
        ({"episode": [0, 0, 0, 1, 0, 0, 0, 0]}, {"key": EPISODE, "found": 0}),
        ({"episode": np.zeros(8)}, {"key": EPISODE, "found": np.float64}),
        ({"lengths": []}, {"argument": "lengths", "found": []}),
        ({"lengths": LENGTHS, "ends": np.ones(8)}, {"found": ["ends", "lengths"]}),
    ],
)
def test_the_ends_of_trajectories_are_never_guessed(
    config: Config, ends: dict[str, Any], error: dict[str, Any]
) -> None:
    with pytest.raises(UsageError) as raised:
        create_dataset("mine/robot", steps(), config=config, **ends)
    assert {name: getattr(raised.value, name) for name in error} == error
    assert not (config.root / "datasets").exists()


@pytest.mark.parametrize("last", [False, True])
def test_flags_are_stored_unchanged_or_rejected(config: Config, last: bool) -> None:
    terminated = steps()["terminated"]
    given = {**steps(), "truncated": np.zeros(8, bool), "terminated": np.arange(8) == 2}
    with pytest.raises(WrongRows) as raised:
        create_dataset("mine/robot", given, lengths=LENGTHS, config=config)
    assert (raised.value.key, raised.value.row) == (TRUNCATED, 3)
    del given["terminated"]
    with pytest.raises(WrongRows) as raised:
        create_dataset("mine/robot", given, ends=terminated, config=config)
    assert (raised.value.key, raised.value.row) == (TRUNCATED, 2)
    # The last trajectory may be cut off where the arrays end.
    given["terminated"] = terminated & (np.arange(8) < 7) if last else terminated
    create_dataset("mine/robot", given, lengths=LENGTHS, layout="ted", config=config)
    found = columns_of("mine/robot", config)["next", "terminated"][:, 0]
    assert found.tolist() == terminated.tolist()[: 7 if last else 8]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("reward", np.zeros(7)),
        ("reward", np.zeros((8, 2))),
        ("reward", 3.0),
        ("terminated", 2 * steps()["terminated"]),
        ("terminated", np.linspace(0, 1, 8)),
        ("terminated", np.zeros(8, [("bfloat16", "<u2")])),
        ("action", np.ma.masked_less(np.arange(8), 3)),
        ("action", np.array([{}] * 8)),
        ("text", ["\ud800"] * 8),
        ("action", [{"a": 1}] * 8),
        ("action", np.array([None] * 8)),
        ("action", [[1], [1, 2]] * 4),
        ("next_observation", {"state": np.zeros((8, 2), "f4")}),
        ("done", np.zeros(8)),
        ("episode", np.zeros(8)),
        (("info", ""), np.zeros(8)),
        (3, np.zeros(8)),
    ],
)
def test_a_column_that_cannot_be_kept_is_named(config: Config, column: Any, values: Any) -> None:
    given = {**steps(), column: values}
    given["terminated"] = values if column == "terminated" else np.zeros(8)
    with pytest.raises(UsageError, match=str(column if isinstance(column, str) else "columns")[:4]):
        create_dataset("mine/robot", given, lengths=LENGTHS, config=config)
    assert not list(config.root.glob("datasets/*/*"))
    assert not list(config.root.glob("tmp/*"))


@pytest.mark.parametrize(
    "value",
    [np.int64(2**53 + 1), np.int64(-(2**53) - 1), np.int64(2**63 - 1), np.uint64(2**64 - 1)],
)
def test_whole_rewards_that_float64_rounds_are_refused(config: Config, value: Any) -> None:
    rewards = np.full(8, 2**53, value.dtype)
    create_dataset("mine/a", {**steps(), "reward": rewards}, lengths=LENGTHS, config=config)
    assert columns_of("mine/a", config)["next", "reward"][:, 0].tolist() == [2**53] * 8
    rewards[5:] = value
    with refused(UsageError, key=("next", "reward"), row=5, found=value):
        create_dataset("mine/b", {**steps(), "reward": rewards}, lengths=LENGTHS, config=config)


@pytest.mark.parametrize(
    "id", ["d4rl/mine", "minari/x", "recorded/x", "derived/x", "robot", "../x"]
)
def test_an_id_of_a_published_family_is_refused(config: Config, id: str) -> None:
    with pytest.raises(UsageError) as raised:
        create_dataset(id, steps(), lengths=LENGTHS, config=config)
    assert id in (raised.value.id, raised.value.found) or repr(id) in str(raised.value)


def test_the_same_data_again_are_up_to_date_and_others_need_force(config: Config) -> None:
    first = create_dataset("mine/robot", steps(), lengths=LENGTHS, config=config)
    again = create_dataset("mine/robot", steps(), lengths=LENGTHS, config=config)
    assert again == first
    other = {**steps(), "reward": torch.ones(8)}
    with pytest.raises(NotWritable) as raised:
        create_dataset("mine/robot", other, lengths=LENGTHS, config=config)
    assert raised.value.id == "mine/robot" and "force=True" in str(raised.value.advice)
    made = create_dataset("mine/robot", other, lengths=LENGTHS, force=True, config=config)
    assert columns_of("mine/robot", load_config())["next", "reward"].dtype == np.float32
    assert made.num_transitions == 8 and not list(config.root.glob("tmp/*"))


def test_what_is_known_of_the_data_stands_in_the_manifest(config: Config) -> None:
    info = {"title": "A robot", "licence": "MIT", "ref_max_score": 3.0}
    create_dataset("mine/robot", steps(), lengths=LENGTHS, info=info, config=config)
    assert datasets_cli.dataset_info("mine/robot", config=config).licence == "MIT"
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    for not_json in ({"a": steps}, deep, {"a": np.nan}, [1], {(1, 2): 3}, {"licence": 3}):
        with pytest.raises(UsageError) as raised:
            create_dataset("mine/x", steps(), lengths=LENGTHS, info=not_json, config=config)
        assert raised.value.argument == "info"


def test_text_may_be_missing_or_bytes_of_no_character(config: Config) -> None:
    given = {**steps(), ("info", "task"): [None, "\udcff", b"\xff", "", "a", "b", "c", "d\0"]}
    create_dataset("mine/robot", given, lengths=LENGTHS, config=config)
    replay = datasets_cli.ExperienceReplay("mine/robot", text=True, root=config.root)
    assert replay[:]["info", "task"] == ["", "\udcff", "\udcff", "", "a", "b", "c", "d\0"]


def test_a_dataset_of_ones_own_is_verified_as_any_other(config: Config) -> None:
    create_dataset("mine/robot", steps(), lengths=LENGTHS, config=config)
    [verified] = datasets_cli.verify("mine/robot", deep=True, config=config)
    assert verified.ok and verified.state == "installed"


@pytest.mark.parametrize("first, second", [("mine/a/b", "mine/a"), ("mine/a", "mine/a/b/c")])
def test_no_dataset_is_made_around_or_within_another(
    config: Config, first: str, second: str
) -> None:
    made = create_dataset(first, steps(), lengths=LENGTHS, config=config)
    manifest, root = replace(read_manifest(made.path), id=second), CacheRoot(config.root)
    for call in (
        lambda: create_dataset(second, steps(), lengths=LENGTHS, force=True, config=config),
        lambda: DatasetWriter(second, config=config).__enter__(),
        lambda: commit(root, root.new_staging(second), manifest),
    ):
        with refused(UsageError, id=second, found=first):
            call()
    assert list(root.installed()) == [first]


def test_no_steps_are_no_dataset_and_nan_is_a_value(config: Config) -> None:
    nothing = {name: np.zeros((0, 1)) for name in ("observation", "action", "reward")}
    with refused(UsageError, id="mine/robot", found=0):
        create_dataset("mine/robot", nothing, ends=[], config=config)
    assert not list(config.root.glob("datasets/*/*")) and not list(config.root.glob("tmp/*"))
    given = {name: np.full((4, 1), np.nan) for name in nothing}
    create_dataset("mine/robot", given, lengths=[4], config=config)
    assert np.isnan(columns_of("mine/robot", config)["observation",]).all()
