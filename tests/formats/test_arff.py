"""ARFF files against liac-arff, pandas and SciPy."""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.io.arff
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.datasets._arff_parser import load_arff_from_gzip_file
from sklearn.externals import _arff as liac_arff

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


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(table=tables())
def test_every_table_that_can_be_written_is_read(table, tmp_path):
    text, labels, right = table
    attributes, found = read(tmp_path / "t.arff", text)
    assert [attribute.labels for attribute in attributes] == labels
    assert same(found, right)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.tuples(numbers, st.none() | plain, st.none() | st.sampled_from("ab?,")), min_size=1
    )
)
def test_what_liac_arff_writes_is_read_as_liac_arff_reads_it(rows, tmp_path):
    attributes = [("x y", "REAL"), ("text", "STRING"), ("c%", list("ab?,"))]
    text = liac_arff.dumps({"relation": "t", "attributes": attributes, "data": rows})
    data = liac_arff.loads(text, encode_nominal=True)["data"]
    right = [[NAN if row[i] is None else float(row[i]) for i in (0, 2)] for row in data]
    found = read(tmp_path / "t.arff", text)
    assert [attribute.name for attribute in found[0]] == ["x y", "text", "c%"]
    assert same(found[1], right)


# What publishers write


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


Cell = float | str | None
Table = list[list[Cell]]
"""Columns: numbers, labels, and None where a value is missing; columns of text are left out."""

XC = "@relation t\n@attribute x real\n@attribute c {a,'b, c',d}\n@data\n"
XY = "@relation t\n@attribute x real\n@attribute y numeric\n@data\n"
SX = "@relation t\n@attribute s string\n@attribute x real\n@data\n"


def one(declared: str, rows: str) -> str:
    """Return a file of one nominal column."""
    return f"@relation t\n@attribute c {declared}\n@data\n{rows}"


def ours(data: bytes, path: Path) -> Table:
    path.write_bytes(data)
    with open_arff(path) as arff:
        wanted = [i for i, column in enumerate(arff.attributes) if column.kind != TEXT]
        blocks = [np.empty((0, len(wanted))), *arff.blocks(wanted)]
        attributes = [arff.attributes[i] for i in wanted]
    return decoded(
        np.concatenate(blocks), [a.labels if a.kind == NOMINAL else None for a in attributes]
    )


def decoded(rows: np.ndarray, labels: Sequence[Sequence[str] | None]) -> Table:
    def cell(value: float, names: Sequence[str] | None) -> Cell:
        if math.isnan(value):
            return None
        return value if names is None else names[int(value)]

    columns = zip(rows.T.tolist(), labels, strict=True)
    return [[cell(value, names) for value in column] for column, names in columns]


def liacs(data: bytes) -> Table:
    """Return what liacs-arff reads, given the lines that scikit-learn gives it."""
    lines = (line.decode("utf-8") for line in io.BytesIO(data))
    table = liac_arff.load(lines, return_type=liac_arff.DENSE)
    kept = [i for i, (_, kind) in enumerate(table["attributes"]) if kind != "STRING"]
    return [[number(row[i]) for row in table["data"]] for i in kept]


def number(value: Cell) -> Cell:
    return value if value is None or isinstance(value, str) else float(value)


def header_of(data: bytes) -> list[tuple[str, bool]]:
    """Return the names of the columns of an ordinary header, and which of them are nominal."""
    lines = [line.split(None, 2) for line in data.decode().splitlines()]
    return [(line[1], line[2][0] == "{") for line in lines if line[0] == "@attribute"]


def by_pandas(data: bytes) -> Table:
    """Return what scikit-learn's other parser reads, which is told of the columns."""
    columns = header_of(data)
    info = {name: {"data_type": "nominal" if nominal else "real"} for name, nominal in columns}
    names = [name for name, _ in columns]
    frame = load_arff_from_gzip_file(io.BytesIO(data), "pandas", "pandas", info, names, [])[0]
    return [[None if pd.isna(value) else number(value) for value in frame[name]] for name in names]


def scipy_s(data: bytes) -> Table:
    rows, _ = scipy.io.arff.loadarff(io.StringIO(data.decode()))
    return [
        [
            None if value in (b"?",) or value != value else text_or_number(value)
            for value in rows[name]
        ]
        for name in rows.dtype.names
    ]


def text_or_number(value: bytes | float) -> Cell:
    return value.decode() if isinstance(value, bytes) else float(value)


READERS: dict[str, Callable[[bytes], Table]] = {
    "liac": liacs,
    "pandas": by_pandas,
    "scipy": scipy_s,
}

READ_BY_LIAC = {
    "an empty table": XC,
    "no line end at the end": XC + "1,a",
    "CRLF": (XC + "1,a\n2,d\n").replace("\n", "\r\n"),
    "empty lines, blanks and comments among rows": XC + "\n1,a\n   \n% 9,a\n  % 9,a\n2,d\n\n",
    "blanks around commas": XC + "  1  ,   a\n2,\td  \n",
    "blanks around labels in the header": one("{ a ,  b,c }", "a\nb\nc\n"),
    "keywords in any case": XC.replace("@attribute", "@AttriBUTE").replace("@data", "@Data")
    + "1,a\n",
    "comments in the header": XC.replace("@attribute c", "% {\n\n%\n@attribute c") + "1,a\n",
    "quoted commas": XC + "1,'b, c'\n2,\"b, c\"\n",
    "quoted numbers": XC + "'1.5',a\n\"2\",d\n",
    "escaped quotes": one(r"""{'it\'s', "a \"b\""}""", '\'it\\\'s\'\n"a \\"b\\""\n\'a "b"\'\n'),
    "other quotes inside quotes": one("""{"it's", 'a "b"'}""", '"it\'s"\n\'a "b"\'\n'),
    "escaped backslashes and line ends": one(
        r"{'a\\', 'b\nc', 'd\te'}", "'a\\\\'\n'b\\nc'\n'd\\te'\n"
    ),
    "octal escapes, as liacs-arff writes control characters": one(
        r"{'a\001b', 'a\037'}", "'a\\001b'\n'a\\037'\n"
    ),
    "escaped unicode": one(r"{'\u00e9', e}", "'\\u00e9'\né\n".replace("é", "'é'")),
    "a quoted question mark is a label": one("{a,'?'}", "'?'\n?\na\n"),
    "a quoted empty label": one("{a,''}", "''\na\n?\n"),
    "nothing is a missing value": XC + ",a\n1,\n,\n",
    "percent signs inside quotes and words": one("{'a % b',10%,c}", "'a % b'\n10%\nc\n"),
    "a percent sign in text": SX + "'5 % up',1\n10%,2\n",
    "braces inside quotes": one("{'{a}', 'b}', '}'}", "'{a}'\n'b}'\n'}'\n"),
    "declared twice, which are one label": one("{a,b,a}", "a\nb\n"),
    "labels that look like numbers": one("{1,1.0,01}", "1.0\n1\n01\n"),
    "labels that differ in case or blanks": one("{a,A,' a'}", "A\na\n' a'\n"),
    "labels named nan, None and NULL": one("{nan,None,NULL}", "nan\nNone\nNULL\n?\n"),
    "a label that begins as a row of pairs": one("{'{0 a}',b}", "'{0 a}'\nb\n"),
    "unicode labels and names": XC.replace("x", "größe").replace("d}", "日本}") + "1,日本\n2,a\n",
    "an unusual blank": one("{'a\u00a0b',c}", "'a\u00a0b'\nc\n"),
    "a unicode line separator": one("{'a\u2028b',c}", "'a\u2028b'\nc\n"),
    "20,000 labels": one(
        "{" + ",".join(f"v{i}" for i in range(20_000)) + "}", "v19999\nv0\nv777\n"
    ),
    "numbers of every form": XY + "1e3,-1E-3\n+.5,5.\n-0.0,1e-400\n1e400,-inf\n007,1_000\n",
    "integers beyond 2^53": XY + "9007199254740993,18446744073709551617\n",
    "the numbers nan and NaN are missing": XY.replace("y numeric", "y integer") + "nan,1\nNaN,2\n",
    "attributes named data": XY.replace(" x", " data").replace(" y", " '@data'") + "1,2\n",
    "names with blanks, commas and braces": (
        XC.replace(" t", " 'a b'").replace(" x", " 'x, {y}'").replace(" c", ' "z z"') + "1,a\n"
    ),
    "sparse rows": XC + "{0 1, 1 'b, c'}\n{}\n{ 1 d }\n{0 2}\n",
    "sparse rows with missing values": XC + "{0 ?,1 d}\n{1 ?}\n",
    "sparse rows out of order": XC + "{1 d, 0 3}\n",
    "sparse rows with blanks": XC + "{ 0   1 ,   1    a }\n{   }\n",
    "sparse and dense rows in one file": XC + "1,a\n{0 2}\n",
    "numbers with signs and exponents": XY + "-0.0,+5\n1e-3 ,  -2\n",
    "sparse zeros below zero": XC + "{0 -0.0, 1 'b, c'}\n",
    "tabs in sparse rows and around commas": XC + "{ 0\t1 ,1   a }\n\t2\t,\td \n",
    "sparse quoted numbers and labels": XC + "{0 '1.5', 1 \"d\"}\n",
    "very long text": SX + "'" + "é, " * 30_000 + "',1\n",
}


def compared(table: Table) -> list[list[str]]:
    """Return cells that can be compared: -0.0 is not 0.0, NaN is missing."""
    return [["None" if value != value else repr(value) for value in column] for column in table]


def test_a_table_is_read_as_liac_arff_reads_it(tmp_path: Path) -> None:
    for name, text in READ_BY_LIAC.items():
        data = text.encode()
        assert compared(ours(data, tmp_path / "t.arff")) == compared(liacs(data)), name


X12: Table = [[1.0, 2.0], ["a", "d"]]
XYZ = XY.replace("@data", "@attribute z real\n@data")

READ_BY_US: dict[str, tuple[str | bytes, Table, set[str]]] = {
    "values separated by tabs": (XC + "1\ta\n2\td\n", X12, {"scipy"}),
    "tabs and blanks": (XC + "1 \t a \n 2\t d\n", X12, {"scipy"}),
    "tabs around quotes": (XC + "1\t'b, c'\n2\t\"d\"\n", [[1.0, 2.0], ["b, c", "d"]], set()),
    "tabs with nothing between, which is missing": (
        XYZ + "1\t\t3\n\t2\t3\n1\t2\t\n?\t2\t3\n",
        [[1.0, None, 1.0, None], [None, 2.0, 2.0, 2.0], [3.0, 3.0, None, 3.0]],
        set(),
    ),
    "rows that begin or end with a tab": (XC + "\t1\ta\n\t2\td\t\n", X12, {"scipy"}),
    "tabs in one row and commas in another": (XC + "1\ta\n2,d\n", X12, set()),
    "tabs and commas in one row": (XYZ + "1,2\t3\n", [[1.0], [2.0], [3.0]], set()),
    "a comment after values between tabs": (XC + "1\ta\t% b, c\n2\td % x\n", X12, set()),
    "ranges after the types": (
        XY.replace("real", "real [0,10]").replace("numeric", "integer[0, 255]") + "1.5,3\n",
        [[1.5], [3.0]],
        {"pandas", "scipy"},
    ),
    "a range after a tab": (
        XC.replace("real", "REAL\t[0,10]") + "1,a\n2,d\n",
        X12,
        {"pandas", "scipy"},
    ),
    "comments after the types": (
        XC.replace("real", "real % {1}").replace("d}", "d} % of {e}") + "1,a\n2,d\n",
        X12,
        {"pandas"},
    ),
    "comments after the values": (XC + "1,a % it's, b\n2,d %\n", X12, set()),
    "comments after quoted values": (XC + "1,'a'% b, c\n2,'d' % 'e'\n", X12, set()),
    "comments after sparse rows": (XC + "{0 1} % a {b\n{0 2, 1 d}% c\n", X12, set()),
    "labels and values with blanks": (
        one("{light blue, red}", "red\nlight blue\n"),
        [["red", "light blue"]],
        {"pandas", "scipy"},
    ),
    "doubled quotes": (
        one('{\'it\'\'s\',"a ""b"""}', '\'it\'\'s\'\n"a ""b"""\n'),
        [["it's", 'a "b"']],
        set(),
    ),
    "an apostrophe within a word": (
        one("{d'Ivoire,b}", "d'Ivoire\nb\n"),
        [["d'Ivoire", "b"]],
        {"pandas", "scipy"},
    ),
    "dates": (
        "@relation t\n@attribute d date 'yyyy-MM-dd'\n@attribute x real\n@data\n2020-01-01,1\n",
        [[1.0]],
        set(),
    ),
    "a byte order mark": ("\ufeff" + XC + "1,a\n2,d\n", X12, {"pandas", "scipy"}),
    "no relation": (XC.replace("@relation t\n", "") + "1,a\n2,d\n", X12, {"pandas", "scipy"}),
    "a relation without a name": (
        XC.replace("@relation t", "@relation") + "1,a\n2,d\n",
        X12,
        {"pandas", "scipy"},
    ),
    "attributes of one name": (XY.replace("y numeric", "x real") + "1,2\n", [[1.0], [2.0]], set()),
    "a fraction that is declared an integer": (
        XY.replace("numeric", "integer") + "1,1.7\n",
        [[1.0], [1.7]],
        {"pandas", "scipy"},
    ),
    "Latin-1": (
        one("{café, cafè}", "cafè\ncafé\n").encode("latin-1"),
        [["cafè", "café"]],
        set(),
    ),
    "Latin-1 after a byte order mark": (
        b"\xef\xbb\xbf" + one("{ü,b}", "b\nü\n").encode("latin-1"),
        [["b", "ü"]],
        set(),
    ),
    "Latin-1, some of which could be UTF-8": (
        one("{Ã©, é}", "é\nÃ©\n").encode("latin-1"),
        [["é", "Ã©"]],
        set(),
    ),
}
"""Files, what they say, and which other readers find the same; liacs-arff never does."""


@pytest.mark.filterwarnings("ignore")
def test_a_table_is_read_that_liac_arff_does_not_read(tmp_path: Path) -> None:
    for name, (text, right, agreeing) in READ_BY_US.items():
        data = text if isinstance(text, bytes) else text.encode()
        assert compared(ours(data, tmp_path / "t.arff")) == compared(right), name
        found = {reader for reader, read in READERS.items() if agrees(read, data, right)}
        assert found == agreeing, name


def agrees(read: Callable[[bytes], Table], data: bytes, right: Table) -> bool:
    try:
        return compared(read(data)) == compared(right)
    except Exception:  # whatever it is that they raise
        return False


REFUSED_THOUGH_READ = {
    "a row would be lost after data": (XC.replace("@data", "@data 1,a"), "expected nothing after"),
    "a line of the header would be lost": (XC.replace("@data", "words\n@data"), "expected a line"),
    "one of two values of a column would be lost": (
        XC + "{0 1, 0 2}\n",
        "a sparse row has two values of one column",
    ),
}
"""Files that liacs-arff reads, what it would cost, and what we say."""


def test_a_table_is_refused_that_liac_arff_reads(tmp_path: Path) -> None:
    for name, (text, words) in REFUSED_THOUGH_READ.items():
        liacs(text.encode())  # does not refuse
        assert words in refusal(text, tmp_path), name


REFUSED = {
    "nothing": ("", "has no @data line"),
    "a header without an end": ("@relation t\n@attribute x real\n", "it has no @data line"),
    "a Parquet file": ("PAR1\x15\x04", "expected a line of an ARFF header"),
    "an attribute without a name": ("@attribute\n@data\n", "expected the name of an attribute"),
    "a sparse value that is no number": (XC + "{0 one}\n", "'x' is 'one'; expected a number"),
    "a sparse column that is no number": (XC + "{x 1}\n", "a value is not valid"),
    "two numbers in one": (XY + "1 5,2\n", "'x' is '1 5'; expected a number"),
    "words after a quote": (XC + "1,'a'b\n", "a quote does not end"),
    "labels after a brace": (
        one("{a} , b}", "a\n"),
        "expected nothing after the labels, found ' , b}'",
    ),
    "values between blanks alone": (XY + "1 2\n", "expected 2 values, found 1"),
    "values between semicolons": (XY + "1;2\n", "expected 2 values, found 1"),
    "a decimal comma": (XY + "1,5,2\n", "expected 2 values, found 3"),
    "NA for a missing number": (XY + "NA,1\n", "'x' is 'NA'; expected a number"),
    "percent of a number": (XY + "5%,1\n", "'x' is '5%'; expected a number"),
    "nothing but a comment for a value": (XC + "1, % a\n", "'c' is '% a'; expected one of"),
    "a label of another case": (XC + "1,A\n", "'c' is 'A'; expected one of a, b, c, d"),
    "an empty quoted number": (XY + "'',1\n", "'x' is ''; expected a number"),
    "a quote that does not end": (XC + "1,'a\n", "a quote does not end"),
    "a row on two lines": (XC + "1,\n a\n", "expected 2 values, found 1"),
    "weights of rows": (XY + "1,2,{5}\n", "expected 2 values, found 3"),
    "a sparse row without an end": (XC + "{0 1\n", "a sparse row has no closing brace"),
    "words after a sparse row": (XC + "{0 1} a\n", "a value is not valid"),
    "a sparse row of a column too many": (
        XC + "{2 1}\n",
        "column 2 does not exist; the table has 2 columns",
    ),
    "a negative column": (XC + "{-1 1}\n", "a value is not valid"),
    "relational attributes": (
        "@relation t\n@attribute bag relational\n@attribute x real\n@end bag\n@data\n'1',1\n",
        "'bag' has the type 'relational'",
    ),
    "labels on several lines": (
        "@relation t\n@attribute c {a,\nb}\n@data\na\n",
        "has the type '{a,'",
    ),
    "labels whose quote does not end": (one("{a,'b}", "a\n"), "a quote does not end"),
    "an unknown type": (XY.replace("real", "float"), "'x' has the type 'float'"),
    "no type": (XY.replace(" real", ""), "'x' has the type ''"),
    "a page": ("<!DOCTYPE html>\n<title>404</title>\n", "expected a line of an ARFF header"),
    "UTF-16": ((XC + "1,a\n").encode("utf-16"), "expected a line of an ARFF header"),
    "zero bytes": (XY + "1,\0\n", r"'y' is '\x00'; expected a number"),
    "line ends of an old Macintosh": ((XC + "1,a\n").replace("\n", "\r"), "no @data line"),
}
"""Files that no reader can read as meant, and what we say."""


def test_a_table_is_refused_that_liac_arff_refuses_too(tmp_path: Path) -> None:
    for name, (text, words) in REFUSED.items():
        data = text if isinstance(text, bytes) else text.encode()
        with pytest.raises(Exception):  # noqa: B017  # it has many, and lets others pass
            liacs(data)
        assert words in refusal(text, tmp_path), name


def refusal(text: str | bytes, folder: Path) -> str:
    """Return how we refuse a file, after comparing the line it names."""
    data = text if isinstance(text, bytes) else text.encode()
    with pytest.raises(SourceError) as caught:
        ours(data, folder / "t.arff")
    message = str(caught.value)
    if "no @data line" not in message:
        number = int(message.partition("line ")[2].partition(":")[0])
        line = data.decode("latin-1" if data[:1] == b"\xff" else "utf-8").split("\n")[number - 1]
        assert message.endswith(f". The line begins: {line.strip()[:60]!r}")
    return message


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=st.text(st.sampled_from("a1, '\"\\%?{}\n\t0"), max_size=20))
def test_whatever_stands_in_a_row_is_read_as_liac_arff_does_or_refused_by_line(
    rows: str, tmp_path: Path
) -> None:
    data = (
        "@relation t\n@attribute x real\n@attribute c {a,1,'{',\"'\",'%'}\n@data\n" + rows
    ).encode()
    try:
        found = ours(data, tmp_path / "t.arff")
    except SourceError as error:
        assert "t.arff, line " in str(error)
        return
    try:
        right = liacs(data)
    except Exception:  # it reads less
        return
    assert compared(found) == compared(right)
