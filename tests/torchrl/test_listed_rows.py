"""Lazy stacks of TensorDicts and lists of structures are written as TorchRL writes them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import LazyStackedTensorDict, TensorDict

from datasets_cli.errors import UsageError
from tests.support.parity import ours, theirs


def episode(length: int, *more: str) -> TensorDict:
    steps = torch.arange(length) + 10.0 * length
    return TensorDict({name: steps.clone() for name in ("a", *more)}, [])


def ragged() -> LazyStackedTensorDict:
    return LazyStackedTensorDict(episode(2), episode(5), episode(3, "b"))


def by_rows() -> LazyStackedTensorDict:
    """Rows ``[4, 3]``: each of four is a stack of three."""
    grid = torch.arange(24).view(4, 3, 2)
    return LazyStackedTensorDict(
        *(LazyStackedTensorDict(*(TensorDict({"a": c}, []) for c in row)) for row in grid)
    )


def by_columns() -> LazyStackedTensorDict:
    grid = torch.arange(24).view(4, 3, 2)
    parts = [TensorDict({"a": grid[:, column]}, [4]) for column in range(3)]
    return LazyStackedTensorDict(*parts, stack_dim=1)


def written(library: Any, storage: str, data: Any, **words: Any) -> Any:
    buffer = library.ReplayBuffer(storage=getattr(library, storage)(9, **words), batch_size=50)
    buffer.extend(data)
    return buffer


@pytest.mark.parametrize("as_list", [True, False])
@pytest.mark.parametrize("storage", ["ListStorage", "LazyStackStorage"])
def test_ragged_rows_stay_apart(storage: str, as_list: bool) -> None:
    data = [*ragged().unbind(0)] if as_list else ragged()
    for library in (ours, theirs):
        buffer = written(library, storage, data)
        for row, length in enumerate((2, 5, 3)):
            right = ragged()[row]
            assert {*buffer[row].keys()} == {*right.keys()}
            assert torch.equal(buffer[row]["a"], right["a"]) and len(right["a"]) == length
        batch = buffer.sample()  # of rows of one length alone ours would be a TensorDict
        assert isinstance(batch, LazyStackedTensorDict)
        assert all(len(one["a"]) == int(one["a"][0]) // 10 for one in batch.unbind(0))


def test_ragged_rows_do_not_fit_into_one_tensor() -> None:
    for library, kinds in ((ours, UsageError), (theirs, RuntimeError)):
        with pytest.raises(kinds):
            written(library, "LazyTensorStorage", ragged())


@pytest.mark.parametrize("make", [by_rows, by_columns])
@pytest.mark.parametrize("storage", ["ListStorage", "LazyTensorStorage", "LazyMemmapStorage"])
def test_lazy_stacks_of_two_dimensions_are_rows_of_several(storage: str, make: Any) -> None:
    grid = torch.arange(24).view(4, 3, 2)
    for library in (ours, theirs):
        buffer = written(library, storage, make())
        assert len(buffer) == 4 and buffer[2].batch_size == (3,)
        assert torch.equal(torch.as_tensor(buffer[:]["a"]), grid)
        batch, info = buffer.sample(return_info=True)
        assert torch.equal(batch["a"], grid[torch.as_tensor(info["index"])])


@pytest.mark.parametrize("make", [by_rows, by_columns])
def test_lazy_stacks_are_environments_side_by_side(make: Any) -> None:
    for library in (ours, theirs):
        buffer = written(library, "LazyTensorStorage", make(), ndim=2)
        assert len(buffer) == 12
        assert torch.equal(buffer[:]["a"], torch.arange(24).view(4, 3, 2))


@pytest.mark.parametrize("storage", ["ListStorage", "LazyTensorStorage", "LazyMemmapStorage"])
def test_lists_of_structures_are_rows(storage: str) -> None:
    items = [{"a": torch.full((2,), n), "b": (torch.tensor(n), [torch.ones(1)])} for n in range(5)]
    for library in (ours, theirs):
        buffer = written(library, storage, [*items])
        assert len(buffer) == 5
        batch, info = buffer.sample(return_info=True)
        index = torch.as_tensor(info["index"])
        assert torch.equal(batch["a"], index.unsqueeze(1).expand(-1, 2))
        assert torch.equal(batch["b"][0], index) and batch["b"][1][0].shape == (50, 1)
