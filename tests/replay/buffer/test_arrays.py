"""Rows as users of numpy have them: nested dicts of arrays, written and loaded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from torch.utils.data import DataLoader

from datasets_cli import (
    ExperienceReplay,
    LazyTensorStorage,
    ListStorage,
    OfflineToOnline,
    ReplayBuffer,
    TensorDictReplayBuffer,
)
from datasets_cli.errors import UnknownKey, WrongRows
from datasets_cli.replay.loaders import whole_batch
from datasets_cli.torchrl import TensorDictPrioritizedReplayBuffer
from tests.support.refusals import refused

ARRAYS: dict[str, Any] = {
    "observation": np.arange(12, dtype=np.float32).reshape(6, 2)[::-1],
    "count": np.arange(6, dtype=">i4"),
    "word": np.array(list("abcdef")),
    "next": {"reward": np.ones((6, 1)), "done": np.zeros((6, 1), bool)},
}


def lazy() -> LazyTensorStorage:
    return LazyTensorStorage(20)


def assert_rows(rows: TensorDict, times: int = 1) -> None:
    for key in ("observation", "count", ("next", "reward"), ("next", "done")):
        array = ARRAYS[key] if isinstance(key, str) else ARRAYS[key[0]][key[1]]
        assert np.array_equal(rows[key].numpy(), np.concatenate([array] * times)), key
    assert rows["word"] == list("abcdef") * times and rows["count"].dtype == torch.int32


@pytest.mark.parametrize(
    "buffer",
    [
        ReplayBuffer,
        lambda: ReplayBuffer(storage=lazy()),
        lambda: TensorDictReplayBuffer(storage=ListStorage(20)),
        lambda: TensorDictReplayBuffer(storage=lazy()),
        lambda: TensorDictPrioritizedReplayBuffer(alpha=0.7, beta=0.5, storage=lazy()),
    ],
)
def test_every_buffer_takes_dicts_of_arrays(buffer: Any) -> None:
    rb = buffer()
    assert rb.extend(ARRAYS).tolist() == [0, 1, 2, 3, 4, 5]
    for row in range(6):
        nested = {name: array[row] for name, array in ARRAYS["next"].items()}
        one = {name: array[row] for name, array in ARRAYS.items() if name != "next"}
        assert rb.add({**one, "next": nested}) == 6 + row
    assert_rows(rb[:], 2)


def test_a_list_keeps_no_array_of_the_users() -> None:
    rb, array = ReplayBuffer(), np.zeros((2, 3))
    rb.extend({"a": array})
    rb.add({"a": array[0]})
    array[:] = 9
    assert not rb[:]["a"].any()
    items = ReplayBuffer(collate_fn=len)
    items.add({"a": array})
    assert items.sample(4) == 4  # a user's function has the user's items


def test_steps_of_several_environments_and_online_rows_are_dicts_too(door: str) -> None:
    grid = TensorDictReplayBuffer(storage=LazyTensorStorage(20, ndim=2))
    grid.extend({"a": np.arange(6).reshape(2, 3)})
    grid.add({"a": np.array([7, 8])})
    assert grid[:]["a"].tolist() == [[0, 1, 2, 7], [3, 4, 5, 8]]
    replay = ExperienceReplay(door, batch_size=4)
    both = OfflineToOnline(replay, TensorDictReplayBuffer(storage=lazy()), batch_size=4)
    both.extend(replay.with_format("numpy")[:5])
    assert torch.equal(both.online[:]["action"], replay[:5]["action"])


def test_a_buffer_is_made_of_arrays() -> None:
    rb = TensorDictReplayBuffer.from_arrays(ARRAYS, batch_size=4)
    assert len(rb) == 6 and rb.sample().batch_size == (4,)
    assert_rows(rb[:])
    other = TensorDictReplayBuffer.from_arrays({"a": torch.arange(3)}, storage=lazy())
    assert (len(other), other.storage.max_size) == (3, 20)
    for wrong in ({}, [1], {"a": 5}):
        with pytest.raises(WrongRows) as caught:
            TensorDictReplayBuffer.from_arrays(wrong)  # type: ignore[arg-type]
        assert caught.value.argument == "arrays"


@pytest.mark.parametrize(
    ("arrays", "attributes"),
    [
        ({"a": np.zeros(3), "b": np.zeros(4)}, {"found": [(3,), (4,)]}),
        ({"a": np.array([object()])}, {"key": ("a",), "found": "object"}),
        ({"a": "text"}, {"argument": "data", "found": "dict"}),
    ],
)
def test_arrays_that_are_not_rows_are_rejected(arrays: Any, attributes: dict[str, Any]) -> None:
    with refused(WrongRows, **attributes):
        TensorDictReplayBuffer(storage=lazy()).extend(arrays)


def test_torchs_own_loader_gives_whole_batches(door: str) -> None:
    replay = ExperienceReplay(door)
    for workers in (0, 1):
        loader: Any = DataLoader(replay, batch_size=64, num_workers=workers)  # type: ignore[arg-type]
        batch = next(iter(loader))
        assert torch.equal(batch["next", "observation"], replay[:64]["next", "observation"])
    arrays: Any = replay.with_format("numpy")
    with pytest.raises(UnknownKey) as caught:
        next(iter(DataLoader(arrays, batch_size=4)))
    assert "collate_fn=datasets_cli.replay.loaders.whole_batch" in (caught.value.advice or "")
    batch = next(iter(DataLoader(arrays, batch_size=4, collate_fn=whole_batch)))
    single: Any = DataLoader(replay, batch_size=None, collate_fn=whole_batch)  # type: ignore[arg-type]
    assert torch.equal(next(iter(single))["action"], replay[0]["action"])
    assert np.array_equal(batch["action"], replay[:4]["action"].numpy())
