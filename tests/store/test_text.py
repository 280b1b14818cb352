"""Text on the disk: every value comes back, in both layouts, and damage is named."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from datasets_cli.errors import DamagedDataset, SourceError, UnknownKey
from datasets_cli.schema.transitions import Transitions, iterate_rows
from datasets_cli.store import texts as reader
from datasets_cli.store.check import check_digests
from datasets_cli.store.dataset import Dataset, open_dataset
from datasets_cli.store.manifest import read_manifest
from datasets_cli.store.sealed_json import seal
from datasets_cli.store.texts import TextWriter
from tests.support.refusals import refused
from tests.support.text_rows import LENGTHS, ODD_TEXTS, objects, steps_of, successors, write

MISSION = ("observation", "mission")
NEXT_MISSION = ("next", "observation", "mission")
LAYOUTS = ["ted", "compact"]


def texts_of(dataset: Dataset) -> dict[tuple[str, ...], Any]:
    assert dataset.texts is not None
    return dataset.texts.gather(np.arange(len(dataset)))


def text_bytes(folder: Path) -> dict[str, bytes]:
    names = [name for name in read_manifest(folder).files if name.startswith("text")]
    return {name: (folder / name).read_bytes() for name in names}


# Values


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_value_comes_back_and_successors_follow_the_rule(layout: str, tmp_path: Path) -> None:
    steps = steps_of(ODD_TEXTS)
    dataset = open_dataset(write(tmp_path, layout, steps), text=True)
    missions = steps[MISSION].tolist()
    ends = steps["next", "terminated"]
    found = texts_of(dataset)
    assert found == {MISSION: missions, NEXT_MISSION: successors(missions, ends)}
    assert all(type(value) is str for values in found.values() for value in values)


def test_the_files_are_those_of_the_format(tmp_path: Path) -> None:
    folder = write(tmp_path, "ted", steps_of(["b", "", "é", "b"], (4,)))
    # By rows and then by keys, "next" before "observation": b's successor is "" and so on.
    values = ["", "b", "é"]
    data = text_bytes(folder)
    assert data.keys() == {
        "text.utf8",
        "text.offsets",
        "text/observation/mission.memmap",
        "text/next/observation/mission.memmap",
    }
    assert data["text.utf8"] == "".join(values).encode()
    assert np.frombuffer(data["text.offsets"], "<i8").tolist() == [0, 0, 1, 3]
    codes = np.frombuffer(data["text/observation/mission.memmap"], "<i4")
    assert [values[code] for code in codes] == ["b", "", "é", "b"]
    assert json.loads((folder / "manifest.json").read_text())["texts"] == [
        {"key": ["next", "observation", "mission"], "shape": []},
        {"key": ["observation", "mission"], "shape": []},
    ]
    check_digests(folder, read_manifest(folder))


def test_the_bytes_depend_neither_on_the_layout_nor_on_the_blocks(tmp_path: Path) -> None:
    steps = steps_of(["c", "a", "b", "a", "d"]) | {("info", "say"): objects([*"xyzxyyzazbzccx"])}
    ways = itertools.product(LAYOUTS, (1, 2, 5, 1000))
    found = [text_bytes(write(tmp_path / f"{w}{n}", w, steps, n)) for w, n in ways]
    assert all(data == found[0] for data in found)


def test_rows_may_have_several_texts(tmp_path: Path) -> None:
    pairs = [[f"a{row}", "same"] for row in range(sum(LENGTHS))]
    steps = steps_of(["m"]) | {
        ("info", "pair"): objects([text for pair in pairs for text in pair], (2,))
    }
    nothing = np.empty((sum(LENGTHS), 0), object)
    folder = write(tmp_path, "ted", steps | {("info", "nothing"): nothing})
    found = texts_of(open_dataset(folder, text=True))
    assert found["info", "pair"] == pairs
    assert found["info", "nothing"] == [[]] * len(pairs)


def test_numpys_text_types_and_bytes_are_taken(tmp_path: Path) -> None:
    num_steps = sum(LENGTHS)
    more = {
        ("info", "bytes"): np.array([b"up", b"down\xff"] * 7),
        ("info", "str"): np.array(["up", "dówn"] * 7),
        ("info", "mixed"): objects(["up", b"down", np.str_("left"), "right"] * 3 + ["a", "b"]),
    }
    folder = write(tmp_path, "ted", steps_of(["m"]) | more)
    found = texts_of(open_dataset(folder, text=True))
    assert found["info", "bytes"] == ["up", "down\udcff"] * (num_steps // 2)
    assert found["info", "str"] == ["up", "dówn"] * (num_steps // 2)
    assert found["info", "mixed"] == ["up", "down", "left", "right"] * 3 + ["a", "b"]


def test_bytes_that_are_not_utf8_come_back_as_they_were(tmp_path: Path) -> None:
    raw = [b"\xff\xfe", b"caf\xe9", "café".encode(), b"\xed\xa0\x80", b"\x80" * 400]
    steps = steps_of(["m"], (5,)) | {("info", "raw"): objects([*raw])}
    folder = write(tmp_path, "ted", steps)
    found = texts_of(open_dataset(folder, text=True))["info", "raw"]
    assert [value.encode(errors="surrogateescape") for value in found] == raw


@settings(max_examples=25)
@given(values=st.lists(st.text(), min_size=1, max_size=30))
def test_any_text_comes_back(values: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("any")
    steps = steps_of(["m"], (len(values),)) | {("info", "any"): objects(values)}
    assert texts_of(open_dataset(write(folder, "ted", steps), text=True))["info", "any"] == values


def test_a_recorded_successor_is_kept(tmp_path: Path) -> None:
    steps = steps_of(["a", "b", "c"], (3,))
    steps |= {
        ("next", "observation", "x"): steps["observation", "x"] + 1,
        NEXT_MISSION: objects(["1", "2", "3"]),
    }
    found = texts_of(open_dataset(write(tmp_path, "ted", steps), text=True))
    assert found == {MISSION: ["a", "b", "c"], NEXT_MISSION: ["1", "2", "3"]}


def test_a_step_that_is_cut_off_is_dropped_with_its_text(tmp_path: Path) -> None:
    steps = steps_of(["a", "b", "c", "d"], (2, 2))
    steps["next", "terminated"][:] = False
    steps["next", "truncated"] = np.array([False, True, False, True])
    found = texts_of(open_dataset(write(tmp_path, "ted", steps), text=True))
    assert found == {MISSION: ["a", "c"], NEXT_MISSION: ["b", "d"]}


def test_a_missing_text_is_empty_and_counted() -> None:
    transitions = Transitions("toy/a")
    steps = steps_of(["a"], (3,))
    steps["info", "say"] = np.array([None, "b", None], object)
    rows = [rows["info", "say"] for rows in iterate_rows(transitions, iter([steps]))]
    assert np.concatenate(rows).tolist() == ["", "b", ""]
    assert transitions.notes == ["2 texts are missing in the source, and empty here"]


def test_a_dataset_without_text_has_none_of_it(tmp_path: Path) -> None:
    steps = steps_of(["a"])
    del steps[MISSION]
    folder = write(tmp_path, "ted", steps)
    assert not text_bytes(folder)
    assert "texts" not in json.loads((folder / "manifest.json").read_text())
    assert open_dataset(folder, text=True).texts is None


def test_text_that_is_not_asked_for_is_neither_listed_nor_opened(tmp_path: Path) -> None:
    folder = write(tmp_path, "ted", steps_of(["a", "b"]))
    dataset = open_dataset(folder)
    assert dataset.texts is None
    assert MISSION not in dataset.keys
    with refused(UnknownKey, key=MISSION, advice="Pass text=True to read it."):
        dataset.columns(MISSION)


# Refusals


def refusal(**changes: Any) -> str:
    steps = steps_of(["a"], (3,)) | changes.pop("steps")
    with pytest.raises(SourceError) as error:
        [*iterate_rows(Transitions("toy/a"), iter([steps]))]
    return str(error.value)


def test_objects_that_are_not_text_are_refused() -> None:
    ragged = np.empty(3, object)
    ragged[:] = [np.zeros(2), np.zeros(3), np.zeros(1)]
    message = refusal(steps={("info", "ragged"): ragged})
    assert "toy/a: info.ragged" in message and "ndarray" in message


def test_an_action_or_reward_of_text_is_refused() -> None:
    assert "action is text" in refusal(steps={("action",): objects(["a"] * 3)})
    assert "rewards are text" in refusal(steps={("next", "reward"): objects(["a"] * 3)})
    assert "must be 0 or 1" in refusal(steps={("next", "terminated"): objects(["a"] * 3)})


def test_text_beside_an_action_of_numbers_is_kept(tmp_path: Path) -> None:
    steps = steps_of(["a"], (3,))
    steps["action", "move"] = steps.pop(("action",))
    steps["action", "say"] = objects([*"xyz"])
    found = texts_of(open_dataset(write(tmp_path, "compact", steps), text=True))
    assert found["action", "say"] == ["x", "y", "z"]


@pytest.mark.parametrize("value", ["\ud800", "\udcc3\udca9", "\udcff\ud800" + "x" * 300])
def test_a_lone_surrogate_that_is_no_byte_is_refused(value: str, tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        write(tmp_path, "ted", steps_of([value]))
    assert caught.value.expected == "characters, or surrogate escapes of bytes that are not UTF-8"


@pytest.mark.parametrize("second", [{}, {("info", "say"): np.arange(3)}])
def test_a_column_that_stops_being_text_is_refused(second: dict[Any, Any]) -> None:
    first = steps_of(["a"], (3,)) | {("info", "say"): objects([*"xyz"])}
    blocks = iter([first, steps_of(["a"], (3,)) | second])
    with refused(SourceError, key=("info", "say"), row=3, expected="text []"):
        [*iterate_rows(Transitions("toy/a"), blocks)]


# Parts


@pytest.mark.parametrize("bounds", [(0, 14), (0, 3, 4, 14), (0, *range(1, 15))])
def test_parts_are_joined_to_the_same_bytes(bounds: tuple[int, ...], tmp_path: Path) -> None:
    rows = {
        ("a",): objects([*"abcabdeeafgabh"]),
        ("b", "c"): objects([*"xaybzcxaybzcxaybzcxaybzcxaxa"], (2,)),
    }
    whole = TextWriter(tmp_path / "whole")
    whole.write(rows)
    names = whole.finish()
    parts = []
    for start, stop in itertools.pairwise(bounds):
        part = TextWriter(tmp_path / str(start))
        part.write({key: values[start:stop] for key, values in rows.items()})
        part.finish()
        parts.append(part.folder)
    joined = TextWriter(tmp_path / "joined")
    joined.join(parts, whole.columns)
    assert joined.finish() == names
    for name in names:
        same = (tmp_path / "joined" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
        assert same, name


# Damage


def test_a_flipped_bit_is_damage_or_another_text_and_is_always_found(tmp_path: Path) -> None:
    folder = write(tmp_path, "compact", steps_of(["go left", "stop", "é", ""]))
    right = texts_of(open_dataset(folder, text=True))
    manifest = read_manifest(folder)
    outcomes = {"damaged": 0, "other": 0}
    for name in text_bytes(folder):
        path = folder / name
        data = path.read_bytes()
        for bit in range(0, 8 * len(data), 7):
            spoilt = bytearray(data)
            spoilt[bit // 8] ^= 1 << bit % 8
            path.write_bytes(spoilt)
            try:
                found = texts_of(open_dataset(folder, text=True))
            except DamagedDataset as error:
                assert name.rpartition("/")[2] in str(error) or "text" in str(error)
                outcomes["damaged"] += 1
            else:
                outcomes["other"] += found != right
            with pytest.raises(DamagedDataset) as caught:
                check_digests(folder, manifest)
            assert caught.value.id == "toy/missions"
        path.write_bytes(data)
    assert all(outcomes.values()), outcomes
    assert texts_of(open_dataset(folder, text=True)) == right


@pytest.mark.parametrize("code", [-1, 3, 1 << 20])
def test_a_bad_code_names_the_file_and_the_row(code: int, tmp_path: Path) -> None:
    folder = write(tmp_path, "ted", steps_of(["a", "b"]))
    codes = np.memmap(folder / "text" / "observation" / "mission.memmap", "<i4", "r+")
    codes[5] = code
    codes.flush()
    dataset = open_dataset(folder, text=True)
    assert dataset.texts is not None
    assert len(dataset.texts.gather(np.array([0, 1, 6]))[MISSION]) == 3
    with refused(DamagedDataset, key=MISSION, row=5, found=code):
        dataset.texts.gather(np.array([0, 5, 6]))


@pytest.mark.parametrize("value", [-1, 1 << 40, -(1 << 63)])
def test_a_bad_offset_names_the_row(value: int, tmp_path: Path) -> None:
    folder = write(tmp_path, "ted", steps_of(["a", "bb", "ccc"]))
    offsets = np.memmap(folder / "text.offsets", "<i8", "r+")
    offsets[1] = value
    offsets.flush()
    with pytest.raises(DamagedDataset) as caught:
        texts_of(open_dataset(folder, text=True))
    assert caught.value.key == ("next", "observation", "mission")
    assert caught.value.row == 0
    assert caught.value.found == 0


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        *(("text.utf8", "missing"), ("text.utf8", "long"), ("text.utf8", "linked")),
        *(("text.offsets", "short"), ("text.offsets", "unlisted")),
        *(("text/observation/mission.memmap", fault) for fault in ("missing", "unlisted")),
    ],
)
def test_files_of_another_size_are_refused_at_opening(
    name: str, fault: str, tmp_path: Path
) -> None:
    folder = write(tmp_path, "ted", steps_of(["a", "bb", "ccc"]))
    path = folder / name
    data = path.read_bytes()
    if fault == "unlisted":
        manifest = json.loads((folder / "manifest.json").read_text())
        del manifest["files"][name]
        (folder / "manifest.json").write_bytes(seal(manifest))
    elif fault in ("missing", "linked"):
        path.unlink()
        if fault == "linked":
            (tmp_path / "elsewhere").write_bytes(data)
            path.symlink_to(tmp_path / "elsewhere")
    else:
        path.write_bytes(data[:-1] if fault == "short" else data + b"x")
    with pytest.raises(DamagedDataset) as caught:
        open_dataset(folder)
    assert caught.value.path == folder and str(caught.value.found).startswith(f"{name}: ")


@pytest.mark.parametrize(("place", "change", "found"), [(0, 1, "1 and 6"), (-1, -1, "0 and 5")])
def test_offsets_that_begin_or_end_elsewhere_are_refused(
    place: int, change: int, found: str, tmp_path: Path
) -> None:
    folder = write(tmp_path, "ted", steps_of(["a", "bb", "ccc"]))
    offsets = np.memmap(folder / "text.offsets", "<i8", "r+")
    offsets[place] += change
    offsets.flush()
    with pytest.raises(DamagedDataset) as caught:
        open_dataset(folder, text=True)
    assert (caught.value.expected, caught.value.found) == ("0 and 6", found)


def test_short_values_do_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "CACHE_BYTES", 10_000)
    steps = steps_of([str(number) for number in range(1000)], (1000,))
    texts = open_dataset(write(tmp_path, "ted", steps), text=True).texts
    assert texts is not None
    kept = texts._value.cache_info().maxsize
    # Each value takes 3 bytes, and an object of Python's.
    assert kept is not None and 50 < kept < 100
    assert texts.column(MISSION) == [str(number) for number in range(1000)]


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_only_regular_files_are_copied(kind: str, tmp_path: Path) -> None:
    folder = write(tmp_path, "ted", steps_of(["a", "bb", "ccc"]))
    texts = read_manifest(folder).texts
    TextWriter(tmp_path / "good").copy(folder, texts)
    path = folder / "text.utf8"
    assert (tmp_path / "good" / "text.utf8").read_bytes() == path.read_bytes()
    path.unlink()
    if kind == "link":
        path.symlink_to(tmp_path / "good" / "text.utf8")
    else:
        os.mkfifo(path)
    with pytest.raises(DamagedDataset) as caught:
        TextWriter(tmp_path / "bad").copy(folder, texts)
    assert Path(caught.value.path).name == "text.utf8"
