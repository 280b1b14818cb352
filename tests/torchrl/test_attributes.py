"""Attributes of samplers, storages and trajectories that TorchRL's users read."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDict

from datasets_cli.errors import Unsupported
from datasets_cli.replay.storages import process_lock as processes
from tests.support.parity import ours, theirs

KEYS: list[dict[str, Any]] = [
    {},
    {"traj_key": "episode"},
    {"traj_key": ("a", "b")},
    {"end_key": "done"},
    {"end_keys": ["a", ("next", "b")]},
]


@pytest.mark.parametrize("keys", KEYS)
def test_a_sampler_of_slices_says_where_trajectories_are(keys: dict[str, Any]) -> None:
    keys_found = [
        (made.traj_key, made.end_key, made.end_keys)
        for made in (library.SliceSampler(slice_len=2, **keys) for library in (ours, theirs))
    ]
    assert keys_found[0] == keys_found[1]


@pytest.mark.parametrize("keys", [{}, {"end_key": ("next", "done")}])
@pytest.mark.parametrize("columns", [["traj_ids", "episode"], ["episode"], []])
def test_a_sampler_says_which_numbers_it_found(columns: list[str], keys: dict[str, Any]) -> None:
    numbers = torch.arange(6) // 3
    rows = TensorDict({"next": {"done": torch.tensor([[False], [False], [True]] * 2)}}, [6])
    for name in columns:
        rows[("collector", name) if name == "traj_ids" else name] = numbers
    numbers_found = []
    for library in (ours, theirs):
        sampler = library.SliceSampler(slice_len=2, **keys)
        buffer = library.ReplayBuffer(
            storage=library.LazyTensorStorage(6), sampler=sampler, batch_size=4
        )
        buffer.extend(rows)
        before = sampler.traj_key
        buffer.sample()
        numbers_found.append((before, sampler.traj_key))
    assert numbers_found[0] == numbers_found[1] and numbers_found[0][0] is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_a_total_reward_has_the_type_of_the_rewards(dtype: torch.dtype) -> None:
    rows = TensorDict({"next": {"reward": torch.arange(6).to(dtype)}}, [6])
    total = ours.Trajectory(rows).total_reward
    expected = theirs.Trajectory(data=rows, batch_size=[]).total_reward
    assert total.dtype == expected.dtype and total == expected


KINDS = "LazyTensorStorage LazyMemmapStorage ListStorage CompressedListStorage StorageEnsemble"


@pytest.mark.parametrize("kind", KINDS.split())
def test_a_checkpointer_of_a_storage_is_refused(kind: str) -> None:
    storage = getattr(ours, kind)(ours.ListStorage(6) if kind == "StorageEnsemble" else 6)
    storage.checkpointer = None
    with pytest.raises(Unsupported) as caught:
        storage.checkpointer = 3
    assert (caught.value.argument, caught.value.found) == ("checkpointer", 3)
    assert str(caught.value).startswith(kind)


def test_the_end_of_a_program_closes_locks_silently(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lock").touch()
    lock = processes.ProcessLock(tmp_path / "lock")
    with lock:
        pass
    monkeypatch.setattr(processes, "os", None)
    lock.__del__()  # as once the module has been taken apart
    lock._file = None
    processes.ProcessLock.__new__(processes.ProcessLock).__del__()


@pytest.mark.parametrize("kind", ["LazyTensorStorage", "LazyMemmapStorage"])
def test_the_size_of_a_storage_is_that_of_its_whole_steps_once_rows_are_there(kind: str) -> None:
    sizes = []
    for library in (ours, theirs):
        buffer = library.ReplayBuffer(storage=getattr(library, kind)(7, ndim=2), batch_size=2)
        before = buffer.storage.max_size
        buffer.extend(TensorDict({"a": torch.arange(12).view(4, 3)}, [4, 3]))
        sizes.append((before, buffer.storage.max_size))
    assert sizes == [(7, 8), (7, 8)]
    filled = ours.ReplayBuffer(storage=ours.LazyTensorStorage(7, ndim=2))
    filled.extend(TensorDict({"a": torch.arange(12).view(4, 3)}, [4, 3]))
    for size in (7, 8):
        again = ours.ReplayBuffer(storage=ours.LazyTensorStorage(size, ndim=2))
        again.load_state_dict(filled.state_dict())
        assert (again[:]["a"] == filled[:]["a"]).all()
