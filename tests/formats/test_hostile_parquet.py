"""Odd Parquet tables, against pandas, by which openml-python reads them."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from datasets_cli.errors import SourceError
from datasets_cli.formats.arff import NOMINAL, NUMERIC, TEXT

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

from datasets_cli.formats.parquet import Labels, open_parquet  # noqa: E402  # needs pyarrow

NAN = float("nan")


def read(
    path: Path, column: Any, labels: Labels = None
) -> tuple[str, tuple[str, ...], list[float] | None]:
    """Return kind, labels and values of a column that is written to a file of its own."""
    return read_table(path, pa.table({"c": column}), [labels])[0]


def read_table(
    path: Path, table: Any, declared: Sequence[Labels]
) -> list[tuple[str, tuple[str, ...], list[float] | None]]:
    pq.write_table(table, path)
    with open_parquet(path, declared) as parquet:
        wanted = [i for i, column in enumerate(parquet.attributes) if column.kind != TEXT]
        blocks = [np.empty((0, len(wanted))), *parquet.blocks(wanted)]
        rows = dict(zip(wanted, np.concatenate(blocks).T.tolist(), strict=True))
        return [(a.kind, a.labels, rows.get(i)) for i, a in enumerate(parquet.attributes)]


def same(found: Sequence[float] | None, right: Sequence[float]) -> bool:
    return found is not None and np.array_equal(found, right, equal_nan=True)


NUMBERS: dict[str, Any] = {
    "float64": pa.array([1.5, -0.0, None, NAN]),
    "float32": pa.array([1.5, None], pa.float32()),
    "float16": pa.array(np.array([1.5, 2], np.float16)),
    "int8": pa.array([-1, None], pa.int8()),
    "int64": pa.array([2**53 + 1, -5, None]),
    "uint64": pa.array([2**64 - 1, 0, None], pa.uint64()),
    "bool": pa.array([True, False]),
    "bool with a missing value": pa.array([True, None, False]),
    "several pieces": pa.chunked_array([[1.0], [], [2.0, None]]),
    "no rows": pa.array([], pa.float64()),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_those_of_pandas(name: str, tmp_path: Path) -> None:
    kind, _, found = read(tmp_path / "t.pq", NUMBERS[name])
    right = pd.read_parquet(tmp_path / "t.pq")["c"].astype(object)
    assert kind == NUMERIC
    assert same(found, [NAN if pd.isna(value) else float(value) for value in right])


def test_what_pandas_leaves_as_objects_are_numbers_all_the_same(tmp_path: Path) -> None:
    decimals = pa.array([Decimal("1.25"), None, Decimal(-3)])
    assert same(read(tmp_path / "t.pq", decimals)[2], [1.25, NAN, -3])
    assert same(read(tmp_path / "t.pq", pa.array([None, None]))[2], [NAN, NAN])


# Categories other than strings become plain values in Parquet, for pandas too.
CATEGORIES: dict[str, Any] = {
    "strings": ["b", None, "a", "b"],
    "in an order of their own": pd.Categorical(["a", "b", None], ["b", "unused", "a"]),
}


@pytest.mark.parametrize("name", CATEGORIES)
@pytest.mark.parametrize("labels", [None, ["a", "b"]])
def test_categories_are_those_of_pandas_whatever_is_declared(
    name: str, labels: Labels, tmp_path: Path
) -> None:
    frame = pd.DataFrame({"c": pd.Categorical(CATEGORIES[name])})
    kind, found_labels, found = read(tmp_path / "t.pq", pa.Table.from_pandas(frame)["c"], labels)
    right = frame["c"].cat
    assert (kind, found_labels) == (NOMINAL, tuple(map(str, right.categories)))
    assert same(found, [NAN if code < 0 else float(code) for code in right.codes])


def test_the_categories_of_two_pieces_are_joined(tmp_path: Path) -> None:
    pieces = [pa.array(["b", "a"]).dictionary_encode(), pa.array(["c", "a"]).dictionary_encode()]
    path = tmp_path / "t.pq"
    with pq.ParquetWriter(path, pa.schema({"c": pieces[0].type})) as writer:
        for piece in pieces:
            writer.write_table(pa.table({"c": piece}))
    with open_parquet(path) as parquet:
        (attribute,) = parquet.attributes
        rows = np.concatenate([*parquet.blocks([0])])
    found = [attribute.labels[int(position)] for position in rows[:, 0]]
    assert found == pd.read_parquet(path)["c"].tolist() == ["b", "a", "c", "a"]


PLAIN: dict[str, tuple[Any, Sequence[str], tuple[str, ...], list[float]]] = {
    "strings": (["b", None, "a"], ["a", "b", "c"], ("a", "b", "c"), [1, NAN, 0]),
    "strings of no known labels": (["b", None, "a", "b"], [], ("a", "b"), [1, NAN, 0, 1]),
    "long strings": (pa.array(["b", "a"], pa.large_string()), ["a", "b"], ("a", "b"), [1, 0]),
    "bytes": (pa.array([b"b", b"a"]), ["a", "b"], ("a", "b"), [1, 0]),
    "bytes of Latin-1": (pa.array([b"\xe9", b"a"]), ["a", "é"], ("a", "é"), [1, 0]),
    "an empty string": (["", "a"], ["a", ""], ("a", ""), [1, 0]),
    "booleans": ([True, False, None], ["FALSE", "TRUE"], ("FALSE", "TRUE"), [1, 0, NAN]),
    "booleans as digits": ([True, False], ["0", "1"], ("0", "1"), [1, 0]),
    "booleans of no known labels": ([True, False], [], ("False", "True"), [1, 0]),
    "integers": ([3, 1, 3], ["3", "2", "1"], ("3", "2", "1"), [0, 2, 0]),
    "integers as floats": ([3.0, None, NAN, 1.0], ["1", "3"], ("1", "3"), [1, NAN, NAN, 0]),
    "integers with labels of floats": ([3, 1], ["1.0", "3.0"], ("1.0", "3.0"), [1, 0]),
    "integers of no known labels": ([10, 9, 10], [], ("9", "10"), [1, 0, 1]),
    "floats of no known labels": ([0.5, 2.0, None], [], ("0.5", "2"), [0, 1, NAN]),
    "declared twice": (["a", "b"], ["a", "b", "a"], ("a", "b", "a"), [0, 1]),
    "pieces": (pa.chunked_array([["b"], ["a", "b"]]), ["a", "b"], ("a", "b"), [1, 0, 1]),
    "no rows": (pa.array([], pa.string()), ["a"], ("a",), []),
    "nothing but missing values": ([None], [], (), [NAN]),
    "nothing but missing values of known labels": ([None], ["a"], ("a",), [NAN]),
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_values_are_labels_where_they_are_declared(name: str, tmp_path: Path) -> None:
    column, declared, labels, right = PLAIN[name]
    kind, found_labels, found = read(tmp_path / "t.pq", column, declared)
    assert (kind, found_labels) == (NOMINAL, labels)
    assert same(found, right)


def test_small_blocks_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = pa.table({"c": ["a", "b", None] * 5, "x": np.arange(15.0)})
    whole = read_table(tmp_path / "t.pq", columns, [[], None])
    monkeypatch.setattr("datasets_cli.schema.columns.BLOCK_ROWS", 4)
    assert repr(read_table(tmp_path / "t.pq", columns, [[], None])) == repr(whole)
    assert same(whole[0][2], [0, 1, NAN] * 5)


@pytest.mark.parametrize(
    "column",
    [
        ["a", "b"],
        pa.array([b"a"]),
        [datetime.date(2020, 1, 1)],
        [datetime.datetime(2020, 1, 1)],
        [datetime.timedelta(1)],
        [[1.0], [2.0]],
        [{"a": 1}],
    ],
)
def test_strings_dates_and_lists_are_text_where_no_labels_are_declared(
    column: Any, tmp_path: Path
) -> None:
    assert read(tmp_path / "t.pq", column) == (TEXT, (), None)


def test_dates_and_lists_are_no_labels_even_where_some_are_declared(tmp_path: Path) -> None:
    assert read(tmp_path / "t.pq", [[1.0]], ["a"]) == (TEXT, (), None)
    assert read(tmp_path / "t.pq", [datetime.date(2020, 1, 1)], ["a"]) == (TEXT, (), None)


def test_the_row_labels_of_pandas_are_no_column_unless_they_are_declared(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": [1.0, 2.0]}, index=pd.Index(["p", "q"], name="id"))
    table = pa.Table.from_pandas(frame)
    assert read_table(tmp_path / "t.pq", table, [None]) == [(NUMERIC, (), [1.0, 2.0])]
    both = read_table(tmp_path / "t.pq", table, [None, []])
    assert [kind for kind, _, _ in both] == [NUMERIC, NOMINAL]


def test_columns_of_one_name_are_columns_of_their_own(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1.0]), pa.array(["b"])], names=["c", "c"])
    (_, _, first), (_, labels, second) = read_table(tmp_path / "t.pq", table, [None, ["a", "b"]])
    assert (first, labels, second) == ([1.0], ("a", "b"), [1.0])


@pytest.mark.parametrize(
    ("column", "labels", "row", "found"),
    [
        (["a", None, "z"], ["a", "b"], 2, "z"),
        ([True], ["yes", "no"], 0, True),
        ([1, 2], ["1", "one"], 1, 2),
        (["A"], ["a"], 0, "A"),
    ],
)
def test_a_value_that_is_no_declared_label_is_refused_by_its_row(
    column: Any, labels: list[str], row: int, found: object, tmp_path: Path
) -> None:
    with pytest.raises(SourceError) as caught:
        read(tmp_path / "t.pq", column, labels)
    error = caught.value
    assert (error.path, error.key, error.row) == ("t.pq", "c", row)
    assert (error.expected, error.found) == (labels, found)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.pq"
    read(path, ["a", "b"] * 500)
    whole = path.read_bytes()
    for data in (b"", b"PAR1", b"PAR1" + bytes(100), whole[:-1], whole[:50]):
        path.write_bytes(data)
        with pytest.raises(SourceError) as caught, open_parquet(path):
            pass
        assert caught.value.path == "t.pq"
