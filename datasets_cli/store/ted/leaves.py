"""The rows of the ``ted`` layout: one mapped file per leaf, one gather per leaf."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import torch

from datasets_cli.store.schema.bits import bits_dtype, to_array, torch_dtype
from datasets_cli.store.schema.columns import Column, Key, successor_of
from datasets_cli.store.schema.device_options import DeviceOptions
from datasets_cli.store.schema.mapping import Files
from datasets_cli.store.schema.tree import Slot, Tree, TreePlan
from datasets_cli.store.ted.block import Block, check_rows, take_rows


class LeafRows:
    """The leaf files of a dataset.

    Args:
        files: those of the dataset folder.
        columns: every leaf.
        num_rows: transitions N.
        device_options: where batches go.
    """

    def __init__(
        self,
        files: Files,
        columns: tuple[Column, ...],
        num_rows: int,
        device_options: DeviceOptions,
    ) -> None:
        self._device, self._pinned = files.device, device_options.pin_memory
        self._to_output = device_options.to_output
        self._num_rows = num_rows
        self._columns = columns
        self._plan = TreePlan(column.key for column in columns)
        self._bits: dict[Key, torch.Tensor] = {}
        self._leaves: list[tuple[torch.Tensor, int, str]] = []
        # Those of types that torch cannot gather, with the type that their bits are viewed as.
        self._unmovable: list[tuple[torch.Tensor, torch.dtype, int, str]] = []
        for column in columns:
            dtype = torch_dtype(column.dtype)
            moved = bits_dtype(dtype)
            leaf = files.load(column.filename, moved, (num_rows, *column.shape))
            self._bits[column.key] = leaf
            slot = self._plan.slot(column.key)
            if moved == dtype:
                self._leaves.append((leaf, *slot))
            else:
                self._unmovable.append((leaf, dtype, *slot))
        self._dtypes = {column.key: torch_dtype(column.dtype) for column in columns}

    def gather(self, index: torch.Tensor) -> Tree:
        """Return copies ``[B, ...]`` of the rows ``index`` int64 ``[B]``, as a nested dict."""
        if self._device is not None:
            index = index.to(self._device)
        nodes = self._plan.new()
        for leaf, node, name in self._leaves:
            rows = leaf.index_select(0, index)
            nodes[node][name] = self._to_output(rows) if self._pinned else rows
        for leaf, dtype, node, name in self._unmovable:
            rows = leaf.index_select(0, index)
            nodes[node][name] = (self._to_output(rows) if self._pinned else rows).view(dtype)
        return nodes[0]

    def read(self, index: torch.Tensor) -> Block:
        """Return the rows ``index`` int64 ``[B]`` of leaves in memory; see ``dataset.Rows``."""
        rows = index.numpy()
        check_rows(rows, self._num_rows)
        leaves = [take_rows(leaf, rows) for leaf in self._arrays]
        return Block(self._plan, self._array_slots, leaves, len(rows))

    @cached_property
    def _arrays(self) -> list[np.ndarray]:
        """The mapped leaves in numpy, never given away."""
        return [
            to_array(self._bits[column.key].view(torch_dtype(column.dtype)))
            for column in self._columns
        ]

    @cached_property
    def _array_slots(self) -> list[Slot]:
        return [self._plan.slot(column.key) for column in self._columns]

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
