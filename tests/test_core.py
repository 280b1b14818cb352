"""The lowest floors: configuration, errors, sizes and checked JSON."""

from __future__ import annotations

import json
import math
import os
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets_cli import errors
from datasets_cli.config import load_config
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
from datasets_cli.core.quantities import counted
from datasets_cli.core.system_errors import damaged
from datasets_cli.errors import UsageError
from tests.support.refusals import refused


@pytest.mark.parametrize(("text", "seconds"), [("0", 0.0), ("2.5", 2.5), ("inf", math.inf)])
def test_a_lock_timeout_is_seconds(text: str, seconds: float) -> None:
    assert load_config(environ={"RLDS_LOCK_TIMEOUT": text}).lock_timeout == seconds


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *(("lock_timeout", text) for text in ("soon", "-1", "nan", "")),
        *(("lowest_speed", text) for text in ("fast", "-1", "nan", "inf", "")),
    ],
)
def test_a_setting_that_is_not_its_number_is_refused(name: str, text: str) -> None:
    with refused(UsageError, argument=name, found=text):
        load_config(environ={f"RLDS_{name.upper()}": text})


def test_a_configuration_that_is_a_pipe_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config" / "rlds").mkdir(parents=True)
    os.mkfifo(tmp_path / "config" / "rlds" / "config.toml")
    with refused(UsageError, path=tmp_path / "config" / "rlds" / "config.toml"):
        load_config(environ={})


def test_the_lowest_speed_is_that_of_flag_environment_and_file(tmp_path: Path) -> None:
    assert load_config(environ={}).lowest_speed == 1000.0
    (tmp_path / "config" / "rlds").mkdir(parents=True)
    (tmp_path / "config" / "rlds" / "config.toml").write_text("[core]\nlowest_speed = 3\n")
    assert load_config(environ={}).lowest_speed == 3.0
    environ = {"RLDS_LOWEST_SPEED": "2"}
    assert load_config(environ=environ).lowest_speed == 2.0
    assert load_config(environ=environ, lowest_speed="0").lowest_speed == 0.0


def test_offline_can_be_switched_off_in_words() -> None:
    for word in ("", "0", "False", "no", "off"):
        assert not load_config(environ={"RLDS_OFFLINE": word}).offline


@pytest.mark.parametrize(
    "text",
    [
        *("core = 1", "[core]\nroot = ", 'mirrors = "x"', "[croe]"),
        *('[core]\nrot = "/data"', '[core]\noffline = "false"'),
    ],
)
def test_a_wrong_config_file_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "config" / "rlds").mkdir(parents=True)
    (tmp_path / "config" / "rlds" / "config.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        load_config(environ={})
    assert "config.toml" in str(caught.value)


def failure() -> errors.WrongRows:
    return errors.WrongRows(
        "The rows have another shape.",
        argument="data",
        key=("next", "reward"),
        row=3,
        expected=(1,),
        found=(2,),
        advice="Reshape them.",
    )


def test_attributes_survive_a_worker_and_an_addition() -> None:
    error = failure()
    error.append(" (member 2)")
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == "The rows have another shape. Reshape them. (member 2)"
    assert (copy.key, copy.row, copy.expected) == (("next", "reward"), 3, (1,))


def test_json_has_the_attributes_that_are_set() -> None:
    assert failure().to_json() == {
        "type": "WrongRows",
        "message": "The rows have another shape. Reshape them.",
        "exit_code": 2,
        "argument": "data",
        "key": ["next", "reward"],
        "row": 3,
        "expected": [1],
        "found": [2],
        "advice": "Reshape them.",
    }


@pytest.mark.parametrize("name", ["WrongRows", "WrongState", "WrongSize", "NotWritable"])
def test_the_nouns_of_a_wrong_request_are_value_errors_too(name: str) -> None:
    assert issubclass(getattr(errors, name), (errors.UsageError, ValueError))


def test_advice_names_options_as_the_message_does() -> None:
    error = errors.UsageError("No.", advice=f"Use {errors.by_reader('--layout', 'layout=')}.")
    assert (error.advice, str(error)) == ("Use layout=.", "No. Use layout=.")


@pytest.mark.parametrize(
    ("count", "noun", "shown"),
    [
        (1, "trajectory", "1 trajectory"),
        (0, "trajectory", "0 trajectories"),
        (1_200, "row", "1,200 rows"),
        (2, "batch", "2 batches"),
        (3, "key", "3 keys"),
        (2, "index", "2 indexes"),
    ],
)
def test_a_noun_is_in_the_singular_or_the_plural(count: int, noun: str, shown: str) -> None:
    assert counted(count, noun) == shown


@pytest.mark.parametrize("content", ["{", "{}", '{"id": "/?app", "name": "a web page"}'])
def test_the_id_follows_from_the_folder_whatever_its_manifest_says(
    content: str, tmp_path: Path
) -> None:
    folder = tmp_path / "datasets" / "atari_dqn" / "Pong" / "5~ckpt0-5"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(content)
    for path in (folder, folder / "manifest.json", folder / "next" / "reward.memmap"):
        expected = "It is empty. Run: rlds repair 'atari_dqn/Pong/5~ckpt0-5'"
        assert str(damaged(path, "It is empty")) == expected


def test_a_folder_of_nobody_has_no_id(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"name": "a web page"}')
    error = damaged(tmp_path / "dump" / "x.memmap", "It is empty")
    assert error.advice is not None
    assert "rlds download or preprocess" in error.advice and "repair" not in error.advice


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
    max_leaves=4,
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
