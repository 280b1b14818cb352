"""Marks: what a sampler says of the rows it drew, as a batch of them carries it."""

from __future__ import annotations

import torch
from tensordict import TensorDictBase

from datasets_cli.store.columns import Key
from datasets_cli.store.tree import Tree, entry


def spread(mark: torch.Tensor, inner: tuple[int, ...]) -> torch.Tensor:
    """Return what is said of each row, ``[B, ...]``, for all of it: ``[B, *inner, ...]``."""
    for _ in inner:
        mark = mark.unsqueeze(1)
    return mark.expand(-1, *inner, *mark.shape[1 + len(inner) :]).contiguous()


def end_marks(
    rows: Tree | TensorDictBase, truncated_key: Key, last: torch.Tensor
) -> dict[Key, torch.Tensor]:
    """Return what follows from the ends of slices bool ``[B, 1]``: done, and where others begin."""
    beside = truncated_key[:-1]
    done, first = entry(rows, (*beside, "done")), entry(rows, ("is_init",))
    terminated = entry(rows, (*beside, "terminated"))
    if done is None:
        done = torch.zeros_like(last)
    marks = {
        (*beside, "done"): done | (last if done.shape == last.shape else last.view(done.shape)),
        (*beside, "terminated"): torch.zeros_like(last) if terminated is None else terminated,
    }
    if first is not None:
        marks["is_init",] = first | last.roll(1, 0).view(first.shape)
    return marks
