"""ARFF: what a file says is what is read, and a file that says nothing clear is refused by line."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.externals import _arff as liac

from datasets_cli.errors import SourceError
from datasets_cli.formats.arff import NOMINAL, TEXT, Attribute, open_arff
from tests.support.openml_files import header
from tests.support.refusals import refused

NAN = float("nan")
LABELS = {"x": "numeric", "c": "{a, 'b, c', '?'}"}


def read(path: Path, text: str | bytes) -> tuple[tuple[Attribute, ...], np.ndarray]:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with open_arff(path) as arff:
        wanted = [i for i, column in enumerate(arff.attributes) if column.kind != TEXT]
        blocks = list(arff.blocks(wanted))
        return arff.attributes, np.concatenate([*blocks, np.empty((0, len(wanted)))])


def same(found: np.ndarray, right: list[list[float]]) -> bool:
    expected = np.array(right, dtype=np.float64).reshape(
        len(right), -1 if right else found.shape[1]
    )
    # As bytes: -0.0 is not 0.0, and NaN is itself, whatever bits it has.
    bits = [np.where(np.isnan(rows), NAN, rows).tobytes() for rows in (found, expected)]
    return found.shape == expected.shape and bits[0] == bits[1]


# Every table that can be written is read

plain = st.text(st.sampled_from("ab \t,'\"\\%?é0"), min_size=1, max_size=6)
names = st.text(
    st.characters(blacklist_categories=["Cs", "Cc", "Zl", "Zp"]), min_size=1, max_size=6
)
numbers = st.none() | st.floats(allow_nan=False)


def quoted(text: str, quote: str) -> str:
    escaped = text.replace("\\", "\\\\").replace(quote, f"\\{quote}")
    return f"{quote}{escaped}{quote}"


@st.composite
def tables(draw: st.DrawFn) -> tuple[str, list[tuple[str, ...]], list[list[float]]]:
    """A file, the labels of each of its columns, and its rows as numbers."""
    columns = draw(
        st.lists(
            st.none() | st.lists(names, min_size=1, max_size=4, unique=True), min_size=1, max_size=4
        )
    )
    quote = draw(st.sampled_from("'\""))
    sparse = draw(st.booleans())
    lines = ["@relation t"]
    for index, labels in enumerate(columns):
        kind = "real" if labels is None else "{" + ",".join(quoted(v, quote) for v in labels) + "}"
        lines.append(f"@attribute {quoted(f'{index} {quote}', quote)} {kind}")
    lines.append("@data")
    right = []
    for _ in range(draw(st.integers(0, 5))):
        row, cells = [], []
        for index, labels in enumerate(columns):
            value = draw(numbers if labels is None else st.none() | st.sampled_from(labels))
            if value is None:
                number, cell = NAN, "?"
            elif labels is None:
                number, cell = value, repr(value)
            else:
                number, cell = float(labels.index(value)), quoted(value, quote)
            row.append(number)
            if not (sparse and number == 0 and np.copysign(1, number) > 0):
                cells.append(f"{index} {cell}" if sparse else cell)
        right.append(row)
        lines.append("{" + ", ".join(cells) + "}" if sparse else ", ".join(cells))
    return "\n".join(lines), [tuple(labels or ()) for labels in columns], right


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=tables())
def test_every_table_that_can_be_written_is_read(table, tmp_path):
    text, labels, right = table
    attributes, found = read(tmp_path / "t.arff", text)
    assert [attribute.labels for attribute in attributes] == labels
    assert same(found, right)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.tuples(numbers, st.none() | plain, st.none() | st.sampled_from("ab?,")), min_size=1
    )
)
def test_what_liac_arff_writes_is_read_as_liac_arff_reads_it(rows, tmp_path):
    attributes = [("x y", "REAL"), ("text", "STRING"), ("c%", list("ab?,"))]
    text = liac.dumps({"relation": "t", "attributes": attributes, "data": rows})
    data = liac.loads(text, encode_nominal=True)["data"]
    right = [[NAN if row[i] is None else float(row[i]) for i in (0, 2)] for row in data]
    found = read(tmp_path / "t.arff", text)
    assert [attribute.name for attribute in found[0]] == ["x y", "text", "c%"]
    assert same(found[1], right)


# What publishers write


@pytest.mark.parametrize(
    ("rows", "right"),
    [
        ("?,?\n,\n", [[NAN, NAN]] * 2),
        ("1,'?'\n", [[1, 2]]),
        ("1,\"b, c\"\n2,'b, c'\n3,a\n", [[1, 1], [2, 1], [3, 0]]),
        ("-0.0,a\n1e-3 ,  a\n\t+5\t,a \n", [[-0.0, 0], [0.001, 0], [5, 0]]),
        ("% x\n\n  \n1,a\r\n%\n", [[1, 0]]),
        ("'1.5',a\n", [[1.5, 0]]),
        ("1,a", [[1, 0]]),
        ("", []),
        ("{1 'b, c'}\n{}\n{0 -0.0, 1 '?'}\n{0 ?,1 ?}\n", [[0, 1], [0, 0], [-0.0, 2], [NAN, NAN]]),
        ("{ 0\t7 ,1   a }\n8\t,\ta\n", [[7, 0], [8, 0]]),
    ],
)
def test_values_are_read_as_publishers_write_them(rows, right, tmp_path):
    found = read(tmp_path / "t.arff", header(LABELS) + rows)[1]
    assert same(found, right)


@pytest.mark.parametrize(
    ("line", "attribute"),
    [
        ("@ATTRIBUTE x INTEGER", Attribute("x", "numeric")),
        ("  @attribute\tfnlwgt:\treal", Attribute("fnlwgt:", "numeric")),
        ("@attribute 'it''s \\'x\\'' numeric", Attribute("it's 'x'", "numeric")),
        ('@attribute "a \\u00e9\\n{" string', Attribute("a é\n{", TEXT)),
        ('@attribute d date "yyyy-MM-dd"', Attribute("d", TEXT)),
        ('@attribute c{ a , b b,"c," }', Attribute("c", NOMINAL, ("a", "b b", "c,"))),
        ("@attribute c {?, x}", Attribute("c", NOMINAL, ("?", "x"))),
        ("@attribute c {}", Attribute("c", NOMINAL)),
    ],
)
def test_an_attribute_is_read_as_publishers_write_it(line, attribute, tmp_path):
    attributes, _ = read(tmp_path / "t.arff", f"@relation t\n{line}\n@data\n")
    assert attributes == (attribute,)


def test_text_may_hold_anything_and_costs_no_column(tmp_path):
    columns = {"x": "real", "s": "string", "d": "date"}
    rows = "0,'one\rline',?\n1,'100\\% \\'a\\', b',2020-01-01\n2,\"it's {}\",?\n3,d'Ivoire,?\n"
    assert same(read(tmp_path / "t.arff", header(columns) + rows)[1], [[0], [1], [2], [3]])


def test_a_file_that_is_not_utf_8_is_latin_1_and_says_so(tmp_path):
    text = header({"c": "{caf\xe9, caf\xe8}"}) + "caf\xe8\ncaf\xe9\n"
    attributes, found = read(tmp_path / "t.arff", b"\xef\xbb\xbf" + text.encode("latin-1"))
    assert attributes[0].labels == ("café", "cafè")
    assert same(found, [[1], [0]])
    with open_arff(tmp_path / "t.arff") as arff:
        assert arff.notes == (
            "t.arff is not UTF-8 throughout: each of its bytes is read as Latin-1",
        )


def test_every_byte_of_a_latin_1_file_is_a_character_of_its_own(tmp_path):
    # Others than those that separate and quote, from the first that is no blank on.
    bytes_ = [bytes([code]) for code in range(0x21, 0x100) if chr(code) not in "'\"%,?\\{}"]
    labels = [byte for byte in bytes_ if byte.decode("latin-1").strip()]
    declared = b"@relation t\n@attribute c {" + b",".join(labels) + b"}\n@data\n"
    attributes, found = read(tmp_path / "t.arff", declared + b"\n".join(reversed(labels)))
    assert attributes[0].labels == tuple(label.decode("latin-1") for label in labels)
    assert found[:, 0].tolist() == list(range(len(labels)))[::-1]


def test_a_large_utf_8_file_has_no_note_wherever_its_blocks_end(tmp_path):
    text = header({"c": "{é, 日本, 😀}"}) + "%" + "日本" * 500_000 + "\n日本\n😀\né\n"
    assert same(read(tmp_path / "t.arff", text)[1], [[1], [2], [0]])
    with open_arff(tmp_path / "t.arff") as arff:
        assert arff.notes == ()


def test_refusing_a_hostile_line_takes_no_longer_than_reading_it(tmp_path):
    started = time.perf_counter()
    for row in ("'" * 99_999, "1," + " " * 300_000 + "a'", "1,x" + " %" * 100_000, "1\t" * 100_000):
        with refused(SourceError, row=9, path="t.arff"):
            read(tmp_path / "t.arff", header(LABELS) + "1,a\n" + row)
    assert time.perf_counter() - started < 5


# Refusals


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no @data line"),
        ("@relation t\n@attribute x real\n", "ends too early: it has no @data line"),
        ("{}\n", "line 1: expected a line of an ARFF header. The line begins: '{}'"),
        ("PAR1\x15\x04", "line 1: expected a line of an ARFF header. The line begins: 'PAR1"),
        ("@relation t\n@attribute\n@data\n", "line 2: expected the name of an attribute"),
        ("@attribute x relational\n", "line 1: 'x' has the type 'relational'; expected {…} or one"),
        ("@attribute x {a, b\n", "line 1: 'x' has the type '{a, b'; expected {…} or"),
        ("@attribute x {a, 'b}\n", "line 1: a quote does not end"),
    ],
)
def test_a_header_that_is_none_is_refused(text, words, tmp_path):
    with pytest.raises(SourceError) as caught:
        read(tmp_path / "t.arff", text)
    assert caught.value.path == "t.arff"
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("1", "expected 2 values, found 1"),
        ("1,a,b", "expected 2 values, found 3"),
        ("one,a", "'x' is 'one'; expected a number"),
        ("1,b", "'c' is 'b'; expected one of a, b, c, ?"),
        ("1,'a", "a quote does not end"),
        ("1,'a'b", "a quote does not end"),
        ("{0 1", "a sparse row has no closing brace"),
        ("{2 1}", "column 2 does not exist; the table has 2 columns"),
        ("{x 1}", "a quote does not end, or a value is not valid"),
        ("{0 one}", "'x' is 'one'; expected a number"),
        ("{0 1}, {0.5}", "a quote does not end, or a value is not valid"),
    ],
)
def test_a_row_that_is_none_is_refused_by_its_line(row, words, tmp_path):
    text = header(LABELS) + f"1,a\n{row}\n2,a\n"
    line = text.splitlines().index(row) + 1
    with pytest.raises(SourceError) as caught:
        read(tmp_path / "t.arff", text)
    assert f"t.arff, line {line}: {words}" in str(caught.value)
    assert str(caught.value).endswith(f". The line begins: {row!r}")
