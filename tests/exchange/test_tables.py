"""Parquet, CSV and folders of ``datasets``: what pandas and pyarrow read, and what is read back."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import datasets_cli
from datasets_cli import ExperienceReplay, create_dataset, export_dataset, import_dataset
from datasets_cli.config import Config
from datasets_cli.errors import OutOfRange, RldsError, SourceError, UsageError, WrongRows, WrongSize
from datasets_cli.formats.limits import raised_limits
from tests.exchange.test_create import columns_of, steps
from tests.support.refusals import refused


def same(found: np.ndarray, right: np.ndarray) -> bool:
    """Return whether arrays have the same type, shape and bits."""
    return (found.dtype, found.shape, found.tobytes()) == (
        right.dtype,
        right.shape,
        right.tobytes(),
    )


def given_steps() -> dict[Any, Any]:
    """Return steps of every kind of column, with successors."""
    count = 8
    rng = np.random.default_rng(0)
    state = rng.normal(size=(count, 3)).astype(np.float32)
    state[2, 1] = np.nan
    return {
        **steps(count),
        "observation": {"state": state, "frame": rng.integers(0, 255, (count, 4, 5), np.uint8)},
        "next_observation": {"state": state + 1, "frame": np.zeros((count, 4, 5), np.uint8)},
        "info": {
            "half": rng.normal(size=(count, 1)).astype(np.float16),
            "flag": np.arange(count) % 3 == 0,
            "small": np.arange(count, dtype=np.int8),
            "large": np.uint64(2**64 - 1) - np.arange(count, dtype=np.uint64),
            "words": np.array([[f"a {n}", "ж\n,"] for n in range(count)], object),
        },
    }


@pytest.mark.parametrize("layout", ["ted", "compact"])
def test_every_kind_of_column_comes_back_with_what_is_known_of_the_data(
    config: Config, tmp_path: Path, layout: str
) -> None:
    info = {"title": "Ein Röböter", "ref_max_score": 3.0}
    columns = given_steps()
    lengths = {"lengths": [3, 1, 4]}
    create_dataset("mine/a", columns, info=info, layout=layout, config=config, **lengths)
    made = export_dataset("mine/a", "parquet", tmp_path / "a.parquet", config=config)
    assert made.losses == ()
    import_dataset(tmp_path / "a.parquet", "mine/b", layout="ted", config=config)
    back = columns_of("mine/b", config)
    assert same(back["observation", "state"], columns["observation"]["state"])
    assert same(back["observation", "frame"], columns["observation"]["frame"])
    for name in ("half", "flag", "small", "large"):
        assert same(back["info", name], columns["info"][name]), name
    replay = ExperienceReplay("mine/b", text=True, root=config.root)
    words = replay.to_numpy(["action", ("info", "words")])["info.words"]
    assert (words == columns["info"]["words"]).all()
    assert replay.metadata["title"] == info["title"]


@given(
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    dtype=st.sampled_from(["bool", "int8", "uint16", "float16", "float32", "float64"]),
    shape=st.sampled_from([(), (1,), (3,), (2, 2)]),
)
def test_any_shape_and_type_comes_back(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], dtype: str, shape: Any
) -> None:
    folder, count = tmp_path_factory.mktemp("any"), sum(lengths)
    config = Config(folder / "root")
    data = np.random.default_rng(count).integers(0, 2, (count, *shape)).astype(dtype)
    columns = {"observation": data, "next_observation": data, "action": data}
    columns["reward"] = np.arange(float(count))
    create_dataset("mine/a", columns, lengths=lengths, layout="ted", config=config)
    export_dataset("mine/a", "parquet", folder / "a.parquet", config=config)
    import_dataset(folder / "a.parquet", "mine/b", layout="ted", config=config)
    right, back = columns_of("mine/a", config), columns_of("mine/b", config)
    assert all(same(back[key], right[key]) for key in right) and back.keys() == right.keys()


def test_a_table_of_pandas_with_lists_and_missing_numbers_is_read(
    config: Config, tmp_path: Path
) -> None:
    table = pandas.DataFrame(
        {
            "observation": [[1.0, 2.0], [3.0, 4.0]],
            "action": [1, 2],
            "reward": [0.5, np.nan],
            "episode": [7, 7],
            "when": pandas.to_datetime(["2020-01-01"] * 2),
        }
    )
    table.to_parquet(tmp_path / "a.parquet")
    plan = datasets_cli.plan_import(tmp_path / "a.parquet", "mine/a", config=config)
    assert plan.dropped == ("when: a column cannot have values of type timestamp[us]",)
    import_dataset(tmp_path / "a.parquet", "mine/a", config=config)
    assert columns_of("mine/a", config)["observation",].tolist() == [[1.0, 2.0]]


CSV = """observation_0,observation_1,action,reward,episode,t
0,0.5,1,0.1,0,1
1,1,2,1,0,2
2,3,3,1,1,3
"""


def test_numbered_columns_of_csv_are_one_vector_and_that_is_said(
    config: Config, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(CSV + "4,5,6,1,1,4\n")
    plan = datasets_cli.plan_import(path, "mine/a", config=config)
    assert plan.map["observation"] == "observation_0..1"
    assert plan.dropped == ("t: no key is mapped to it",)
    import_dataset(path, "mine/a", config=config)
    right = pandas.read_csv(path).iloc[[0, 2]]
    back = columns_of("mine/a", config)
    vector = right[["observation_0", "observation_1"]].to_numpy()
    assert same(back["observation",], vector) and same(back["action",], right["action"].to_numpy())


def test_whole_numbers_beside_fractions_are_read_where_float64_holds_them(
    config: Config, tmp_path: Path
) -> None:
    path = tmp_path / "a.csv"
    head = "observation,action,reward,episode\n0.5,1,1,0\n"
    path.write_text(f"{head}1000000000000000000,1,1,0\n2,1,1,0\n")
    import_dataset(path, "mine/a", config=config)
    assert columns_of("mine/a", config)["observation",].tolist() == [0.5, 1e18]
    path.write_text(f"{head}1000000000000000001,1,1,0\n2,1,1,0\n")
    with pytest.raises(WrongRows) as raised:
        import_dataset(path, "mine/b", config=config)
    assert raised.value.key == "observation"


def test_fractions_below_whole_numbers_are_read(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("datasets_cli.exchange.csv.BLOCK_BYTES", 60)
    path = tmp_path / "a.csv"
    rows = [f"{n},{n},{n},{n},0\n" for n in range(40)]
    rows += ["1.5,2,3e0,nan,0\n", "1,2,3,4,0\n"]
    path.write_text("x_0,x_1,action,reward,episode\n" + "".join(rows))
    map = {"observation": "x_0..1"}
    import_dataset(path, "mine/a", map=map, config=config, layout="ted")
    right, back = pandas.read_csv(path).iloc[:-1], columns_of("mine/a", config)
    assert same(back["observation",], right[["x_0", "x_1"]].astype(float).to_numpy())
    assert same(back["action",], right["action"].to_numpy())
    assert same(back["next", "reward"][:, 0], right["reward"].to_numpy())
    path.write_text("observation,action,reward,episode\n" + "1,2,3,0\n" * 40 + "1,a,3,0\n")
    with pytest.raises(SourceError) as caught:
        import_dataset(path, "mine/b", config=config)
    assert caught.value.path == "a.csv"


HEAD, *LINES = CSV.splitlines(keepends=True)
NAMES = HEAD.strip().split(",")


@pytest.mark.parametrize(
    ("head", "columns", "num_steps"),
    [
        ("", NAMES, 3),
        ("", "observation_0..1, action,reward,episode,t", 3),
        ("a,a,b,c,d,e\n", NAMES, 3),
        ("0.5,1e3,0,-1,7,left\n", [*NAMES[:-1], "words"], 4),
    ],
)
def test_columns_gives_names_to_a_file_whose_first_line_has_none(
    config: Config, tmp_path: Path, head: str, columns: Any, num_steps: int
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(head + "".join(LINES))
    with pytest.raises(UsageError) as raised:
        import_dataset(path, "mine/a", config=config)
    assert raised.value.argument == "columns"
    plan = datasets_cli.plan_import(path, "mine/a", columns=columns, config=config)
    assert plan.map["observation"] == "observation_0..1" and "the first line" in plan.notes[-1]
    made = import_dataset(path, "mine/a", columns=columns, layout="ted", config=config)
    right = pandas.read_csv(path, header=None, names=NAMES, skiprows=int(head.startswith("a")))
    assert made.num_transitions + made.final_steps == len(right) == num_steps
    last = right.groupby("episode", sort=False).tail(1).index
    assert columns_of("mine/a", config)["action",].tolist() == right["action"].drop(last).tolist()


@pytest.mark.parametrize("columns", [NAMES[:5], [*NAMES[:5], "action"], "x_0..6", 3, [3]])
def test_names_that_are_too_few_or_given_twice_are_refused(
    config: Config, tmp_path: Path, columns: Any
) -> None:
    (tmp_path / "a.csv").write_text("".join(LINES))
    with pytest.raises(UsageError) as raised:
        import_dataset(tmp_path / "a.csv", "mine/a", columns=columns, config=config)
    assert raised.value.argument == "columns"
    pq.write_table(pa.table({"action": [1]}), tmp_path / "a.parquet")
    with pytest.raises(UsageError) as caught:
        import_dataset(
            tmp_path / "a.parquet", "mine/a", format="parquet", columns="x", config=config
        )
    assert caught.value.argument == "columns"
    assert caught.value.found == "parquet"


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
def test_another_delimiter_is_named_and_a_name_may_have_one(
    config: Config, tmp_path: Path, delimiter: str
) -> None:
    (tmp_path / "a.csv").write_text(CSV.replace(",", delimiter))
    with pytest.raises(UsageError) as raised:
        import_dataset(tmp_path / "a.csv", "mine/a", config=config)
    assert (raised.value.expected, raised.value.found) == (",", delimiter)
    lines = [f"{number},{line}" for number, line in enumerate(CSV.splitlines())]
    (tmp_path / "a.csv").write_text("\n".join(lines).replace("0", f"n{delimiter}", 1))
    assert import_dataset(tmp_path / "a.csv", "mine/a", config=config).num_transitions == 1


LARGE = 2**53 + 1


@pytest.mark.parametrize(
    ("column", "first", "rest"),
    [
        ("x_0", "0", [str(LARGE)]),  # beside x_1, which has fractions
        ("reward", "1", [str(LARGE), "0.5"]),
        ("reward", "0.5", [f" -{LARGE} "]),
        ("reward", "0.5", [str(10**20 + 1)]),
        ("reward", "1", [str(LARGE)]),
    ],
)
def test_a_whole_number_that_float64_rounds_is_refused_with_its_column_and_row(
    config: Config,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    column: str,
    first: str,
    rest: Any,
) -> None:
    monkeypatch.setattr("datasets_cli.exchange.csv.BLOCK_BYTES", 60)
    table = pandas.DataFrame({"x_0": ["1"] * 41, "x_1": "0.5", "action": 1, "reward": "1"})
    table["episode"], table[column] = 0, [first] * 40 + ["2"]
    map = {"observation": "x_0..1"}
    for row in range(40, 40 + len(rest)):
        table.loc[row] = table.loc[0]
        table.loc[row, column] = rest[row - 40]
    table.to_csv(tmp_path / "a.csv", index=False)
    with refused(UsageError, row=40, found=int(rest[0])):
        import_dataset(tmp_path / "a.csv", "mine/a", map=map, config=config)
    table.loc[40, column] = str(2**60)
    table.to_csv(tmp_path / "a.csv", index=False)
    import_dataset(tmp_path / "a.csv", "mine/a", map=map, config=config)


WRONG: dict[str, tuple[str, str | bytes, type[RldsError]]] = {
    "empty": ("a.csv", "", SourceError),
    "no row": ("a.csv", CSV.splitlines()[0] + "\n", UsageError),
    "a short row": ("a.csv", CSV + "1,2\n", SourceError),
    "text among numbers": ("a.csv", CSV + "1,2,3,x,4,5\n", UsageError),
    "a missing action": ("a.csv", CSV + "1,2,,3,4,5\n", UsageError),
    "two of a name": ("a.csv", "action,action,reward\n1,2,3\n", UsageError),
    "no ends": ("a.csv", "observation,action,reward\n1,2,3\n", UsageError),
    "semicolons": ("a.csv", CSV.replace(",", ";"), UsageError),
    "a gap in a vector": ("a.csv", CSV.replace("observation_1", "observation_2"), UsageError),
    "more than int64": (
        "a.csv",
        "observation,action,reward,episode\n1,99999999999999999999,1,1\n",
        UsageError,
    ),
    "not UTF-8": ("a.csv", b"observation,action,reward,episode\n\xff,1,1,1\n", UsageError),
    "no Parquet": ("a.parquet", "no", SourceError),
    "no list": ("state.json", "{}", SourceError),
    "a list of others": ("state.json", '{"_data_files": [{"filename": "../x"}]}', SourceError),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_leaves_nothing(config: Config, tmp_path: Path, case: str) -> None:
    name, content, error = WRONG[case]
    place = tmp_path / "given"
    place.mkdir()
    (place / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(error):
        import_dataset(place if name == "state.json" else place / name, "mine/a", config=config)
    assert not [*config.root.glob("datasets/*/*"), *config.root.glob("tmp/*")]


@pytest.mark.parametrize("row", [0, 3, 7])
def test_the_row_and_the_column_of_a_missing_value_are_told(
    config: Config, tmp_path: Path, row: int
) -> None:
    vectors: list[Any] = [[n, None if n == row else n] for n in range(8)]
    columns = {"observation": pa.array(vectors, pa.list_(pa.int32(), 2)), "action": range(8)}
    table = pa.table({**columns, "reward": [0.5] * 8, "episode": [0] * 8})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=3)
    with pytest.raises(WrongRows) as raised:
        import_dataset(tmp_path / "a.parquet", "mine/a", config=config)
    assert (raised.value.key, raised.value.row) == ("observation", row)


@pytest.mark.parametrize(
    ("header", "key"), [("observation_0", "observation"), ("action_0", "action")]
)
def test_a_column_that_is_missing_is_looked_for_by_its_name(
    config: Config, tmp_path: Path, header: str, key: str
) -> None:
    text = CSV.replace("observation_0,observation_1,", "observation,u,").replace(key, header)
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(UsageError) as raised:
        import_dataset(tmp_path / "a.csv", "mine/a", config=config)
    assert f"map={{'{key}': '{header}'}}" in str(raised.value.advice)
    assert raised.value.exit_code == 2
    (tmp_path / "a.csv").write_text(text.replace("0.1,0", "x,0"))
    with pytest.raises(WrongRows) as caught:
        import_dataset(tmp_path / "a.csv", "mine/a", map={key: header}, config=config)
    assert caught.value.key == ("next", "reward")
    assert caught.value.row == 0
    assert caught.value.found == "text [3, 1]"


@pytest.mark.parametrize("part", [0.3, 0.9, 0.999])
def test_a_cut_parquet_file_is_refused(config: Config, tmp_path: Path, part: float) -> None:
    create_dataset("mine/a", steps(), lengths=[3, 1, 4], config=config)
    path = tmp_path / "a.parquet"
    export_dataset("mine/a", "parquet", path, config=config)
    path.write_bytes(path.read_bytes()[: int(part * path.stat().st_size)])
    with pytest.raises(SourceError) as caught:
        import_dataset(path, "mine/b", config=config)
    assert caught.value.path == "a.parquet"
    assert not [*config.root.glob("datasets/mine/b*")]


def test_lists_of_different_lengths_are_refused(config: Config, tmp_path: Path) -> None:
    columns = {"observation": [[1.0], [1.0, 2.0]], "action": [1, 2], "reward": [0.0, 1.0]}
    pq.write_table(pa.table({**columns, "episode": [0, 0]}), tmp_path / "a.parquet")
    with pytest.raises(WrongRows) as raised:
        import_dataset(tmp_path / "a.parquet", "mine/a", config=config)
    assert (raised.value.key, raised.value.expected) == ("observation", "one shape")


def test_what_arrow_has_not_is_named_before_a_byte_is_written(
    config: Config, tmp_path: Path
) -> None:
    columns = {**steps(), "wave": np.zeros(8, np.complex64)}
    create_dataset("mine/a", columns, lengths=[3, 1, 4], config=config)
    with pytest.raises(UsageError) as caught:
        export_dataset("mine/a", "parquet", tmp_path / "a.parquet", config=config)
    assert caught.value.argument == "allow_loss"
    assert caught.value.found == ("wave: Arrow has no complex64 [], and the column is left out",)
    assert not [*tmp_path.glob("a.parquet*")]
    path = tmp_path / "a.parquet"
    export_dataset("mine/a", "parquet", path, allow_loss=True, config=config)
    assert "wave" not in pq.read_schema(path).names


def test_what_arrow_has_not_is_named_and_can_be_left_out(config: Config) -> None:
    columns = {**steps(), "wave": np.zeros(8, np.complex64)}
    create_dataset("mine/a", columns, lengths=[3, 1, 4], config=config)
    replay = ExperienceReplay("mine/a", root=config.root)
    with pytest.raises(UsageError, match="wave"):
        replay.to_arrow()
    found = replay.to_arrow(["action"]).read_all()["action"].to_pylist()
    assert found == columns["action"].tolist()


@pytest.mark.parametrize("most", [7, 8])
def test_a_parquet_file_of_more_rows_than_the_limit_is_refused(
    config: Config, tmp_path: Path, most: int
) -> None:
    create_dataset("mine/a", steps(), lengths=[3, 1, 4], config=config)
    export_dataset("mine/a", "parquet", tmp_path / "a.parquet", config=config)
    is_refused = refused(SourceError, key="rows", found=8) if most < 8 else nullcontext()
    with raised_limits({"rows": most}), is_refused:
        datasets_cli.plan_import(tmp_path / "a.parquet", "mine/b", config=config)


def test_rows_in_memory_are_those_of_the_files(config: Config) -> None:
    columns = given_steps()
    create_dataset("mine/a", columns, lengths=[3, 1, 4], config=config)
    replay = ExperienceReplay("mine/a", root=config.root)
    state = columns["observation"]["state"]
    assert same(replay.to_numpy()["observation.state"], state)
    assert same(replay.episodes_at([2]).to_numpy("observation")["observation.state"], state[4:])
    picked = replay.to_numpy(("observation", "state"), rows=[-1, 0])["observation.state"]
    masked = replay.to_numpy(("observation", "state"), rows=np.arange(len(state)) > 2)
    assert same(masked["observation.state"], state[3:])
    assert same(picked, state[[-1, 0]])
    reader = replay.to_arrow(["action", ("info", "words")])
    assert reader.read_all()["info.words"].to_pylist() == columns["info"]["words"].tolist()
    table = replay.to_pandas(columns="action", rows=slice(2, 5))
    assert (table.to_numpy() == columns["action"][2:5]).all()
    for rows in ([8], [0.5], "a"):
        with refused(OutOfRange, argument="index", found=rows):
            replay.to_numpy(rows=rows)


def test_two_columns_of_one_name_with_dots_are_not_one_in_memory(config: Config) -> None:
    columns = {**given_steps(), ("info", "a.b"): np.ones(8), ("info", "a", "b"): np.zeros(8)}
    create_dataset("mine/a", columns, lengths=[3, 1, 4], config=config)
    replay = ExperienceReplay("mine/a", root=config.root)
    for copy in (replay.to_numpy, replay.to_pandas, replay.to_arrow):
        with pytest.raises(UsageError, match=r"info\.a\.b"):
            copy()
    assert replay.to_numpy(("info", "a.b"))["info.a.b"].tolist() == [1] * 8


def test_a_copy_that_does_not_fit_is_refused(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_dataset("mine/a", given_steps(), lengths=[3, 1, 4], config=config)
    replay = ExperienceReplay("mine/a", root=config.root)
    monkeypatch.setattr("datasets_cli.core.system_errors.SMALL_BYTES", 0)
    monkeypatch.setattr("datasets_cli.core.system_errors.free_memory", lambda: 100)
    for copy in (replay.to_numpy, replay.to_pandas, replay.to_hf_dataset):
        with pytest.raises(WrongSize) as caught:
            copy("action")
        assert caught.value.expected == "50 bytes at most"
    assert replay.to_numpy("action", rows=[0])["action"].shape == (1, 2)


def test_datasets_reads_it_and_its_folder_comes_back(config: Config, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    create_dataset("mine/a", given_steps(), lengths=[3, 1, 4], layout="ted", config=config)
    table = ExperienceReplay("mine/a", root=config.root, text=True).to_hf_dataset()
    table.save_to_disk(tmp_path / "folder", num_shards=2)
    table = datasets.load_from_disk(tmp_path / "folder")
    assert table[3]["action"] == given_steps()["action"][3].tolist()
    made = import_dataset(tmp_path / "folder", "mine/b", layout="ted", config=config)
    right, back = columns_of("mine/a", config), columns_of("mine/b", config)
    assert made.num_transitions == 8
    assert back.keys() == right.keys() and all(same(back[key], right[key]) for key in right)


def folder_of(path: Path, table: pa.Table, compression: str | None = None) -> Path:
    """Write a table as ``save_to_disk`` does; return the file of its rows."""
    path.mkdir()
    (path / "state.json").write_text('{"_data_files": [{"filename": "a.arrow"}]}')
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(path / "a.arrow", table.schema, options=options) as stream:
        stream.write_table(table)
    return path / "a.arrow"


STEPS = {"observation": np.zeros(3000), "action": range(3000), "reward": np.ones(3000)}


def test_a_small_file_that_asks_for_more_memory_than_a_table_has_is_refused(
    config: Config, tmp_path: Path
) -> None:
    table = pa.table({**STEPS, "episode": np.zeros(3000, int)})
    file = folder_of(tmp_path / "a", table, "zstd")
    data, size = file.read_bytes(), (3000 * 8).to_bytes(8, "little")
    assert size in data and len(data) < 10_000
    file.write_bytes(data.replace(size, (20 * 10**9).to_bytes(8, "little"), 1))
    with pytest.raises(SourceError):
        import_dataset(tmp_path / "a", "mine/a", config=config)
    words = pa.DictionaryArray.from_arrays(pa.array(np.zeros(3000, np.int8)), ["x" * 10**5])
    folder_of(tmp_path / "b", table.append_column("info.word", words), "zstd")
    with pytest.raises(SourceError) as caught:
        import_dataset(tmp_path / "b", "mine/b", config=config)
    assert caught.value.key == "text_bytes"


@pytest.mark.parametrize("name", ["a.arrow", "state.json"])
@pytest.mark.parametrize("kind", ["a symbolic link", "a named pipe"])
def test_what_is_no_regular_file_of_a_folder_is_not_opened(
    config: Config, tmp_path: Path, name: str, kind: str
) -> None:
    folder_of(tmp_path / "a", pa.table({**STEPS, "episode": np.zeros(3000, int)}))
    import_dataset(tmp_path / "a", "mine/a", config=config)
    there = tmp_path / "a" / name
    file = there.rename(tmp_path / "kept")
    os.mkfifo(there) if kind == "a named pipe" else there.symlink_to(file)
    # A folder with such a list is of no format.
    with pytest.raises(UsageError if there.is_fifo() and name == "state.json" else SourceError):
        import_dataset(tmp_path / "a", "mine/b", config=config)
    assert not [*config.root.glob("datasets/mine/b*")]
