"""The arguments of preprocess(), repeated calls, and what a failed run leaves."""

from __future__ import annotations

import json
import os
import re
import tempfile
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import ExperienceReplay
from datasets_cli.cli.main import main
from datasets_cli.errors import RldsError, Unsupported, UsageError, WrongSize
from datasets_cli.parallel.tasks import CallingProcess
from datasets_cli.preprocessing import chunk, origin
from datasets_cli.preprocessing.origin import command_of
from datasets_cli.preprocessing.pipeline import Pipeline
from datasets_cli.store.manifest import Manifest
from tests.support.derived import preprocess
from tests.support.refusals import refused
from tests.support.text_rows import steps_of, write


@pytest.fixture
def replay(door: str) -> ExperienceReplay:
    return ExperienceReplay(door, batch_size=32)


def size(batch: TensorDict) -> TensorDict:
    """How many rows came at once, and a random number."""
    rows = torch.full((len(batch),), len(batch))
    return TensorDict({"rows": rows, "noise": torch.rand(len(batch))}, batch.batch_size)


def doubled(batch: TensorDict) -> TensorDict:
    return batch.select("action") * 2


@pytest.mark.parametrize(
    ("cut", "sizes"),
    [
        ({"chunksize": 600, "per": "transition"}, [600, 600, 295]),
        (
            {"num_chunks": 4, "num_frames": 1001, "per": "transition"},
            [251, 251, 251, 248],
        ),
        # The demonstrations have 299 rows each; a chunk continues to the next end.
        ({"chunksize": 300}, [598, 598, 299]),
        ({"chunksize": 299}, [299] * 5),
        ({"num_chunks": 2, "num_frames": 1001}, [598, 403]),
        ({}, [1495]),
    ],
)
def test_a_chunk_is_what_the_function_takes_at_once(
    replay: ExperienceReplay, tmp_path: Path, cut: dict[str, Any], sizes: list[int]
) -> None:
    storage = replay.preprocess(size, 0, 0, dest=tmp_path / "out", **cut)
    expected = torch.tensor(sizes).repeat_interleave(torch.tensor(sizes))
    assert torch.equal(storage.column(("rows",)), expected)


def alone(row: TensorDict) -> TensorDict:
    assert row.batch_size == ()
    row["action"] *= 2
    row["next", "sum"] = row["action"].sum() + row["next", "reward"]
    return row.exclude("observation", "episode")


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_chunksize_of_zero_is_each_row_alone_as_in_tensordict(
    replay: ExperienceReplay, tmp_path: Path, num_workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(origin, "rows_per_block", lambda row_bytes: 100)
    first = replay.take(1)
    with ThreadPool(1) as threads:
        right = first[:].map(alone, 0, chunksize=0, pool=threads)
    options: dict[str, Any] = {"chunksize": 0, "num_workers": num_workers}
    made = first.preprocess(alone, dest=tmp_path / "out", **options)
    assert {key[-1] for key in made.dataset.keys} >= {"action", "sum"}
    assert all(torch.equal(made.column(key), right[key]) for key in made.dataset.keys)
    assert made.dataset.manifest.arguments["chunksize"] == 0


def test_what_cannot_be_done_to_each_row_alone_is_refused(
    replay: ExperienceReplay, tmp_path: Path
) -> None:
    first = replay[7]["action"][0]
    wrong: list[tuple[Any, dict[str, Any]]] = [
        (lambda row: row if row["action"][0] != first else None, {"row": 7, "found": "NoneType"}),
        (lambda row: row["action"], {"row": 0, "found": "Tensor"}),
        (lambda row: TensorDict({"number": torch.zeros(2 if row["action"][0] > 0 else 3)}), {}),
        (Pipeline(select=["action"]), {"found": 0}),
    ]
    for function, attributes in wrong:
        with pytest.raises(UsageError) as caught:
            replay.preprocess(function, dest=tmp_path / "out", chunksize=0, num_workers=0)
        assert caught.value.argument == "chunksize"
        assert {name: getattr(caught.value, name) for name in attributes} == attributes


def test_another_size_of_chunks_does_not_go_on_with_the_first(
    replay: ExperienceReplay, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"

    def fails_late(batch: TensorDict) -> TensorDict:
        if int(batch["episode"][-1]) == 4 and not gate.exists():
            raise ValueError("not yet")
        return size(batch)

    with pytest.raises(RldsError, match="not yet"):
        replay.preprocess(fails_late, 0, 0, dest=tmp_path / "out", chunksize=100)
    gate.touch()
    storage = replay.preprocess(fails_late, 0, 0, dest=tmp_path / "out", chunksize=700)
    assert storage.column(("rows",)).unique().tolist() == [598, 897]  # type: ignore[union-attr]


def test_a_generator_gives_the_seed(replay: ExperienceReplay, tmp_path: Path) -> None:
    made = [
        replay.preprocess(
            size, 0, 0, dest=tmp_path / str(n), generator=torch.Generator().manual_seed(n // 2)
        )
        for n in range(3)
    ]
    first, again, other = (storage.dataset.manifest.files for storage in made)
    assert first == again and first["noise.memmap"] != other["noise.memmap"]


WRONG: list[dict[str, Any]] = [
    {"dim": 1},
    {"chunksize": -1},
    {"chunksize": "x"},
    {"num_frames": 0},
    {"num_workers": -1},
    {"per": "episode"},
    {"num_chunks": 0},
    {"chunksize": 5, "num_chunks": 5},
    {"seed": 1, "generator": torch.Generator()},
]


def test_what_cannot_be_heeded_is_refused(replay: ExperienceReplay, tmp_path: Path) -> None:
    for wrong in WRONG:
        with pytest.raises(UsageError) as refused:
            replay.preprocess(size, dest=tmp_path / "out", **wrong)
        assert refused.value.argument in wrong
    for word in ("worker_threads", "max_tasks_per_child"):
        with pytest.raises(Unsupported) as caught:
            replay.preprocess(size, dest=tmp_path / "out", **{word: 2})
        assert caught.value.argument == word and "pool" in str(caught.value.advice)
    with pytest.raises(UsageError) as caught:
        here = CallingProcess()
        replay.preprocess(size, dest=tmp_path / "out", executor=here, pool=here)
    assert caught.value.argument == "pool"


def test_the_words_of_torchrls_page_are_taken(replay: ExperienceReplay, tmp_path: Path) -> None:
    right = replay[:]["action"] * 2
    with ThreadPool(2) as threads:
        ways: dict[str, dict[str, Any]] = {
            "pool": {"pool": threads, "worker_threads": 1, "index_with_generator": True},
            "executor": {"pool": CallingProcess()},
            "here": {"num_workers": 0, "max_tasks_per_child": None},
        }
        for name, words in ways.items():
            made = replay.preprocess(doubled, dest=tmp_path / name, **words)
            assert torch.equal(made.column(("action",)), right), name


def test_an_error_in_a_pool_is_told_as_anywhere(replay: ExperienceReplay, tmp_path: Path) -> None:
    def fail(rows: TensorDict) -> TensorDict:
        raise ZeroDivisionError("in the pool")

    with ThreadPool(1) as threads, pytest.raises(RldsError, match="in the pool"):
        replay.preprocess(fail, dest=tmp_path / "out", pool=threads)


def test_a_function_without_its_flag_is_named_with_it(
    door: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for rest in ([], ["--cast", "float32", "--name", "x"]):
        assert main(["--json", "preprocess", door, "mycode:scale", *rest]) == 2
        error = json.loads(capsys.readouterr().err)["error"]
        assert (error["argument"], error["found"]) == ("fn", "mycode:scale")
        assert "--fn mycode:scale" in error["advice"]


def same(batch: TensorDict) -> TensorDict:
    return batch


def test_the_same_again_calls_nothing_and_returns_the_storage(
    replay: ExperienceReplay, tmp_path: Path
) -> None:
    log = tmp_path / "log"

    def logged(batch: TensorDict) -> TensorDict:
        with log.open("a") as file:
            file.write("x")
        return batch

    first = replay.preprocess(logged, dest=tmp_path / "out", num_workers=0)
    before, manifest = log.read_text(), (tmp_path / "out" / "manifest.json").read_bytes()
    again = replay.preprocess(logged, dest=tmp_path / "out", num_workers=2)
    assert before and log.read_text() == before
    assert (tmp_path / "out" / "manifest.json").read_bytes() == manifest
    assert again.dataset.manifest == first.dataset.manifest
    assert [path.name for path in tmp_path.iterdir() if path.name[0] == "."] == []


def test_what_a_killed_run_left_is_no_error_where_it_cannot_be_deleted(
    replay: ExperienceReplay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = replay.preprocess(same, dest=tmp_path / "out", num_workers=0)
    left = tmp_path / f".out.{'0' * 16}.partial"
    left.mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(os, "rmdir", lambda *_, **__: Path("/nowhere").stat())
        again = replay.preprocess(same, dest=tmp_path / "out", num_workers=0)
    assert again.dataset.manifest == made.dataset.manifest and left.exists()
    replay.preprocess(same, dest=tmp_path / "out", num_workers=0)
    assert not left.exists()


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"fn": lambda batch: batch}, r"the function .*same, now .*<lambda>"),
        ({"num_frames": 300}, "the argument num_frames=1495, now 300"),
        ({"chunksize": 300}, "the argument chunksize=1495, now 300"),
        ({"per": "transition"}, "the argument per=chunk, now transition"),
        ({"seed": 7}, "the seed 0, now 7"),
    ],
)
def test_what_differs_from_what_is_there_is_named(
    replay: ExperienceReplay, tmp_path: Path, changed: dict[str, Any], named: str
) -> None:
    replay.preprocess(same, dest=tmp_path / "out", num_workers=0)
    with pytest.raises(UsageError) as caught:
        replay.preprocess(**{"fn": same, "num_workers": 0, **changed}, dest=tmp_path / "out")
    assert re.match(named, caught.value.found[0])
    assert str(caught.value.advice).endswith(f"delete it first: rm -r {tmp_path / 'out'}")


def test_only_what_was_given_or_differs_is_named(replay: ExperienceReplay, tmp_path: Path) -> None:
    replay.preprocess(same, dest=tmp_path / "out", num_workers=0)
    with pytest.raises(UsageError) as caught:
        replay.take(2).preprocess(same, dest=tmp_path / "out", num_workers=0)
    changes = caught.value.found
    assert [each for each in changes if each.startswith("the rows all, now take")]
    assert not [each for each in changes if "chunksize" in each]


def test_another_parent_is_named(tmp_path: Path) -> None:
    one = write(tmp_path / "one", "ted", steps_of("ab", (4, 2)))
    other = write(tmp_path / "other", "ted", steps_of("ba", (3, 4)))
    preprocess(one, same, tmp_path / "out", num_workers=0)
    with pytest.raises(UsageError) as caught:
        preprocess(other, same, tmp_path / "out", num_workers=0)
    assert re.match("the data of .*, now other data of", caught.value.found[0])


def test_a_dataset_that_was_not_derived_is_refused(
    replay: ExperienceReplay, tmp_path: Path
) -> None:
    with refused(UsageError, path=replay.data_path):
        preprocess(replay.data_path, same, replay.data_path, num_workers=0)


def return_to_go(batch: TensorDict) -> TensorDict:
    rewards, done = batch["next", "reward"].double(), batch["next", "done"]
    togo = torch.zeros_like(rewards)
    for row in range(len(batch) - 1, -1, -1):
        later = 0 if done[row] or row + 1 == len(batch) else togo[row + 1]
        togo[row] = rewards[row] + later
    return TensorDict({"togo": togo}, batch.batch_size)


@pytest.mark.parametrize("lengths", [(4, 1, 6, 3, 20), (1,) * 9, (40,), (7, 2, 2, 30)])
def test_the_return_to_go_is_right_where_chunks_are_small(
    tmp_path: Path, lengths: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(origin, "rows_per_block", lambda row_bytes: 5)
    source = write(tmp_path, "ted", steps_of("abc", lengths))
    storage = preprocess(source, return_to_go, tmp_path / "out", num_workers=0)
    rewards = preprocess(
        source, lambda b: b.select(("next", "reward")), tmp_path / "all", num_workers=0
    ).column(("next", "reward"))
    first = 0
    for length in lengths:
        for row in range(first, first + length):
            expected = rewards[row : first + length].double().sum()
            assert torch.isclose(storage.column(("togo",))[row].sum(), expected)
        first += length


def test_a_trajectory_that_is_too_long_is_refused_before_anything_is_written(
    replay: ExperienceReplay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunk, "MAX_TRAJECTORY_BYTES", 100_000)
    with refused(WrongSize, argument="per", expected=100_000):
        replay.preprocess(same, dest=tmp_path / "out", num_workers=0)
    assert [*tmp_path.glob(".out*")] == []
    replay.preprocess(same, dest=tmp_path / "out", num_workers=0, per="transition")


def test_a_run_that_fails_before_anything_is_done_leaves_no_folder(
    replay: ExperienceReplay, tmp_path: Path
) -> None:
    tried = tmp_path / "tried"

    def fails_after_the_trial(batch: TensorDict) -> TensorDict:
        if tried.exists():
            raise ValueError("now")
        tried.touch()
        return batch

    with pytest.raises(RldsError, match="now"):
        replay.preprocess(fails_after_the_trial, dest=tmp_path / "out", num_workers=0)
    assert tried.exists() and [*tmp_path.glob(".out.*.partial")] == []


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(origin, "rows_per_block", lambda row_bytes: 2)
    return write(tmp_path, "ted", steps_of("abc", (2, 2, 2)))


def fails_late(batch: TensorDict) -> TensorDict:
    if int(batch["episode"][-1]) == 2:
        raise ValueError("on purpose")
    return batch.select("episode")


def test_a_failed_run_into_a_temporary_folder_leaves_nothing_beside_it(
    source: Path, tmp_path: Path
) -> None:
    """No later call has that name, and so none could continue or sweep what is left."""
    before = sorted(tmp_path.iterdir())
    with (
        tempfile.TemporaryDirectory(dir=tmp_path) as dest,
        pytest.raises(RldsError, match="on purpose"),
    ):
        preprocess(source, fails_late, Path(dest), num_workers=0)
    assert sorted(tmp_path.iterdir()) == before


def test_a_failed_run_to_a_new_folder_leaves_what_the_same_call_continues(
    source: Path, tmp_path: Path
) -> None:
    before = {*tmp_path.iterdir()}
    with pytest.raises(RldsError, match="on purpose"):
        preprocess(source, fails_late, tmp_path / "out", num_workers=0)
    (left,) = {*tmp_path.iterdir()} - before
    assert left.name.endswith(".partial"), "and no lock"


PARENT = {"id": "d4rl/x-v0", "content": "0"}
FUNCTION = {"name": "my.code.half", "digest": "0"}
VIEW = {"view": "ending_before.filter"}
MADE = "rlds preprocess d4rl/x-v0 --name y"


def derived(function: Any = FUNCTION, **parent: Any) -> Manifest:
    return Manifest(
        id="derived/y",
        layout="ted",
        num_transitions=3,
        num_trajectories=1,
        columns=(),
        files={},
        parent={**PARENT, **parent},
        function=function,
        arguments={"num_frames": 3, "chunksize": 2, "per": "transition"},
        seed=7,
    )


@pytest.mark.parametrize(
    ("manifest", "command"),
    [
        (
            derived(),
            f"{MADE} --fn my.code:half --seed 7 --num 3 --per transition --chunksize 2",
        ),
        (
            derived(**VIEW, where="return > 3"),
            f"{MADE} --fn my.code:half --where 'return > 3' --seed 7 --num 3 "
            "--per transition --chunksize 2",
        ),
        (
            derived({**FUNCTION, "pipeline": {"n_step": 2, "normalise": True, "cast": ["a", "b"]}}),
            f"{MADE} --n-step 2 --normalise --cast a --cast b --seed 7 --num 3 "
            "--per transition --chunksize 2",
        ),
        (
            derived(layout="compact"),
            f"{MADE} --fn my.code:half --seed 7 --num 3 --per transition --chunksize 2 "
            "--layout ted",
        ),
        (derived(**VIEW), ""),
        *(
            (derived({**FUNCTION, "name": name}), "")
            for name in ("f.<locals>.<lambda>", "__main__.half", "half", "")
        ),
        (derived({}), ""),
    ],
)
def test_the_command_is_the_one_that_made_it(manifest: Manifest, command: str) -> None:
    assert command_of(manifest) == command
