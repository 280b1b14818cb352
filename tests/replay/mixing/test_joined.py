"""Several datasets written as one: values equal to the inputs, in their order."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from datasets_cli import ExperienceReplay, LazyTensorStorage, Mixture, TensorDictReplayBuffer
from datasets_cli.cli.main import main
from datasets_cli.config import Config
from datasets_cli.errors import NotWritable
from datasets_cli.replay import Member
from datasets_cli.replay.mixing import mixture
from datasets_cli.replay.storages.dataset import DatasetStorage
from tests.support.refusals import refused

EPISODE = ("episode",)


def rows_of(id: str) -> DatasetStorage:
    return ExperienceReplay(id, text=True).storage


def listed(storage: DatasetStorage, key: tuple[str, ...]) -> list[object]:
    """Return a column as bytes of each row, or as text."""
    values = storage.column(key)
    return [row.numpy().tobytes() for row in values] if torch.is_tensor(values) else values


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixture, "rows_per_block", lambda row_bytes: 100)
    monkeypatch.setenv("RLDS_OFFLINE", "1")


@pytest.mark.parametrize(
    ("name", "layout"), [("door-minari", "compact"), ("iris", "ted"), ("pong", "compact")]
)
def test_a_joined_dataset_has_the_rows_of_the_others(
    name: str, layout: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also the second half of one: its rows begin within what the first had."""
    assert main(["download", f"demo/{name}", "--layout", layout, "-q"]) == 0
    half = ["preprocess", f"demo/{name}", "--where", "number >= 1", "--name", "rest", "-q"]
    ids = [f"demo/{name}", "derived/rest"]
    assert main(half) == 0 or name == "pong"  # which is one trajectory
    ids = ids[: 1 if name == "pong" else 2]
    capsys.readouterr()
    assert main(["preprocess", *ids, "--name", "mine/both", "--json", "-q"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == "mine/both"
    parts, made = [rows_of(id) for id in ids], rows_of("mine/both")
    assert {*parts[0].dataset.keys} == {*made.dataset.keys}
    for key in {*made.dataset.keys} - {EPISODE}:
        assert listed(made, key) == [row for part in parts for row in listed(part, key)], key
    lengths = np.concatenate([np.diff(part.offsets) for part in parts])
    assert np.diff(made.offsets).tolist() == lengths.tolist()
    assert (
        made.column(EPISODE).flatten().tolist()
        == np.repeat(np.arange(len(lengths)), lengths).tolist()
    )
    members = made.dataset.manifest.metadata["members"]
    assert [each["content"] for each in members] == [p.dataset.manifest.content for p in parts]


def test_members_may_be_mapped_and_views_may_cut_trajectories(door: str, config: Config) -> None:
    replay = ExperienceReplay(door, root=config.root)
    cut = replay.filter("no-timeouts")
    scaled = Member(ExperienceReplay(door, root=config.root), scale={"action": 2.0})
    made = Mixture([cut, scaled]).preprocess("mine/both", root=config.root)
    rows = ExperienceReplay("mine/both", root=config.root)
    action = torch.cat([cut["action"], replay["action"] * 2])
    assert made.num_transitions == len(rows) and torch.equal(rows["action"], action)
    ends = np.cumsum(np.diff(cut.storage.offsets)) - 1
    assert not cut["next", "done"].any() and rows["next", "truncated"][ends].all()


def test_what_cannot_be_joined_is_refused_before_anything_is_written(
    config: Config, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["download", "demo/iris", "demo/pong", "-q"]) == 0
    assert main(["preprocess", "demo/iris", "demo/pong", "--name", "mine/both"]) == 2
    told = capsys.readouterr().err
    assert "rlds preprocess ID --rename" in told and "Member" not in told
    for wrong in (["--cast", "float32"], ["--workers", "2"], ["--name", "x"], ["--dry-run"]):
        assert main(["preprocess", "demo/iris", "--name", "mine/both", *wrong]) == 2, wrong
    assert main(["preprocess", "demo/iris", "--name", "d4rl/both"]) == 2
    assert main(["preprocess", "--name", "mine/both"]) == 2
    assert main(["preprocess", "demo/iris", "--force"]) == 2
    buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(10))
    buffer.extend(ExperienceReplay("demo/iris")[:10])
    with refused(NotWritable, argument="members"):
        Mixture([buffer]).preprocess("mine/both")
    assert not (Path(config.root) / "datasets" / "mine").exists()
