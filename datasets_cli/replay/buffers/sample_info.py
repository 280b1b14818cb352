"""Marks: what a sampler says of the rows it drew, as a batch of them carries it."""

from __future__ import annotations

import functools

import torch
from tensordict import TensorDictBase

from datasets_cli.replay.samplers.protocol import Info, Sampler
from datasets_cli.store.schema.columns import Key
from datasets_cli.store.schema.tree import Tree, entry


def expand_to_rows(mark: torch.Tensor, row_batch_size: tuple[int, ...]) -> torch.Tensor:
    """Return what is said of each row, ``[B, ...]``, for all of it: ``[B, *inner, ...]``."""
    for _ in row_batch_size:
        mark = mark.unsqueeze(1)
    return mark.expand(-1, *row_batch_size, *mark.shape[1 + len(row_batch_size) :]).contiguous()


def slice_marks(
    rows: Tree | TensorDictBase, sampler: Sampler, info: Info
) -> dict[Key, torch.Tensor]:
    """Return what follows from the ends and beginnings of slices, bool ``[B, 1]`` in ``info``.

    An end is done too, and a beginning stands beside those that are stored.
    """
    marks: dict[Key, torch.Tensor] = {}
    truncated_key: Key | None = getattr(sampler, "truncated_key", None)
    if truncated_key is not None and (last := info.get(truncated_key)) is not None:
        done_key, terminated_key = _beside(truncated_key)
        done, terminated = entry(rows, done_key), entry(rows, terminated_key)
        marks[done_key] = last.clone() if done is None else done | _like(last, done)
        marks[terminated_key] = torch.zeros_like(last) if terminated is None else terminated
    init_key: Key | None = getattr(sampler, "init_key", None)
    if init_key is not None and (first := info.get(init_key)) is not None:
        stored = entry(rows, init_key)
        if stored is not None:
            marks[init_key] = stored | _like(first, stored)
    return marks


@functools.cache
def _beside(truncated_key: Key) -> tuple[Key, Key]:
    """Return the keys of the two other flags."""
    return (*truncated_key[:-1], "done"), (*truncated_key[:-1], "terminated")


def _like(mark: torch.Tensor, stored: torch.Tensor) -> torch.Tensor:
    """Return a mark in the shape of what is stored; a view costs more than to compare shapes."""
    return mark if mark.shape == stored.shape else mark.view(stored.shape)
