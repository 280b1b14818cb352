"""A deep check finds what was written wrong, which checksums of the files cannot tell."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import datasets_cli
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.core.progress import silent
from datasets_cli.errors import DamagedDataset, IntegrityError
from datasets_cli.schema.transitions import SHIFTED
from datasets_cli.store import deep_check as checker
from datasets_cli.store.cache_root import CacheRoot
from datasets_cli.store.dataset import open_dataset
from datasets_cli.store.deep_check import deep_check
from datasets_cli.store.deep_report import TABLE, DeepReport, report_from_json
from datasets_cli.store.layouts.compact_writer import CompactWriter
from datasets_cli.store.layouts.ted_writer import TedWriter, describe_files
from datasets_cli.store.manifest import Manifest, read_manifest, write_manifest
from datasets_cli.store.tables import load_table
from datasets_cli.verbs.verify import verify_deep
from datasets_cli.verbs.verify import verify_installed as verify
from tests.store.test_compact import pixel_rows, transitions, write
from tests.support.refusals import refused

Capture = pytest.CaptureFixture[str]
LENGTHS = [4, 1, 6]  # rows 0-3, 4, 5-10


class Sample:
    """A dataset under a cache root, whose files a test rewrites as if they had been written so."""

    def __init__(self, root: Path, kind: Any, rows: Any) -> None:
        self.folder = CacheRoot(root).dataset("toy/sample")
        self.folder.parent.mkdir(parents=True)
        write(kind, self.folder, rows)
        self.set(id="toy/sample", successors={"rule": SHIFTED, "version": 1})

    def set(self, **fields: Any) -> Manifest:
        manifest = replace(read_manifest(self.folder), content="", **fields)
        write_manifest(self.folder, manifest)
        return manifest

    def edit(self, name: str, dtype: str, change: Callable[[np.ndarray], Any]) -> None:
        values = np.fromfile(self.folder / name, dtype)
        change(values)
        values.tofile(self.folder / name)
        files = read_manifest(self.folder).files
        self.set(files={**files, **describe_files(self.folder, [name])})

    def check(self) -> DeepReport:
        return deep_check(open_dataset(self.folder), silent)


def sample_rows(*, shared: bool = True) -> Any:
    rows = transitions(LENGTHS, seed=1, shared=shared)
    for key in [key for key in rows if key[:2] == ("next", "observation")]:
        rows[key][rows["next", "terminated"][:, 0]] = 0
    return rows


@pytest.fixture
def ted(config: Config) -> Sample:
    return Sample(config.root, TedWriter, sample_rows())


def put(row: int, value: Any) -> Callable[[np.ndarray], Any]:
    return lambda values: values.__setitem__(row, value)


FAULTS: dict[str, tuple[str, str, Callable[[np.ndarray], Any], str]] = {
    "a flag at the root": ("done.memmap", "bool", put(2, True), "row 2 .* that done is false"),
    "an episode": ("episode.memmap", "int64", put(6, 1), "row 6 .* that episode is the number"),
    "an end that is no end": (
        "next/terminated.memmap", "bool", put(1, True), "row 1 .* next.done is next.terminated or",
    ),
    "a done without a reason": (
        "next/done.memmap", "bool", put(8, True), "row 8 .* is false before the end of a",
    ),
    "a trajectory without its end": (
        "next/done.memmap", "bool", put(4, False), "row 4 .* every trajectory ends with next.done",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("block", [3, 1000])
def test_a_planted_fault_is_named_with_its_first_row(
    ted: Sample, fault: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checker, "rows_per_block", lambda row_bytes: block)
    ted.check()
    name, dtype, change, message = FAULTS[fault]
    ted.edit(name, dtype, change)
    with pytest.raises(DamagedDataset, match=message):
        ted.check()


def first_observation(folder: Path) -> str:
    names = sorted((folder / "next").glob("observation*"))
    path = names[0] if names[0].is_file() else min(names[0].glob("*.memmap"))
    return path.relative_to(folder).as_posix()


@pytest.mark.parametrize(("row", "block"), [(0, 1000), (2, 3), (7, 1)])
def test_a_successor_that_is_not_the_following_row_is_named(
    ted: Sample, row: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checker, "rows_per_block", lambda row_bytes: block)
    name = first_observation(ted.folder)
    row_bytes = (ted.folder / name).stat().st_size // sum(LENGTHS)
    at = row * row_bytes
    ted.edit(name, "uint8", lambda data: data.__setitem__(at, data[at] ^ 1))
    with pytest.raises(DamagedDataset, match=rf"row {row} breaks .* is the following row's"):
        ted.check()
    ted.set(successors={"rule": "recorded"})
    ted.check()  # the publisher's own successor may be anything


def test_a_successor_of_a_terminated_step_is_zero(ted: Sample) -> None:
    terminated = np.fromfile(ted.folder / "next/terminated.memmap", "bool")
    row = int(np.flatnonzero(terminated)[0])
    name = first_observation(ted.folder)
    row_bytes = (ted.folder / name).stat().st_size // sum(LENGTHS)
    ted.edit(name, "uint8", put((row + 1) * row_bytes - 1, 1))
    with pytest.raises(DamagedDataset, match=f"row {row} breaks .* zero after a terminated step"):
        ted.check()


def test_a_function_may_give_a_derived_dataset_any_value(ted: Sample) -> None:
    ted.edit("next/done.memmap", "bool", put(8, True))
    ted.set(parent={"id": "toy/other", "content": "0" * 64, "state": "installed"})
    ted.check()


def test_a_column_that_every_dataset_has_is_missed(ted: Sample) -> None:
    columns = read_manifest(ted.folder).columns
    ted.set(columns=tuple(column for column in columns if column.key != ("next", "done")))
    with pytest.raises(DamagedDataset, match=r"next.done is missing; expected bool \[1\]"):
        ted.check()


# The compact layout


@pytest.fixture
def frames(config: Config) -> Sample:
    sample = Sample(config.root, CompactWriter, pixel_rows([20, 30]))
    sample.set(successors={"rule": "recorded"})
    return sample


def test_every_frame_is_decoded(frames: Sample) -> None:
    assert frames.check().num_frames == 52  # one for each row, and one more for each trajectory
    (blob,) = frames.folder.glob("frames/*.zst")
    offsets = np.fromfile(f"{blob}.offsets", "int64")
    frames.edit(f"frames/{blob.name}", "uint8", put(int(offsets[51]) + 2, 255))
    frames.edit(f"frames/{blob.name}", "uint8", put(int(offsets[51]), 255))
    with pytest.raises(DamagedDataset):
        frames.check()


@pytest.mark.parametrize(
    ("place", "change", "message"),
    [
        (0, lambda start: 1, "(goes from byte|found) 1 to"),
        (-1, lambda end: end - 1, "expected (0|frames from byte 0) to"),
        (7, lambda start: 0, "frame 6 goes from byte .* to 0; expected an end after its start"),
        (7, lambda start: start + 10**12, "frame 7 goes from byte"),
    ],
)
def test_offsets_of_frames_are_checked(
    frames: Sample, place: int, change: Callable[[int], int], message: str
) -> None:
    (name,) = (path.name for path in frames.folder.glob("frames/*.offsets"))
    path = f"frames/{name}"
    frames.edit(path, "int64", lambda values: put(place, change(values[place]))(values))
    with pytest.raises(DamagedDataset, match=message):
        frames.check()


def test_the_map_from_rows_to_records_is_checked(frames: Sample) -> None:
    frames.edit("row.memmap", "int32", put(25, 3))
    with pytest.raises(DamagedDataset, match=r"row.memmap: row 25 is record 3; expected 26"):
        frames.check()


def test_trajectories_that_do_not_fit_the_records_are_named(frames: Sample) -> None:
    np.save(frames.folder / "trajectories.npy", np.array([0, 20, 30, 50]))
    files = {
        **read_manifest(frames.folder).files,
        **describe_files(frames.folder, ["trajectories.npy"]),
    }
    frames.set(files=files, num_trajectories=3)
    with pytest.raises(DamagedDataset) as caught:
        frames.check()
    assert Path(caught.value.path).name == "sample"


# What is found out


def test_numbers_are_reported_and_kept_beside_the_dataset(
    ted: Sample, config: Config, capsys: Capture
) -> None:
    rows = sum(LENGTHS)
    ted.edit("next/reward.memmap", "float32", put([1, 2, 5], [np.nan, np.nan, np.inf]))
    before = {path: path.stat() for path in ted.folder.rglob("*")}
    manifest, report = verify_deep("toy/sample", config)
    columns = {column.key: column for column in report.columns}
    reward = columns["next", "reward"]
    assert (report.num_transitions, reward.num_nan, reward.num_infinite) == (rows, 2, 1)
    kept = np.fromfile(ted.folder / "next/reward.memmap", "float32")
    finite = kept[np.isfinite(kept)]
    assert (reward.smallest, reward.largest) == (finite.min(), finite.max())
    assert (columns["done",].is_constant, columns["episode",].is_constant) == (True, False)
    assert columns["episode",].largest == 2
    table = load_table(CacheRoot(config.root), manifest.content, TABLE)
    assert table and report_from_json(table) == report
    assert main(["info", "toy/sample"]) == 0
    shown = capsys.readouterr().out
    assert "next.reward has 2 NaN and 1 infinite numbers" in shown
    assert "the same in every row: " in shown
    assert {path: path.stat().st_mtime_ns for path in ted.folder.rglob("*")} == {
        path: found.st_mtime_ns for path, found in before.items()
    }
    assert datasets_cli.delete("toy/sample", config=config)[0].deleted
    assert load_table(CacheRoot(config.root), manifest.content, TABLE) is None


def test_zeros_of_both_signs_are_constant(ted: Sample, config: Config) -> None:
    ted.edit("next/reward.memmap", "float32", lambda rows: np.copyto(rows, rows * 0))
    assert len({*np.fromfile(ted.folder / "next/reward.memmap", "int32")}) == 2  # both signs
    column = next(c for c in verify_deep("toy/sample", config)[1].columns if c.key[-1] == "reward")
    assert (column.smallest, column.largest, column.is_constant) == (0, 0, True)


@pytest.mark.parametrize("value", [0, 7])
def test_a_column_that_a_conversion_wrote_constant_is_named_by_the_command(
    value: float, ted: Sample, config: Config, capsys: Capture
) -> None:
    """Named defect: a converter of TorchRL's wrote zeros, and its tests checked shapes only."""
    assert main(["verify", "--deep", "toy/sample"]) == 0
    named = re.search(r"the same in every row: (.*)", capsys.readouterr().out)
    before = set(named[1].split(", ")) if named else set()
    for name in ("action", "next/reward"):
        ted.edit(f"{name}.memmap", "float32", lambda values: values.fill(value))
    assert main(["verify", "--deep", "toy/sample"]) == 0  # it is no damage, but seen
    named = re.search(r"the same in every row: (.*)", capsys.readouterr().out)
    assert named and set(named[1].split(", ")) - before == {"action", "next.reward"}


def test_both_layouts_have_one_report(config: Config) -> None:
    sample = Sample(config.root, CompactWriter, sample_rows())
    _, packed = verify_deep("toy/sample", config)
    datasets_cli.convert("toy/sample", "ted", config=config, progress=silent)
    _, unpacked = verify_deep("toy/sample", config)
    assert sorted(packed.columns, key=str) == sorted(unpacked.columns, key=str)
    assert read_manifest(sample.folder).layout == "ted"


def test_the_command_shows_the_report_and_its_json(ted: Sample, capsys: Capture) -> None:
    assert main(["verify", "--deep"]) == 0
    shown = capsys.readouterr().out
    assert "it opens" in shown
    assert "every value is valid: 11 transitions in 3 trajectories" in shown
    assert main(["verify", "--deep", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["ok"], found["opened"], found["deep"]["num_transitions"]) == (True, True, 11)
    assert main(["verify", "--deep", "--quick"]) == 2


def test_the_command_names_what_is_broken(ted: Sample, capsys: Capture) -> None:
    ted.edit("done.memmap", "bool", put(2, True))
    assert main(["verify"]) == 0
    assert main(["verify", "--deep"]) == 4
    assert "toy/sample: damaged: " in capsys.readouterr().out
    with pytest.raises(IntegrityError) as caught:
        datasets_cli.verify(deep=True)
    assert [result.state for result in caught.value.results] == ["damaged"]


def test_a_stated_identity_that_is_not_the_computed_one_is_damage(
    ted: Sample, config: Config
) -> None:
    write_manifest(ted.folder, replace(read_manifest(ted.folder), content="0" * 64))
    with refused(
        DamagedDataset, found="0000000000000000000000000000000000000000000000000000000000000000"
    ):
        verify("toy/sample", config)
