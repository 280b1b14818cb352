"""Marks: what a sampler says of the rows it drew, as a batch of them carries it."""

from __future__ import annotations

import torch
from tensordict import TensorDictBase

from datasets_cli.replay.samplers import Info, Sampler
from datasets_cli.store.columns import Key
from datasets_cli.store.tree import Tree, entry


def spread(mark: torch.Tensor, inner: tuple[int, ...]) -> torch.Tensor:
    """Return what is said of each row, ``[B, ...]``, for all of it: ``[B, *inner, ...]``."""
    for _ in inner:
        mark = mark.unsqueeze(1)
    return mark.expand(-1, *inner, *mark.shape[1 + len(inner) :]).contiguous()


def slice_marks(
    rows: Tree | TensorDictBase, sampler: Sampler, info: Info
) -> dict[Key, torch.Tensor]:
    """Return what follows from the ends and beginnings of slices, bool ``[B, 1]`` in ``info``.

    An end is done too, and a beginning stands beside those that are stored.
    """
    marks: dict[Key, torch.Tensor] = {}
    truncated_key: Key | None = getattr(sampler, "truncated_key", None)
    if truncated_key is not None and truncated_key in info:
        last, beside = info[truncated_key], truncated_key[:-1]
        done, terminated = (entry(rows, (*beside, name)) for name in ("done", "terminated"))
        marks[*beside, "done"] = last.clone() if done is None else done | last.view(done.shape)
        marks[*beside, "terminated"] = torch.zeros_like(last) if terminated is None else terminated
    init_key: Key | None = getattr(sampler, "init_key", None)
    if init_key is not None and init_key in info:
        stored = entry(rows, init_key)
        if stored is not None:
            marks[init_key] = stored | info[init_key].view(stored.shape)
    return marks
