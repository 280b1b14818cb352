"""Reads rows of the ``ted`` layout: one mapped file for each leaf."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch

from datasets_cli.schema.bits import (
    bits_dtype,
    checked_numbers,
    join_tensors,
    take,
    to_array,
    torch_dtype,
)
from datasets_cli.schema.columns import Column, Key, successor_of
from datasets_cli.schema.mapping import DeviceOptions, MappedFiles, sent
from datasets_cli.schema.shapes import check_run
from datasets_cli.schema.tree import Tree, TreePlan
from datasets_cli.store.layouts.gathered import AsTensor, GatheredLeaves, as_tensor_of


class LeafRows:
    """The leaf files of a dataset."""

    def __init__(
        self,
        files: MappedFiles,
        columns: Sequence[Column],
        num_rows: int,
        device_options: DeviceOptions,
    ) -> None:
        self._device, self._num_rows = files.device, num_rows
        self._to_output, self._moves = device_options.to_output, device_options.moves
        keys = [column.key for column in columns]
        self._plan = TreePlan(keys)
        self._slots = [self._plan.slots[key] for key in keys]
        self._dtypes = {column.key: torch_dtype(column.dtype) for column in columns}
        # In dtypes that torch can move; see `bits_dtype`.
        self._bits = {
            column.key: files.load(
                column.filename, bits_dtype(self._dtypes[column.key]), (num_rows, *column.shape)
            )
            for column in columns
        }

    @cached_property
    def _arrays(self) -> list[np.ndarray]:
        """The leaves as numpy arrays of the same memory; created for the first rows."""
        return [to_array(bits.view(self._dtypes[key])) for key, bits in self._bits.items()]

    @cached_property
    def _as_tensor(self) -> AsTensor:
        return as_tensor_of(array.dtype for array in self._arrays)

    def gather(self, index: torch.Tensor) -> Tree:
        """Return copies ``[B, ...]`` of the rows ``index`` int64 ``[B]``, as a nested dict."""
        if not self._moves:
            return self.read(index).tree(0, len(index))
        index = sent(index, self._device)
        nodes = self._plan.new()
        for (key, bits), (node, name) in zip(self._bits.items(), self._slots, strict=True):
            rows = self._to_output(bits.index_select(0, index))
            nodes[node][name] = rows.view(self._dtypes[key])
        return nodes[0]

    def run(self, start: int, stop: int) -> Tree:
        if self._moves:
            return self.gather(torch.arange(start, stop))
        check_run(start, stop, self._num_rows)
        leaves = [array[start:stop].copy() for array in self._arrays]
        rows = GatheredLeaves(self._plan, self._slots, leaves, stop - start, self._as_tensor)
        return rows.tree(0, stop - start)

    def read(self, index: torch.Tensor) -> GatheredLeaves:
        numbers = checked_numbers(index, self._num_rows)
        leaves = [array.take(numbers, 0, None, "clip") for array in self._arrays]
        return GatheredLeaves(self._plan, self._slots, leaves, len(index), self._as_tensor)

    def history(
        self, key: Key, index: torch.Tensor, age: torch.Tensor, length: int
    ) -> torch.Tensor:
        if self._device is not None:
            index, age = index.to(self._device), age.to(self._device)
        # Step n before the row is row - n, but not before the first of the trajectory: row - age.
        back = torch.arange(length - 1, -1, -1, device=index.device)
        steps = index.unsqueeze(1) - torch.minimum(back, age.unsqueeze(1))
        leaf, following = self._bits[key], self._bits[successor_of(key)]
        past = take(leaf, steps.view(-1)).view(*steps.shape, *leaf.shape[1:])
        run = join_tensors([past, take(following, index).unsqueeze(1)], dim=1)
        return self._to_output(run).view(self._dtypes[key])
