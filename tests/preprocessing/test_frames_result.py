"""The result of a run over frames: as small as its parent, and every value that of the function."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict

import datasets_cli
from datasets_cli import ExperienceReplay
from datasets_cli.cli.main import main
from datasets_cli.errors import UsageError, WrongRows
from datasets_cli.preprocessing import execution, run
from datasets_cli.store.check import check_digests
from datasets_cli.store.manifest import Manifest, read_manifest
from tests.support.derived import preprocess
from tests.support.refusals import refused
from tests.support.values import assert_same

Rows = dict[tuple[str, ...], np.ndarray]
LEAVES = ["observation", ("next", "observation")]


@pytest.fixture
def pong() -> Path:
    assert main(["download", "demo/pong", "-q"]) == 0
    return datasets_cli.dataset_path("demo/pong").path


def darker(batch: TensorDict) -> TensorDict:
    for key in LEAVES:
        batch[key] = batch[key] // 2
    return batch


def values_of(folder: Path) -> Rows:
    storage = datasets_cli.open_storage(folder)
    return {key: storage.column(key).numpy() for key in storage.dataset.keys}


def made(source: Path, function: Any, dest: Path, **options: Any) -> Manifest:
    preprocess(source, function, dest, **{"num_workers": 0, **options})
    manifest = read_manifest(dest)
    check_digests(dest, manifest)
    return manifest


def test_frames_are_as_small_as_those_of_the_parent(pong: Path, tmp_path: Path) -> None:
    parent, manifest = read_manifest(pong), made(pong, darker, tmp_path / "out")
    assert manifest.layout == "compact" and manifest.size_bytes < 1.5 * parent.size_bytes
    expected = values_of(pong)
    for key in (("observation",), ("next", "observation")):
        expected[key] = expected[key] // 2
    assert_same(values_of(tmp_path / "out"), expected)


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 2, "chunksize": 100},
        {"per": "transition", "chunksize": 1, "num_frames": 30},
    ],
    ids=str,
)
def test_the_bytes_are_the_same_for_every_number_of_workers_and_size_of_chunks(
    pong: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    first = {name: options[name] for name in ("num_frames",) if name in options}
    alone = made(pong, darker, tmp_path / "alone", **first)
    assert made(pong, darker, tmp_path / "other", **options).files == alone.files


@pytest.mark.parametrize(("every", "chunk", "num_frames"), [(2, 1, 40), (20, 60, 150)])
def test_what_is_left_of_frames_is_what_the_other_layout_has(
    pong: Path, tmp_path: Path, every: int, chunk: int, num_frames: int
) -> None:
    def some(batch: TensorDict) -> TensorDict:
        return batch[batch["observation"].flatten(1).sum(1) % every != 0]

    options = {"per": "transition", "chunksize": chunk, "num_frames": num_frames}
    preprocess(pong, some, tmp_path / "ted", num_workers=0, layout="ted", **options)
    preprocess(pong, some, tmp_path / "compact", num_workers=0, **options)
    assert_same(values_of(tmp_path / "ted"), values_of(tmp_path / "compact"))
    tables = [np.load(tmp_path / name / "trajectories.npy") for name in ("ted", "compact")]
    assert np.array_equal(*tables)


def test_columns_that_are_others_in_more_rows_are_refused_before_the_first_write(
    pong: Path, tmp_path: Path
) -> None:
    def few(batch: TensorDict) -> TensorDict:
        return batch if len(batch) == 2 else batch.exclude("action")

    with refused(WrongRows, key="action", found="missing"):
        preprocess(pong, few, tmp_path / "out", num_workers=0, per="transition")
    assert not (tmp_path / "out").exists()


def test_room_is_asked_for_what_is_packed_and_for_what_it_is_made_of(
    pong: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(run, "check_free_space", lambda _, needed, __: asked.append(needed))
    monkeypatch.setattr(run, "bytes_of_one", lambda *_: 84 * 84)  # frames that do not shrink
    for layout in ("ted", "compact"):
        made(pong, darker, tmp_path / layout, layout=layout)
    sizes = {key: values.nbytes for key, values in values_of(pong).items()}
    whole = sum(sizes.values())
    assert asked == [whole, 2 * (whole - sizes["next", "observation"])]


def blind(batch: TensorDict) -> TensorDict:
    batch["next", "observation"] = torch.zeros_like(batch["observation"])
    return batch


def test_successors_that_are_not_the_next_frames_are_refused_before_the_first_write(
    pong: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {*tmp_path.iterdir()}
    with refused(WrongRows, key=("next", "observation"), row=0):
        preprocess(pong, blind, tmp_path / "out", num_workers=0)
    assert {*tmp_path.iterdir()} == before
    assert made(pong, blind, tmp_path / "out", layout="ted").layout == "ted"
    call = ["preprocess", "demo/pong", "--n-step", "3", "--gamma", "0.9", "--name", "three"]
    assert main(call) == 2
    assert "--layout ted" in capsys.readouterr().err and main([*call, "--layout", "ted"]) == 0


def test_a_chunk_whose_last_successor_is_not_the_next_first_frame_is_refused(
    pong: Path, tmp_path: Path
) -> None:
    def by_chunk(batch: TensorDict) -> TensorDict:
        for key in LEAVES:
            batch[key] = batch[key] + len(batch) % 50  # the last chunk is shorter
        return batch

    options = {"per": "transition", "chunksize": 50, "num_frames": 120}
    with refused(WrongRows, key=("next", "observation"), row=99):
        preprocess(pong, by_chunk, tmp_path / "out", num_workers=0, **options)
    assert not (tmp_path / "out").exists()


def test_a_run_that_was_killed_before_its_commit_continues_to_the_same_bytes(
    pong: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise OSError("killed")

    calls = []

    def counted(batch: TensorDict) -> TensorDict:
        calls.append(len(batch))
        return darker(batch)

    options = {"num_workers": 0, "per": "transition", "chunksize": 200}
    with monkeypatch.context() as patch, pytest.raises(OSError, match="killed"):
        patch.setattr(execution, "commit_folder", killed)
        preprocess(pong, counted, tmp_path / "out", **options)
    calls.clear()
    preprocess(pong, counted, tmp_path / "out", **options)
    assert calls == [2], "the probe alone: every chunk was done"
    right = made(pong, counted, tmp_path / "right")
    assert read_manifest(tmp_path / "out").files == right.files


def test_a_layout_that_was_asked_for_is_part_of_what_there_is(pong: Path, tmp_path: Path) -> None:
    ted = made(pong, darker, tmp_path / "ted", layout="ted")
    assert ted.layout == "ted"
    assert made(pong, darker, tmp_path / "ted") == ted, "none was asked for"
    assert made(tmp_path / "ted", darker, tmp_path / "again").layout == "ted"
    compact = made(tmp_path / "ted", darker, tmp_path / "small", layout="compact")
    assert compact.size_bytes < ted.size_bytes / 20
    assert_same(values_of(tmp_path / "small"), values_of(tmp_path / "again"))
    with refused(UsageError, path=tmp_path / "ted", found=["the layout ted, now compact"]):
        preprocess(pong, darker, tmp_path / "ted", num_workers=0, layout="compact")


def test_a_step_whose_layout_changed_is_due(pong: Path, tmp_path: Path) -> None:
    datasets_cli.preprocess("demo/pong", datasets_cli.project.Pipeline(crop="80x80"), "small")
    step = 'input = "demo/pong"\ncrop = "80x80"\nname = "small"\n'
    plans = []
    for name, more in (("same", ""), ("other", 'layout = "ted"\n')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "rlds.toml").write_text(f"[[preprocess]]\n{step}{more}")
        plans.append(datasets_cli.plan_preprocess(folder=tmp_path / name))
    assert [len(plan.due) for plan in plans] == [0, 1]
    assert "the layout compact, now ted" in plans[1].due[0].reason


def test_a_dry_run_says_how_large_the_result_becomes(
    pong: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = ["--json", "preprocess", "demo/pong", "--crop", "80x80", "--name", "x", "--dry-run"]
    sizes = {}
    for layout in ("compact", "ted"):
        assert main([*call, "--layout", layout]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["layout"] == layout
        sizes[layout] = document["bytes"]
    preview = len(ExperienceReplay("demo/pong")) * 2 * 80 * 80
    assert sizes["ted"] > preview > 20 * sizes["compact"]
    real = made(pong, datasets_cli.project.Pipeline(crop="80x80"), tmp_path / "out").size_bytes
    assert 0.5 < sizes["compact"] / real < 2
