"""What a sampler says of the rows it drew, and which of it a batch carries."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tensordict import LazyStackedTensorDict, TensorDictBase

from datasets_cli.replay.draws.protocol import Info, Sampler
from datasets_cli.replay.rows.row_numbers import unravel_rows
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.schema.bits import to_tensor
from datasets_cli.schema.columns import Key
from datasets_cli.schema.tree import Tree, entry, put


@dataclass(frozen=True)
class SampleInfo:
    """Which of what is known of a draw its batch carries, where rows are TensorDicts."""

    index: bool = False
    marks: bool = False

    def describe(
        self,
        rows: Tree | TensorDictBase,
        index: torch.Tensor,
        info: Info,
        storage: Storage,
        sampler: Sampler,
    ) -> None:
        """Put into a batch what it carries, and into ``info`` what follows from slice ends."""
        # rows: the batch, or the nested dict of its leaves, `[B]`.
        # index: flat row numbers int64 `[B]`.
        inner: tuple[int, ...] = storage.row_batch_size
        if not isinstance(rows, dict):
            rows = _rows_first(rows)
            inner = rows.batch_size[1:]
            if -1 in inner:
                for part in _parts(rows, index, info):
                    self.describe(*part, storage, sampler)
                return
        numbers = index if storage.ndim == 1 else unravel_rows(storage, index)
        if self.marks and not info and not inner:  # the most common batch, without further steps
            rows["index"] = numbers
            return
        if not inner:
            info.update(slice_flags(rows, sampler, info))
        carried: Info = {("index",): numbers} if self.index or self.marks else {}
        if self.marks:
            carried |= info
        if inner:  # each row has its own batch size: the same all over a row
            carried = {key: expand_to_rows(mark, inner) for key, mark in carried.items()}
            if self.marks:
                carried |= slice_flags(rows, sampler, carried)
        to_output = storage.device_options.to_output  # what follows from others is new memory
        for key, mark in carried.items():
            put(rows, key, to_output(mark))

    def restore(self, batch: Any, index: torch.Tensor, info: Info, storage: Storage) -> None:
        """Put back into a transformed batch what a transform took and priorities need."""
        if not self.marks or not isinstance(batch, TensorDictBase):
            return
        batch = _rows_first(batch)
        if batch.batch_size[:1] != index.shape:
            return
        if -1 in batch.batch_size:
            for part in _parts(batch, index, info):
                self.restore(*part, storage)
            return
        for key, mark in {("index",): unravel_rows(storage, index), **info}.items():
            if len(key) == 1 and key[0] not in batch.keys():  # noqa: SIM118
                batch[key[0]] = expand_to_rows(mark, batch.batch_size[1:])


def _rows_first(rows: Any) -> Any:
    """Return a batch whose first dimension counts rows: what is put into it is in ``rows`` too."""
    # A lazy stack may count them along another one; its rows are the same objects.
    if isinstance(rows, LazyStackedTensorDict) and rows.stack_dim:
        return LazyStackedTensorDict(*rows.tensordicts, stack_dim=0)
    return rows


def _parts(
    rows: LazyStackedTensorDict, index: torch.Tensor, info: Info
) -> Iterator[tuple[LazyStackedTensorDict, torch.Tensor, Info]]:
    """Yield each row as a batch of one: rows whose batch sizes differ have no common marks."""
    for number, row in enumerate(rows.tensordicts):
        own = slice(number, number + 1)
        marks = {key: mark[own] for key, mark in info.items()}
        yield LazyStackedTensorDict(row, stack_dim=0), index[own], marks


def expand_to_rows(mark: torch.Tensor, row_batch_size: tuple[int, ...]) -> torch.Tensor:
    """Return one entry a row ``[B, ...]`` for all of each row: ``[B, *row_batch_size, ...]``."""
    # mark: one entry a row `[B, ...]`.
    for _ in row_batch_size:
        mark = mark.unsqueeze(1)
    trailing = mark.shape[1 + len(row_batch_size) :]
    return mark.expand(-1, *row_batch_size, *trailing).contiguous()


def slice_flags(
    rows: Tree | TensorDictBase, sampler: Sampler, info: Info
) -> dict[Key, torch.Tensor]:
    """Return what follows from the ends and beginnings of slices, bool ``[B, 1]`` in ``info``."""
    # An end is done too, and a beginning is marked beside those that are stored.
    flags: dict[Key, torch.Tensor] = {}
    truncated_key = sampler.truncated_key
    if truncated_key is not None and (last := info.get(truncated_key)) is not None:
        done_key, terminated_key = _beside(truncated_key)
        done, terminated = _stored(rows, done_key), _stored(rows, terminated_key)
        flags[done_key] = last.clone() if done is None else done | _like(last, done)
        flags[terminated_key] = torch.zeros_like(last) if terminated is None else terminated
    init_key = sampler.init_key
    if init_key is not None and (first := info.get(init_key)) is not None:
        stored = _stored(rows, init_key)
        if stored is not None:
            flags[init_key] = stored | _like(first, stored)
    return flags


def _stored(rows: Tree | TensorDictBase, key: Key) -> torch.Tensor | None:
    """Return what a batch has under a key, as a tensor where it is an array of numpy."""
    found: torch.Tensor | np.ndarray | None = entry(rows, key)
    return to_tensor(found) if isinstance(found, np.ndarray) else found


@functools.cache
def _beside(truncated_key: Key) -> tuple[Key, Key]:
    """Return the keys of the two other flags."""
    return (*truncated_key[:-1], "done"), (*truncated_key[:-1], "terminated")


def _like(mark: torch.Tensor, stored: torch.Tensor) -> torch.Tensor:
    """Return a mark in the shape of what is stored; a view costs more than to compare shapes."""
    return mark if mark.shape == stored.shape else mark.view(stored.shape)
