"""The arguments of preprocess() under TorchRL's names: each has a meaning, or is refused."""

from __future__ import annotations

import json
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import ExperienceReplay
from datasets_cli.cli.main import main
from datasets_cli.errors import RldsError, Unsupported, UsageError
from datasets_cli.parallel.tasks import CallingProcess
from datasets_cli.preprocessing import origin
from datasets_cli.preprocessing.pipeline import Pipeline


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
    monkeypatch.setattr(origin, "rows_per_block", lambda row_bytes: 400)
    with ThreadPool(1) as threads:
        right = replay[:].map(alone, 0, chunksize=0, pool=threads)
    options: dict[str, Any] = {"chunksize": 0, "num_workers": num_workers}
    made = replay.preprocess(alone, dest=tmp_path / "out", **options)
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
