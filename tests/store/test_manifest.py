"""A manifest of any content is read, or refused in one sentence; its digest finds damage."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from datasets_cli.errors import DamagedDataset
from datasets_cli.install.find import condition_of
from datasets_cli.schema.columns import Column
from datasets_cli.schema.texts import RecordedColumn
from datasets_cli.store import manifest as manifest_file
from datasets_cli.store.manifest import Manifest, read_manifest, write_manifest
from datasets_cli.store.sealed_json import MAX_DEPTH, parse, seal
from tests.support.refusals import refused

NUM_EXAMPLES = int(os.environ.get("RLDS_TEST_MUTATIONS", "40"))

# Files are made for each example, on machines that may be busy.
CHECKS = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow)
HEX = "0123456789abcdef" * 4
RESOURCE = {"filename": "x", "sha256": HEX, "bytes": 1, "checked": "sha256", "url": "/x"}
WHOLE = Manifest(
    id="toy/one",
    layout="ted",
    num_transitions=3,
    num_trajectories=1,
    columns=(Column(("action",), "float32", (2,)), Column(("next", "reward"), "float32", (1,))),
    files={"action.memmap": {"bytes": 24, "sha256": HEX}},
    resources=(RESOURCE,),
    recipe={"family": "toy", "version": 1, "licence": "", "citation": None},
    successors={"rule": "recorded", "version": 1},
    metadata={"notes": ["one"], "ref_min_score": 1.5},
    statistics={"reward": {"min": 1.0, "max": None}},
    recorded=(RecordedColumn("act", ("action",), "<f8", (2,)),),
    splits={"train": {"trajectories": 1, "transitions": 3}},
)
DERIVED = replace(
    WHOLE,
    parent={"id": "toy/one", "content": HEX, "state": "unchecked"},
    function={"name": "f", "digest": HEX},
    arguments={"num_frames": 3, "chunksize": 3},
    seed=0,
    resources=(),
    content="",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_manifest(tmp_path, WHOLE)
    return tmp_path


def put(folder: Path, document: Any) -> None:
    (folder / "manifest.json").write_bytes(seal(document))


def refusal(folder: Path, state: str = "damaged") -> str:
    with pytest.raises(DamagedDataset) as caught:
        read_manifest(folder)
    text = str(caught.value)
    assert text.isprintable() and len(text) < 900 and ("rlds " in text or "rlds-cli" in text)
    assert condition_of(folder, WHOLE.id).state == state
    return text


@pytest.mark.parametrize("manifest", [WHOLE, DERIVED], ids=["of a recipe", "derived"])
def test_what_is_written_is_read(tmp_path: Path, manifest: Manifest) -> None:
    write_manifest(tmp_path, manifest)
    assert read_manifest(tmp_path) == manifest
    document = json.loads((tmp_path / "manifest.json").read_bytes())
    assert (document["format_version"], document["content"]) == (2, manifest.content)


@settings(suppress_health_check=CHECKS)
@given(bit=st.integers(0, 10**6))
@example(bit=4576)  # format_version 2 becomes 3
def test_every_flipped_bit_is_found(bit: int, folder: Path) -> None:
    write_manifest(folder, WHOLE)
    data = bytearray((folder / "manifest.json").read_bytes())
    data[bit // 8 % len(data)] ^= 1 << bit % 8
    (folder / "manifest.json").write_bytes(data)
    is_newer = re.search(rb'"format_version": ?([3-9])', data)
    refusal(folder, "newer" if is_newer else "damaged")


def test_text_that_was_no_utf_8_is_kept_as_far_as_it_can_be(tmp_path: Path) -> None:
    write_manifest(tmp_path, replace(WHOLE, metadata={"author": "J\udce9r\u00f4me \u2028 \n"}))
    assert read_manifest(tmp_path).metadata == {"author": "J?r\u00f4me \u2028 \n"}


@pytest.mark.parametrize("length", [0, 1, 500, -1])
def test_a_manifest_that_is_cut_off_is_damaged(folder: Path, length: int) -> None:
    data = (folder / "manifest.json").read_bytes()
    (folder / "manifest.json").write_bytes(data[:length])
    refusal(folder)


def test_a_manifest_has_one_digest(folder: Path) -> None:
    data = (folder / "manifest.json").read_bytes()
    line = next(line for line in data.splitlines(keepends=True) if b' "digest"' in line)
    (folder / "manifest.json").write_bytes(data.replace(line, 2 * line))
    with refused(DamagedDataset, key="digest", found=2):
        read_manifest(folder)


def test_the_digest_is_needed_and_one_that_is_nested_is_another_matter(folder: Path) -> None:
    document = parse((folder / "manifest.json").read_bytes())
    del document["digest"]
    (folder / "manifest.json").write_text(json.dumps(document))
    with refused(DamagedDataset, key="digest", found=0):
        read_manifest(folder)
    put(folder, {**document, "metadata": {"digest": HEX, "list": [{"digest": HEX}]}})
    assert read_manifest(folder).metadata["digest"] == HEX


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text() | st.just("x" * 300),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@settings(suppress_health_check=CHECKS)
@given(document=JSON)
def test_any_json_is_damaged(document: Any, folder: Path) -> None:
    (folder / "manifest.json").write_text(json.dumps(document))
    refusal(folder)
    if isinstance(document, dict):
        put(folder, {**document, "format_version": 2})
        refusal(folder)


@settings(suppress_health_check=CHECKS)
@given(data=st.binary(max_size=200))
def test_any_bytes_are_damaged(data: bytes, folder: Path) -> None:
    (folder / "manifest.json").write_bytes(data)
    refusal(folder)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value within a document, the whole one first."""
    pairs: Any = ()
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, list):
        pairs = enumerate(value)
    return [path, *(found for key, item in pairs for found in places(item, (*path, key)))]


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a copy with another value in a place; nothing for ``...``."""
    copy = json.loads(json.dumps(document))
    node = copy
    for key in path[:-1]:
        node = node[key]
    if value is ...:
        del node[path[-1]]
    else:
        node[path[-1]] = value
    return copy


def document_of(manifest: Manifest) -> Any:
    return json.loads(json.dumps(manifest.to_json()))


@settings(max_examples=NUM_EXAMPLES, suppress_health_check=CHECKS)
@given(data=st.data())
def test_any_value_in_any_place_is_read_or_damaged(data: st.DataObject, tmp_path: Path) -> None:
    document = document_of(data.draw(st.sampled_from([WHOLE, DERIVED])))
    id = document["id"]
    path = data.draw(st.sampled_from([path for path in places(document) if path]))
    value = data.draw(JSON | st.sampled_from([-1, 2**63, 2**70, 10**400, "..", "/etc", "a\0b"]))
    put(tmp_path, changed(document, path, value))
    condition = condition_of(tmp_path, id)
    is_newer = path == ("format_version",) and type(value) is int and value > 2
    # Not one of its files is there.
    assert condition.state == ("newer" if is_newer else "damaged")
    assert condition.manifest or condition.problem.isprintable()
    if condition.manifest is not None:
        json.dumps(condition.manifest.to_json()).encode()
        assert condition.manifest.state in ("installed", "unchecked", "unverified")
        assert len(condition.manifest.content) == 64


@pytest.mark.parametrize(
    ("path", "value", "key", "found"),
    [
        (("num_transitions",), -1, "num_transitions", -1),
        (("num_transitions",), True, "num_transitions", True),
        (("num_trajectories",), 2.5, "num_trajectories", 2.5),
        (("layout",), "rows", "layout", "rows"),
        (("columns", 1, "shape"), 3, "columns[1].shape", 3),
        (("columns", 0, "dtype"), "float7", "columns[0].dtype", "float7"),
        (("columns", 0, "shape"), [2**61, 8], "columns[0].shape[0]", 2**61),
        (("columns", 0, "shape"), [0, 2**47, 8], "columns", 3 * 2**50),
        (("columns", 0, "shape"), [1] * 100, "columns[0].shape", [1] * 100),
        (("columns", 0, "key"), [], "columns[0].key", []),
        (("recorded", 0, "key"), ["next"], "recorded", "next"),
        (("recorded", 0, "shape"), [3], "recorded", "action"),
        (("recorded", 0, "dtype"), "<U0", "recorded", "action"),
        (("splits", "train", "transitions"), -1, "splits.train.transitions", -1),
        (("splits", "train"), 3, "splits.train", 3),
        (("columns", 0, "key"), ["next", "reward"], "columns", ["next.reward"] * 2),
        (("columns", 0, "key"), ["next"], "columns", ["next", "next.reward"]),
        (("files",), {"a": {"bytes": 1, "sha256": "no"}}, "files.a.sha256", "no"),
        (("files",), {"a\0b": {"bytes": 1, "sha256": HEX}}, "files", "a\0b"),
        (("files",), {"x" * 999: {"bytes": 1, "sha256": HEX}}, "files", "x" * 999),
        (("resources", 0), {"url": "x"}, "resources[0].filename", None),
        (("metadata", "notes"), 7, "metadata.notes", 7),
        (("statistics", "reward", "min"), "low", "statistics.reward.min", "low"),
        (("statistics", "reward", "min"), 10**400, "statistics.reward.min", 10**400),
        (("parent",), {"content": HEX}, "parent.id", None),
        (("content",), "abc", "content", "abc"),
        (("format_version",), 0, "format_version", 0),
        (("format_version",), "2", "format_version", "2"),
    ],
)
def test_the_error_names_the_wrong_entry(
    tmp_path: Path, path: tuple[Any, ...], value: Any, key: str, found: object
) -> None:
    put(tmp_path, changed(document_of(WHOLE), path, value))
    refusal(tmp_path)
    with refused(DamagedDataset, key=key, found=found):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"format_version": NaN}', "NaN"),
        ('{"format_version": 1e999}', "1e999"),
        ('{"format_version": ' + "7" * 5000 + "}", None),
        ("[" * 100_000, "more"),
        ('{"a":' * (MAX_DEPTH + 1) + "1" + "}" * (MAX_DEPTH + 1), "more"),
        ("[]", []),
        (r'{"id": "half \ud800 pair"}', None),
    ],
)
def test_json_that_our_other_code_could_not_follow_is_damaged(
    tmp_path: Path, text: str, found: object
) -> None:
    (tmp_path / "manifest.json").write_text(text)
    refusal(tmp_path)
    with refused(DamagedDataset, key=None, found=found):
        read_manifest(tmp_path)


def test_a_manifest_without_end_is_not_read_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest_file, "MAX_MANIFEST_BYTES", 100)
    assert "it has more than 100 bytes" in refusal(folder)


def test_a_file_that_may_not_be_read_is_damaged(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, most_bytes: int) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(manifest_file, "read_bounded", refuse)
    assert "it cannot be read: Permission denied" in refusal(folder)


def test_no_manifest_is_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_manifest(tmp_path)


# Versions


def test_a_newer_version_says_how_to_upgrade(folder: Path) -> None:
    put(folder, {"format_version": 3, "anything": []})
    refusal(folder, "newer")
    with refused(DamagedDataset, expected=2, found=3, newer=True):
        read_manifest(folder)


def test_an_older_version_says_how_to_make_the_dataset_again(folder: Path) -> None:
    document = parse((folder / "manifest.json").read_bytes())
    put(folder, {**document, "format_version": 1})
    refusal(folder)
    with refused(DamagedDataset, expected=2, found=1, newer=False):
        read_manifest(folder)


def test_rewards_of_several_agents_are_rewards() -> None:
    columns = tuple(Column(("next", "reward", name), "float32", (1,)) for name in "ab")
    assert replace(WHOLE, columns=columns, recorded=(), content="").has_rewards
