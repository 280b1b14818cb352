"""tensordict's folders: read by tensordict and TorchRL, and read from what they wrote."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tensordict import NonTensorStack, TensorDict
from torchrl.data import LazyMemmapStorage, SliceSampler, TensorDictReplayBuffer, TensorStorage

import datasets_cli
from datasets_cli import create_dataset, export_dataset, import_dataset, plan_import
from datasets_cli.config import Config
from datasets_cli.errors import IntegrityError, SourceError, UnknownKey, UsageError
from tests.exchange.made_steps import leaf_files


def export(id: str, folder: Path, config: Config) -> Path:
    return export_dataset(id, "torchrl", folder, config=config, allow_loss=True, force=True).path


def test_torchrl_samples_whole_trajectories(config: Config, tmp_path: Path) -> None:
    datasets_cli.download("demo/door-human", config=config)
    rows = TensorDict.load_memmap(export("demo/door-human", tmp_path / "door", config))
    sampler = SliceSampler(num_slices=4, traj_key="episode")
    buffer = TensorDictReplayBuffer(storage=TensorStorage(rows), sampler=sampler, batch_size=40)
    batch = buffer.sample().reshape(4, 10)
    assert (batch["episode"] == batch["episode"][:, :1]).all()
    assert batch["observation"][:, 1:].equal(batch["next", "observation"][:, :-1])


def test_types_that_numpy_lacks_and_names_that_folders_lack_are_kept(
    config: Config, tmp_path: Path
) -> None:
    halves = torch.arange(8).reshape(4, 2).to(torch.bfloat16)
    bits = halves.view(torch.int16).numpy().tobytes()
    steps = {
        "observation": np.frombuffer(bits, [("bfloat16", "<u2")]).reshape(4, 2),
        "action": {"shape": np.arange(4), "a/b %": np.ones(4, np.int8)},
        "reward": np.zeros(4),
        ("info", "none"): np.zeros((4, 0)),
    }  # fmt: skip
    create_dataset("mine/odd", steps, lengths=[4], config=config)
    told = export_dataset("mine/odd", "torchrl", tmp_path / "odd", config=config, allow_loss=True)
    assert [loss.partition(":")[0] for loss in told.losses] == ["final steps", "info.none"]
    rows = TensorDict.load_memmap(tmp_path / "odd")
    assert rows["observation"].equal(halves[:3])
    import_dataset(tmp_path / "odd", "mine/again", config=config)
    again = datasets_cli.ExperienceReplay("mine/again", root=config.root)[:]
    assert again["observation"].equal(halves[:3])
    assert again["action", "shape"].tolist() == [0, 1, 2]
    assert again["action", "a/b %"].dtype == torch.int8


def theirs(folder: Path, count: int = 6) -> TensorDict:
    rows = TensorDict(
        {
            "obs": torch.randn(count, 3),
            "actions": torch.arange(count),
            "rewards": torch.randn(count),
            "terminals": torch.tensor([False, False, True] * (count // 3)),
            "task": NonTensorStack(*"abcdef"[:count]),
            "ids": torch.arange(count) // 3,
        },
        [count],
    )
    rows.memmap(folder)
    return rows


def test_a_folder_of_others_is_read_by_names_and_a_map(config: Config, tmp_path: Path) -> None:
    rows = theirs(tmp_path / "theirs")
    with pytest.raises(UnknownKey) as raised:
        plan_import(tmp_path / "theirs", "mine/theirs")
    assert raised.value.key == "ends"
    given = {"path": tmp_path / "theirs", "id": "mine/theirs", "map": {"episode": "ids"}}
    plan = plan_import(**given)
    assert (plan.format, plan.map["observation"]) == ("torchrl", "obs")
    assert plan.dropped == ("task: it is not a tensor",)
    import_dataset(**given, layout="ted", config=config)
    found = leaf_files("mine/theirs", config)
    assert found["observation",].tobytes() == rows["obs"].numpy().tobytes()
    assert found["next", "terminated"][:, 0].tolist() == rows["terminals"].tolist()


def test_a_storage_that_is_not_full_has_the_rows_that_were_written(
    config: Config, tmp_path: Path
) -> None:
    buffer = TensorDictReplayBuffer(storage=LazyMemmapStorage(50))
    rows = theirs(tmp_path / "theirs").exclude("task")
    buffer.extend(rows)
    buffer.dumps(tmp_path / "dump")
    given = {"path": tmp_path / "dump" / "storage", "id": "mine/part", "map": {"ends": "terminals"}}
    assert plan_import(**given).notes[0].startswith("6 rows")
    made = import_dataset(**given, config=config)
    assert (made.num_transitions, made.num_trajectories) == (6, 2)


@pytest.mark.parametrize("count", [5, 8, 11, 16, 20])
def test_a_full_storage_is_read_from_its_oldest_row_on(
    config: Config, tmp_path: Path, count: int
) -> None:
    times = torch.arange(count)
    steps = {"obs": times, "action": times, "rewards": times.double()}
    last = times % 4 == 3  # the newest trajectory may not have ended
    rows = TensorDict({**steps, "terminated": last, "truncated": last & False}, [count])
    buffer = TensorDictReplayBuffer(storage=LazyMemmapStorage(8))
    for part in rows.split(3):
        buffer.extend(part)
    buffer.dumps(tmp_path / "dump")
    import_dataset(tmp_path / "dump" / "storage", "mine/ring", layout="ted", config=config)
    found, kept = leaf_files("mine/ring", config), times[-8:]
    cut = [] if last[-1] else [count - 1]  # it has no successor
    assert found["observation",].tolist() == [n for n in kept.tolist() if n not in cut]
    follows = np.diff(found["observation",]) == 1
    assert (follows | found["next", "done"][:-1, 0]).all() and follows.all()


@pytest.mark.parametrize("change", [Path.unlink, lambda path: path.write_text("{}")])
def test_a_full_storage_without_its_writer_needs_to_be_told_where_trajectories_end(
    config: Config, tmp_path: Path, change: Callable[[Path], Any]
) -> None:
    rows = theirs(tmp_path / "theirs").exclude("task").set("truncated", torch.zeros(6, dtype=bool))
    buffer = TensorDictReplayBuffer(storage=LazyMemmapStorage(6))
    buffer.extend(rows)
    buffer.dumps(tmp_path / "dump")
    change(tmp_path / "dump" / "writer" / "metadata.json")
    given = {"path": tmp_path / "dump" / "storage", "id": "mine/ring", "config": config}
    with pytest.raises(UsageError) as raised:
        import_dataset(**given)
    assert raised.value.argument == "map" and "ends=COLUMN" in str(raised.value.advice)
    assert import_dataset(**given, map={"episode": "ids"}).num_trajectories == 2


def _link(folder: Path) -> None:
    (folder / "obs.memmap").rename(folder.parent / "elsewhere")
    (folder / "obs.memmap").symlink_to(folder.parent / "elsewhere")


def _meta(folder: Path, **entries: Any) -> None:
    known = json.loads((folder / "meta.json").read_text())
    (folder / "meta.json").write_text(json.dumps({**known, **entries}))


def _batch(folder: Path) -> None:
    shutil.rmtree(folder)
    TensorDict({"obs": torch.zeros(3, 2), "reward": torch.zeros(3, 2)}, [3, 2]).memmap(folder)


WRONG: dict[str, tuple[Callable[[Path], Any], type[Exception]]] = {
    "truncated": (lambda f: os.truncate(f / "obs.memmap", 10), SourceError),
    "missing": (lambda f: (f / "obs.memmap").unlink(), SourceError),
    "a link": (_link, SourceError),
    "no JSON": (lambda f: (f / "meta.json").write_text("{"), SourceError),
    "no meta": (lambda f: (f / "meta.json").unlink(), UsageError),
    "a class": (lambda f: _meta(f, _type="<class 'os.system'>"), UsageError),
    "two dimensions": (_batch, UsageError),
    "outside": (lambda f: _meta(f, **{"../x": {"type": "TensorDict"}}), IntegrityError),
    "no row": (lambda f: TensorDict({"obs": torch.zeros(0, 2)}, [0]).memmap(f), IntegrityError),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_folders_make_nothing(config: Config, tmp_path: Path, wrong: str) -> None:
    theirs(tmp_path / "theirs")
    change, error = WRONG[wrong]
    change(tmp_path / "theirs")
    with pytest.raises(error):
        import_dataset(tmp_path / "theirs", "mine/x", map={"episode": "ids"}, config=config)
    assert not list(config.root.glob("datasets/*/*")) and not list(config.root.glob("tmp/*"))


def test_what_was_pickled_is_not_opened(config: Config, tmp_path: Path) -> None:
    theirs(tmp_path / "theirs")
    (tmp_path / "theirs" / "task" / "other.pickle").write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    (tmp_path / "theirs" / "task" / "meta.json").write_text("no JSON")
    plan = plan_import(tmp_path / "theirs", "mine/x", map={"ends": "terminals"})
    assert plan.dropped == ("ids: no key is mapped to it", "task: it is not a tensor")
