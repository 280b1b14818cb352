"""Two datasets compared, against numpy and h5py on the rows that they were written from."""

from __future__ import annotations

import json
from collections.abc import Callable

import h5py
import numpy as np
import pytest

import datasets_cli
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import DamagedDataset, DatasetNotInstalled, UnknownDataset
from datasets_cli.project import Pipeline
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.commit import commit_folder
from datasets_cli.store.manifest import Manifest
from datasets_cli.store.writer import LayoutWriter
from datasets_cli.verbs import row_comparison, row_digests
from datasets_cli.verbs.difference import DatasetDifference
from tests.support.interpreters import imported_by_commands
from tests.support.paths import DEMO_DATA

Key = tuple[str, ...]
Rows = dict[Key, np.ndarray]

OBSERVATION, ACTION, MISSION = ("observation", "x"), ("action",), ("observation", "mission")
REWARD, DONE, TRUNCATED = ("next", "reward"), ("next", "done"), ("next", "truncated")
LENGTHS = (7, 1, 12, 5, 5, 30)
NUM_ROWS = sum(LENGTHS)


def rows_of(lengths: tuple[int, ...] = LENGTHS, seed: int = 0) -> Rows:
    rng, num_rows = np.random.default_rng(seed), sum(lengths)
    ends = np.zeros((num_rows, 1), bool)
    ends[np.cumsum(lengths) - 1] = True
    texts = np.array([f"go to {number % 4}" for number in range(num_rows)], object)
    return {
        OBSERVATION: rng.normal(size=(num_rows, 3)).astype(np.float32),
        MISSION: texts,
        ACTION: rng.integers(-9, 9, num_rows),
        REWARD: rng.normal(size=(num_rows, 1)),
        DONE: ends,
        TRUNCATED: ends.copy(),
    }


def install(config: Config, name: str, rows: Rows, layout: str = "ted") -> str:
    """Write rows as an installed dataset, in uneven blocks; return its id."""
    id, folder = f"derived/{name}", config.root / "staged" / name
    folder.mkdir(parents=True)
    writer = LayoutWriter(layout, folder, id)
    for start in range(0, len(rows[DONE]), 19):
        writer.write({key: values[start : start + 19] for key, values in rows.items()})
    manifest = Manifest(id=id, **vars(writer.finish({})))
    assert commit_folder(folder, CacheRoot(config.root).dataset(id), manifest)
    return id


def bits(values: np.ndarray) -> list[bytes]:
    if values.dtype == object:
        return [repr(row).encode() for row in values.tolist()]
    return [row.tobytes() for row in values]


def expected(rows: Rows, others: Rows) -> dict[Key, list[int]]:
    """Return the rows of each column that are not the same, by Python alone."""
    pairs = {key: zip(bits(rows[key]), bits(others[key]), strict=False) for key in rows}
    return {key: [i for i, (a, b) in enumerate(pair) if a != b] for key, pair in pairs.items()}


def trajectory_of(row: int) -> int:
    return [k for k, length in enumerate(LENGTHS) for _ in range(length)][row]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 11 rows, so that trajectories and differences cross them."""
    for module in (row_comparison, row_digests):
        monkeypatch.setattr(module, "rows_per_block", lambda row_bytes: 11)


@pytest.fixture(params=[("ted", "ted"), ("ted", "compact"), ("compact", "compact")], ids="-".join)
def layouts(request: pytest.FixtureRequest) -> tuple[str, str]:
    pair: tuple[str, str] = request.param
    return pair


def compare(config: Config, rows: Rows, others: Rows, layouts: tuple[str, str] = ("ted", "ted")):
    ids = (install(config, "a", rows, layouts[0]), install(config, "b", others, layouts[1]))
    return datasets_cli.compare_datasets(*ids, config=config)


def test_the_same_rows_are_equal_in_all_layouts(config: Config, layouts: tuple[str, str]) -> None:
    difference = compare(config, rows_of(), rows_of(), layouts)
    assert difference.equal and difference.num_compared == NUM_ROWS
    assert [each.num_different for each in difference.columns] == [0] * 7  # with `episode`
    assert difference.num_shared == (len(LENGTHS), len(LENGTHS))
    assert main(["diff", "derived/a", "derived/b"]) == 0


def put(key: Key, place: object, value: object) -> Callable[[Rows], None]:
    def change(rows: Rows) -> None:
        rows[key][place] = value

    return change


def swap_rows(rows: Rows) -> None:
    for key in (OBSERVATION, ACTION, REWARD):
        rows[key][[20, 40]] = rows[key][[40, 20]]


def swap_columns(rows: Rows) -> None:
    rows[OBSERVATION][:, [0, 2]] = rows[OBSERVATION][:, [2, 0]]


def shift_episode(rows: Rows) -> None:
    rows[DONE][[19, 20]] = rows[DONE][[20, 19]]
    rows[TRUNCATED][:] = rows[DONE]


def nan_bits(rows: Rows) -> None:
    rows[OBSERVATION].view(np.uint32)[44, 1] = 0x7FC00001


FAULTS = {
    "NaN": put(OBSERVATION, (17, 2), np.nan),
    "infinity": put(REWARD, 8, -np.inf),
    "moved row": swap_rows,
    "swapped column": swap_columns,
    "shifted episode": shift_episode,
    "one flag": put(TRUNCATED, 6, False),
    "text": put(MISSION, 29, "go to 1\N{COMBINING ACUTE ACCENT}"),
    "last row": put(ACTION, NUM_ROWS - 1, 77),
}


@pytest.mark.parametrize("name", FAULTS)
def test_planted_faults_are_found(name: str, config: Config) -> None:
    rows, others = rows_of(), rows_of()
    FAULTS[name](others)
    difference = compare(config, rows, others, ("ted", "compact"))
    known = {each.column.key: each for each in difference.columns}
    episode = known.pop(("episode",))
    for key, numbers in expected(rows, others).items():
        assert known[key].num_different == len(numbers), key
        if not numbers:
            assert (known[key].row, known[key].trajectory, known[key].values) == (None, None, ())
            continue
        assert known[key].row == numbers[0]
        assert known[key].trajectory == trajectory_of(numbers[0])
        assert known[key].largest_difference == largest(rows[key], others[key])
    is_shifted = name == "shifted episode"
    assert not difference.equal
    assert (difference.trajectory, episode.row) == ((2, 20) if is_shifted else (None, None))


def largest(first: np.ndarray, second: np.ndarray) -> float | None:
    if first.dtype == object:
        return None
    pairs = zip(first.ravel().tolist(), second.ravel().tolist(), strict=True)
    return max(d for d in (abs(a - b) for a, b in pairs) if np.isfinite(d))


def test_bits_are_compared_and_not_numbers(config: Config, layouts: tuple[str, str]) -> None:
    rows, others = rows_of(), rows_of()
    rows[OBSERVATION][44, 1] = np.nan
    nan_bits(others)
    rows[REWARD][3], others[REWARD][3] = 0.0, -0.0
    difference = compare(config, rows, others, layouts)
    known = {each.column.key: each for each in difference.columns}
    observation, reward = known[OBSERVATION], known[REWARD]
    assert (observation.row, observation.index, observation.trajectory) == (44, (1,), 5)
    assert observation.values == ("nan (0x7fc00000)", "nan (0x7fc00001)")
    assert (reward.row, reward.values) == (3, ("0.0", "-0.0"))
    assert observation.largest_difference == reward.largest_difference == 0


@pytest.mark.parametrize(
    ("dtype", "first", "second"),
    [
        ("int8", -128, 127),
        ("int64", -(2**63), 2**63 - 1),
        ("uint64", 2**64 - 1, 2**53),
        ("float16", -65504, 65504),
        ("float64", 1e-300, -1e-300),
        ("complex64", 3 + 4j, 0),
        ("bool", True, False),
    ],
)
def test_the_largest_difference_is_exact(
    dtype: str, first: complex, second: complex, config: Config
) -> None:
    rows, others = rows_of(), rows_of()
    for each, value in ((rows, first), (others, second)):
        each["info", "x"] = np.ones((NUM_ROWS, 2, 3), dtype)
        each["info", "x"][33, 1, 2] = value
    [found] = [e for e in compare(config, rows, others).columns if e.num_different]
    assert (found.row, found.index) == (33, (1, 2))
    assert found.largest_difference == abs(first - second)


def test_numbers_that_numpy_lacks_are_compared(config: Config) -> None:
    rows, others = rows_of(), rows_of()
    for each, value in ((rows, 1.0), (others, 1.5)):
        halves = np.full(NUM_ROWS, 1.0, np.float32)
        halves[50:] = value
        packed = (halves.view(np.uint32) >> 16).astype(np.uint16)
        each["info", "x"] = packed.view(np.dtype([("bfloat16", "<u2")]))
        each["info", "y"] = packed.astype(np.uint8).view(np.dtype([("float4_e2m1fn_x2", "u1")]))
    wide, packed4 = [e for e in compare(config, rows, others).columns if e.num_different]
    assert (wide.row, wide.num_different, wide.values) == (50, NUM_ROWS - 50, ("1.0", "1.5"))
    assert (wide.largest_difference, packed4.largest_difference) == (0.5, None)
    assert packed4.values == ("(0x80)", "(0xc0)")


def trajectories_of(rows: Rows, lengths: tuple[int, ...]) -> list[tuple[bytes, ...]]:
    ends = np.cumsum(lengths)
    keys = (OBSERVATION, MISSION, ACTION)
    return [
        tuple(byte for key in keys for byte in bits(rows[key][end - length : end]))
        for end, length in zip(ends, lengths, strict=True)
    ]


def test_trajectories_of_the_training_data_are_found_in_the_test_data(
    config: Config, layouts: tuple[str, str]
) -> None:
    train, fresh = rows_of(), rows_of((4, 9), seed=1)
    # The fifth trajectory twice, the third, the last with another row amid it, the first with
    # another text at its end, and new ones.
    parts = [slice(25, 30), slice(8, 20), slice(25, 30), slice(30, 60), slice(0, 7)]
    test = {k: np.concatenate([fresh[k], *(train[k][part] for part in parts)]) for k in train}
    test[REWARD] = test[REWARD] + 1
    test[OBSERVATION][50, 2] += 1
    test[MISSION][-1] = "stop"
    lengths = (4, 9, 5, 12, 5, 30, 7)
    of_train, of_test = trajectories_of(train, LENGTHS), trajectories_of(test, lengths)
    difference = compare(config, train, test, layouts)
    assert difference.num_shared[0] == sum(each in of_test for each in of_train) == 2
    assert difference.num_shared[1] == sum(each in of_train for each in of_test) == 3


def test_trajectories_of_text_alone_are_found(config: Config) -> None:
    rows = {key: values for key, values in rows_of().items() if key != OBSERVATION}
    rows[ACTION] = np.array([f"push {number}" for number in range(NUM_ROWS)], object)
    others = {key: values[8:] for key, values in rows.items()}
    difference = compare(config, rows, others, ("ted", "compact"))
    assert difference.num_shared == (4, 4) and difference.trajectory == 0


def test_of_more_rows_the_first_ones_are_compared(
    config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = rows_of()
    fewer = {key: values[:25].copy() for key, values in rows.items()}
    fewer[ACTION][3] += 1
    difference = compare(config, rows, fewer)
    assert (difference.num_compared, difference.trajectory, difference.equal) == (25, None, False)
    assert difference.num_shared == (3, 3)
    assert main(["diff", "derived/b", "derived/a"]) == 10
    assert "Only the first 25 transitions of both are compared." in capsys.readouterr().out


def test_columns_of_one_dataset_or_of_another_type_are_named(config: Config) -> None:
    rows, others = rows_of(), rows_of()
    rows["info", "one"] = np.zeros(NUM_ROWS, np.int16)
    others["info", "two"] = np.array(["a"] * NUM_ROWS, object)
    others[ACTION] = others[ACTION].astype(np.int32)
    others[REWARD] = others[REWARD].reshape(-1)
    difference = compare(config, rows, others)
    first, second = (
        {(".".join(column.key), column.dtype, column.shape) for column in columns}
        for columns in difference.only
    )
    assert first == {
        ("info.one", "int16", ()),
        ("action", "int64", ()),
        ("next.reward", "float64", (1,)),
    }
    assert second == {
        ("info.two", "text", ()),
        ("action", "int32", ()),
        ("next.reward", "float64", ()),
    }
    assert not difference.equal and not any(each.num_different for each in difference.columns)
    assert difference.num_shared is None


@pytest.mark.parametrize("layout", ["ted", "compact"])
def test_an_edited_copy_of_a_published_file_differs_where_h5py_says(
    layout: str, config: Config
) -> None:
    datasets_cli.download("demo/door-minari", layout=layout, config=config)

    def edit(batch):  # type: ignore[no-untyped-def]
        return batch.set("action", batch["action"].clamp(max=0.5))

    datasets_cli.preprocess("demo/door-minari", edit, "edited", config=config)
    with h5py.File(DEMO_DATA / "minari/D4RL/door/human-v2/data/main_data.hdf5") as file:
        groups = sorted(file, key=lambda name: int(name.removeprefix("episode_")))
        actions = [file[name]["actions"][:] for name in groups]
    whole = np.concatenate(actions)
    edited = np.minimum(whole, np.float32(0.5))
    numbers = np.flatnonzero((whole != edited).any(1))
    difference = datasets_cli.compare_datasets("demo/door-minari", "edited", config=config)
    [action] = [each for each in difference.columns if each.num_different]
    ends = np.cumsum([len(each) for each in actions])
    assert (action.column.key, action.num_different) == (ACTION, len(numbers))
    assert (action.row, action.trajectory) == (numbers[0], int((ends <= numbers[0]).sum()))
    assert action.largest_difference == np.abs(whole.astype(float) - edited.astype(float)).max()


@pytest.mark.parametrize("id", ["demo/pong", "demo/iris"])
def test_frames_and_tables_of_one_step_are_equal_across_layouts(id: str, config: Config) -> None:
    made = datasets_cli.download(id, config=config)
    other = {"compact": "ted", "ted": "compact"}[datasets_cli.dataset_info(id).manifest.layout]
    datasets_cli.preprocess(id, Pipeline(), "copy", config=config)  # keeps final steps
    datasets_cli.convert("derived/copy", layout=other, config=config)
    difference = datasets_cli.compare_datasets(id, "copy", config=config)
    assert made and difference.equal
    assert difference.num_shared == difference.num_trajectories


def test_one_content_is_not_read(config: Config, capsys: pytest.CaptureFixture[str]) -> None:
    install(config, "a", rows_of())
    difference = datasets_cli.compare_datasets("derived/a", "a", config=config)
    assert difference.equal and difference.num_compared is None
    assert difference.num_shared == (len(LENGTHS), len(LENGTHS))
    assert main(["diff", "a", "derived/a"]) == 0
    assert "Nothing was read: the content digests are equal." in capsys.readouterr().out


def test_wrong_ids_and_damage_are_told_by_exit_codes(
    config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    id = install(config, "a", rows_of())
    with pytest.raises(UnknownDataset):
        datasets_cli.compare_datasets(id, "derived/none", config=config)
    with pytest.raises(DatasetNotInstalled):
        datasets_cli.compare_datasets("demo/pong", id, config=config)
    other = install(config, "b", rows_of())
    (CacheRoot(config.root).dataset(other) / "action.memmap").write_bytes(b"short")
    with pytest.raises(DamagedDataset):
        datasets_cli.compare_datasets(id, other, config=config)
    assert [main(["diff", id, each]) for each in ("none", other)] == [3, 4]
    assert main(["diff", id]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_the_command_line_escapes_text_and_has_json(
    config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, others = rows_of(), rows_of()
    others[MISSION][5] = "\x1b[2J" + "long" * 50
    difference: DatasetDifference = compare(config, rows, others)
    assert main(["diff", "derived/a", "derived/b"]) == 10
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and "observation.mission" in shown
    assert main(["--json", "diff", "derived/a", "derived/b"]) == 10
    document = json.loads(capsys.readouterr().out)
    assert document == difference.to_json() and document["equal"] is False
    assert main(["-q", "diff", "derived/a", "derived/b"]) == 10
    assert capsys.readouterr().out == "observation.mission\n"


def test_datasets_are_compared_without_torch(config: Config) -> None:
    for name, layout in (("a", "ted"), ("b", "compact")):
        install(config, name, rows_of(), layout)
    imported = imported_by_commands("diff derived/a derived/b")
    assert not imported & {"torch", "tensordict", "pandas"}
