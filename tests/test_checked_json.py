"""Dataclasses from JSON by their hints, and JSON from dataclasses by their forms."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets_cli.core.checked_json import (
    Check,
    JsonForm,
    WrongValue,
    decode,
    encode,
    has,
    is_deeper,
    whole,
)

Size = Annotated[int, whole(0, 2**48, "2**48")]
Names = Annotated[tuple[str, ...], Check("a list of names", lambda names: names and all(names))]


@dataclass(frozen=True)
class Leaf(JsonForm):
    key: Names
    shape: tuple[Size, ...] = ()


@dataclass(frozen=True)
class Placed(JsonForm):
    JSON = "*leaf at=offset value successor?"

    leaf: Leaf
    offset: Size
    value: bytes = b""
    successor: Names | None = None


@dataclass(frozen=True)
class Closed:
    CLOSED: ClassVar[bool] = True

    per: Literal["trajectory", "transition"] = "trajectory"
    seed: int | str | None = None


@dataclass(frozen=True)
class Document(JsonForm):
    placed: tuple[Placed, ...]
    numbers: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    options: Closed = field(default_factory=Closed)
    entry: Annotated[Mapping[str, Any], has({"key": Names}, shape=tuple[Size, ...])] = field(
        default_factory=lambda: {"key": ["a"]}
    )
    notes: list[str] = field(default_factory=list)
    flag: bool = False
    inside: Document | None = None


LEAF = Leaf(("next", "reward"), (3, 4))
WHOLE = Document(
    (Placed(LEAF, 8, b"\1\xff"), Placed(LEAF, 9, successor=("x",))),
    {"a": {"b": 1.5, "c": None, "d": 2}},
    Closed("transition", "7"),
    {"key": ["x"], "more": {"of": "it"}},
    ["one"],
    inside=Document(()),
)


def test_what_is_encoded_is_decoded() -> None:
    document = WHOLE.to_json()
    assert decode(Document, json.loads(json.dumps(document))) == WHOLE
    assert document["placed"][0] == {
        **{"key": ["next", "reward"], "shape": [3, 4]},
        **{"at": 8, "value": "01ff"},
    }
    assert [*document] == ["placed", "numbers", "options", "entry", "notes", "flag", "inside"]


PLACED = {"key": ["a"], "at": 1}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "expected an object, found []"),
        ({}, "placed is missing"),
        ({"placed": None}, "placed: expected a list, found None"),
        (
            {"placed": [PLACED, {**PLACED, "at": -1}]},
            "placed[1].at: expected a whole number from 0",
        ),
        ({"placed": [{**PLACED, "at": True}]}, "placed[0].at: expected a whole number from 0 to"),
        ({"placed": [{"key": ["a"]}]}, "placed[0].at is missing"),
        ({"placed": [{"at": 1}]}, "placed[0].key is missing"),
        (
            {"placed": [{**PLACED, "shape": [1, "2"]}]},
            "placed[0].shape[1]: expected a whole number",
        ),
        ({"placed": [{**PLACED, "key": []}]}, "placed[0].key: expected a list of names, found []"),
        ({"placed": [{**PLACED, "key": [2]}]}, "placed[0].key[0]: expected a text, found 2"),
        ({"placed": [{**PLACED, "value": "0"}]}, "value: expected hexadecimal digits, found '0'"),
        ({"placed": [{**PLACED, "successor": 1}]}, "expected a list of names or null, found 1"),
        ({"placed": [{**PLACED, "successor": []}]}, "expected a list of names or null, found []"),
        ({"placed": [], "numbers": {"a": {"b": "1"}}}, "numbers.a.b: expected a number or null"),
        (
            {"placed": [], "numbers": {"a": {"b": 10**400}}},
            "numbers.a.b: expected a number or null",
        ),
        ({"placed": [], "options": {"per": "row"}}, "options.per: expected one of trajectory, tra"),
        (
            {"placed": [], "options": {"per": "transition", "seed": 1.5}},
            "seed: expected a whole number, a text or null",
        ),
        ({"placed": [], "options": {"s": 1}}, "options: expected some of per, seed, found 's'"),
        ({"placed": [], "entry": {"key": 1}}, "entry.key: expected a list of names, found 1"),
        ({"placed": [], "notes": ["a", 1]}, "notes[1]: expected a text, found 1"),
        ({"placed": [], "flag": 1}, "flag: expected true or false, found 1"),
        ({"placed": [], "inside": {"placed": 1}}, "inside.placed: expected a list, found 1"),
    ],
)
def test_an_error_says_where_it_is(document: Any, message: str) -> None:
    with pytest.raises(WrongValue) as caught:
        decode(Document, document, "file")
    assert str(caught.value).startswith("file")
    with pytest.raises(WrongValue) as caught:
        decode(Document, document)
    assert message in str(caught.value)
    assert str(caught.value).startswith(caught.value.where)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(name=st.sampled_from([*WHOLE.to_json()]), value=JSON)
def test_any_value_is_made_or_refused(name: str, value: Any) -> None:
    document = {**WHOLE.to_json(), name: value}
    try:
        made = decode(Document, document)
    except WrongValue as error:
        assert str(error).startswith(name)
    else:
        assert decode(Document, encode(made)) == made


@dataclass(frozen=True)
class Result(JsonForm):
    JSON = "path bytes=size_bytes id|null problem|null? layout=leaf.key?"

    path: Path
    size_bytes: int
    id: str = ""
    problem: str = ""
    leaf: Leaf | None = None


def test_a_form_has_its_own_names_and_order() -> None:
    plain = Result(Path("/x"), 9)
    assert json.dumps(plain.to_json()) == '{"path": "/x", "bytes": 9, "id": null}'
    whole = Result(Path("/x"), 9, "i", "p", LEAF)
    assert whole.to_json() == {
        **{"path": "/x", "bytes": 9, "id": "i", "problem": "p"},
        "layout": ["next", "reward"],
    }
    assert encode({"a": (whole, None)}) == {"a": [whole.to_json(), None]}


def test_depth_is_told_without_recursion() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    assert is_deeper(deep, 64)
    assert not is_deeper({"a": [{"b": 1}]}, 3)
    assert is_deeper({"a": [{"b": 1}]}, 2)
