"""The arguments of preprocess() under TorchRL's names: each has a meaning, or is refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli import ExperienceReplay
from datasets_cli.errors import RldsError, UsageError


@pytest.fixture
def replay(door: str) -> ExperienceReplay:
    return ExperienceReplay(door, batch_size=32)


def size(batch: TensorDict) -> TensorDict:
    """How many rows came at once, and a random number."""
    rows = torch.full((len(batch),), len(batch))
    return TensorDict({"rows": rows, "noise": torch.rand(len(batch))}, batch.batch_size)


@pytest.mark.parametrize(
    ("cut", "sizes"),
    [
        ({"chunksize": 600}, [600, 600, 295]),
        ({"num_chunks": 4, "num_frames": 1001}, [251, 251, 251, 248]),
        ({}, [1495]),
    ],
)
def test_a_chunk_is_what_the_function_takes_at_once(
    replay: ExperienceReplay, tmp_path: Path, cut: dict[str, int], sizes: list[int]
) -> None:
    storage = replay.preprocess(size, 0, 0, dest=tmp_path / "out", **cut)  # type: ignore[arg-type]
    expected = torch.tensor(sizes).repeat_interleave(torch.tensor(sizes))
    assert torch.equal(storage.column(("rows",)), expected)


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
    assert storage.column(("rows",)).unique().tolist() == [95, 700]  # type: ignore[union-attr]


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
    {"chunksize": 0},
    {"num_chunks": 0},
    {"chunksize": 5, "num_chunks": 5},
    {"seed": 1, "generator": torch.Generator()},
]


def test_what_cannot_be_heeded_is_refused(replay: ExperienceReplay, tmp_path: Path) -> None:
    for wrong in WRONG:
        with pytest.raises(UsageError, match=r"dimension|chunks|not both"):
            replay.preprocess(size, dest=tmp_path / "out", **wrong)
    # How TorchRL's workers run: Python names what it does not know.
    for name in ("pool", "max_tasks_per_child", "worker_threads", "index_with_generator"):
        with pytest.raises(TypeError, match=name):
            replay.preprocess(size, dest=tmp_path / "out", **{name: 1})  # type: ignore[arg-type]


def test_a_script_without_a_guard_ends_and_says_so(door: str, tmp_path: Path) -> None:
    """Its workers import it and come upon the same call, whose lock the script holds."""
    script = tmp_path / "script.py"
    script.write_text(
        "from datasets_cli import ExperienceReplay\n"
        f"replay = ExperienceReplay({door!r}, download=False)\n"
        "replay.preprocess(lambda batch: batch, dest='out', num_workers=1)\n"
    )
    command = [sys.executable, str(script)]
    run = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False
    )
    assert run.returncode == 1 and not (tmp_path / "out").exists()
    assert "came upon the same call" in run.stderr
    assert run.stderr.strip().splitlines()[-1].startswith("datasets_cli.errors.RldsError: A worker")
