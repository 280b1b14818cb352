"""The rows of the ``ted`` layout: one mapped file per leaf, the same rows gathered of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import torch

from datasets_cli.schema.bits import bits_dtype, to_array, torch_dtype
from datasets_cli.schema.columns import Column, Key, successor_of
from datasets_cli.schema.element_types import numpy_dtype
from datasets_cli.schema.mapping import DeviceOptions, MappedFiles
from datasets_cli.schema.tree import Tree, TreePlan
from datasets_cli.store.layouts.gathered import GatheredLeaves

# Copies from this size on, in bytes, are torch's: its threads pay.
THREADED_BYTES = 128 << 10


class RowGather:
    """Copies of the same rows of several tensors."""

    # numpy's `take` is up to twice as fast as torch's `index_select` where there is little to copy,
    # but it takes -1 for the last row, or for the first.
    # tensors: `[N, ...]` of one N, of types that torch can move. Their memory stays where it is:
    # what moves it, as sending them to another process does, leaves numpy's behind.

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        takes = [_take_of(tensor) for tensor in tensors]
        self._is_mixed = any(takes)
        if self._is_mixed:
            # torch gathers the least of them, and refuses numbers that are not rows for all.
            taken = [number for number, take in enumerate(takes) if take is not None]
            takes[min(taken, key=lambda number: _cost_of_check(tensors[number]))] = None
        self._columns = [
            (tensor, take, THREADED_BYTES // max(1, tensor[:1].nbytes))
            for tensor, take in zip(tensors, takes, strict=True)
        ]

    def rows(self, index: torch.Tensor) -> list[torch.Tensor]:
        """Return copies ``[B, ...]`` of the rows ``index`` int64 ``[B]`` of every tensor."""
        if not self._is_mixed:
            return [tensor.index_select(0, index) for tensor, _, _ in self._columns]
        numbers, size = index.numpy(), len(index)
        return [
            # "clip" is the mode that checks least
            tensor.index_select(0, index)
            if take is None or size > most_rows
            else torch.from_numpy(take(numbers, 0, None, "clip"))
            for tensor, take, most_rows in self._columns
        ]

    def arrays(self, index: torch.Tensor) -> list[np.ndarray]:
        """Return the rows as ``rows`` does, in numpy's memory; see ``to_array`` for its types."""
        numbers, size = index.numpy(), len(index)
        return [
            to_array(tensor.index_select(0, index))
            if take is None or size > most_rows
            else take(numbers, 0, None, "clip")
            for tensor, take, most_rows in self._columns
        ]


def _take_of(tensor: torch.Tensor) -> Callable[..., np.ndarray] | None:
    """Return what takes rows of the same memory in numpy; None where numpy cannot."""
    # Of rows of no bytes torch checks no numbers; numpy does not have bfloat16.
    if tensor.device.type != "cpu" or not tensor.nbytes or tensor.dtype == torch.bfloat16:
        return None
    return tensor.numpy().take


def _cost_of_check(tensor: torch.Tensor) -> tuple[bool, int]:
    """Return what is least for the tensor that torch checks the numbers on."""
    # torch raises RuntimeError in place of IndexError on [N, 1].
    return tensor.ndim > 1 and len(tensor) == tensor.numel(), tensor.nbytes


class LeafRows:
    """The leaf files of a dataset."""

    def __init__(
        self,
        files: MappedFiles,
        columns: tuple[Column, ...],
        num_rows: int,
        device_options: DeviceOptions,
    ) -> None:
        self._device, self._pinned = files.device, device_options.pin_memory
        self._to_output = device_options.to_output
        self._plan = TreePlan(column.key for column in columns)
        self._bits: dict[Key, torch.Tensor] = {}
        self._dtypes = {column.key: torch_dtype(column.dtype) for column in columns}
        # The type that the bits are viewed as, None where torch can gather it, and the slot.
        self._leaves: list[tuple[torch.dtype | None, int, str]] = []
        for column in columns:
            dtype = self._dtypes[column.key]
            moved = bits_dtype(dtype)
            self._bits[column.key] = files.load(column.filename, moved, (num_rows, *column.shape))
            self._leaves.append((None if moved == dtype else dtype, *self._plan.slots[column.key]))
        self._slots = [(node, name) for _, node, name in self._leaves]
        self._array_types = [
            None if dtype is None else numpy_dtype(column.dtype)
            for column, (dtype, _, _) in zip(columns, self._leaves, strict=True)
        ]

    @cached_property
    def _gather(self) -> RowGather:
        """Made for the first rows, and not at opening."""
        return RowGather(list(self._bits.values()))

    def gather(self, index: torch.Tensor) -> Tree:
        """Return copies ``[B, ...]`` of the rows ``index`` int64 ``[B]``, as a nested dict."""
        if self._device is not None:
            index = index.to(self._device)
        nodes = self._plan.new()
        for rows, (dtype, node, name) in zip(self._gather.rows(index), self._leaves, strict=True):
            moved = self._to_output(rows) if self._pinned else rows
            nodes[node][name] = moved if dtype is None else moved.view(dtype)
        return nodes[0]

    def read(self, index: torch.Tensor) -> GatheredLeaves:
        """Return the rows ``index`` int64 ``[B]`` of leaves in memory; see ``dataset.Rows``."""
        leaves = [
            rows if dtype is None else rows.view(dtype)
            for rows, dtype in zip(self._gather.arrays(index), self._array_types, strict=True)
        ]
        return GatheredLeaves(self._plan, self._slots, leaves, len(index))

    def history(
        self, key: Key, index: torch.Tensor, age: torch.Tensor, length: int
    ) -> torch.Tensor:
        """Return the last steps of a leaf and the one that follows; see ``dataset.Rows``."""
        if self._device is not None:
            index, age = index.to(self._device), age.to(self._device)
        # Step n before the row is row - n, but never before the trajectory's first: row - age.
        back = torch.arange(length - 1, -1, -1, device=index.device)
        steps = index.unsqueeze(1) - torch.minimum(back, age.unsqueeze(1))
        leaf, following = self._bits[key], self._bits[successor_of(key)]
        run = leaf.new_empty((len(index), length + 1, *leaf.shape[1:]))
        run[:, :-1] = leaf.index_select(0, steps.view(-1)).view(len(index), length, *leaf.shape[1:])
        run[:, -1] = following.index_select(0, index)
        return self._to_output(run).view(self._dtypes[key])
