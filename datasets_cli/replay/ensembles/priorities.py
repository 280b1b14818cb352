"""Priorities of rows that came from several buffers: they go back to the one that each is of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import Numbers, as_tensor, key_of
from datasets_cli.replay.buffers.buffer import ReplayBuffer
from datasets_cli.replay.rows.row_numbers import unravel_rows
from datasets_cli.schema.tree import Tree, entry, grow_tree


def update_batch_priorities(buffers: Sequence[ReplayBuffer], batch: TensorDictBase | Tree) -> None:
    """Give the rows of a batch, of either form, the priorities that their buffers look for."""
    flat = _numbers_of(batch, buffers).reshape(-1)
    owner = flat["index", "buffer_ids"]
    for number, buffer in enumerate(buffers):
        if (update := getattr(buffer, "update_tensordict_priority", None)) is None:
            continue
        own = flat[owner == number]
        if len(own):
            numbers = _own_numbers(buffer, own["index", "index"])
            update(own.exclude("index").set("index", numbers))


def update_row_priorities(
    buffers: Sequence[ReplayBuffer], index: TensorDictBase | Mapping[str, Any], priority: Numbers
) -> None:
    """Give rows of several buffers priorities; see ``OfflineToOnline.update_priority``."""
    found = [index.get(name, None) for name in ("buffer_ids", "index")] if _has_names(index) else []
    if len(found) != 2 or any(part is None for part in found):
        raise UsageError(
            "Rows of several buffers are named by buffer_ids and index, as batch['index'] has "
            f"them; found {type(index).__name__}."
        )
    owner, rows = (as_tensor(part) for part in found)
    values = as_tensor(priority)
    for number, buffer in enumerate(buffers):
        own = owner == number
        if own.any():
            numbers = _own_numbers(buffer, rows[own])
            buffer.update_priority(numbers, values[own] if values.ndim else values)


def _has_names(index: object) -> bool:
    return isinstance(index, TensorDictBase | Mapping)


def _own_numbers(buffer: ReplayBuffer, rows: torch.Tensor) -> torch.Tensor:
    """Return rows as their buffer names them, which several dimensions may have been taken from."""
    storage = buffer.reader.storage
    return unravel_rows(storage, rows) if rows.ndim == 1 else rows


def _numbers_of(batch: TensorDictBase | Tree, buffers: Sequence[ReplayBuffer]) -> TensorDict:
    """Return what priorities need of a batch, in its shape."""
    own = ("index", "buffer_ids"), ("index", "index")
    keys = {key_of(getattr(buffer, "priority_key", own[0])) for buffer in buffers}
    entries = {key: entry(batch, key) for key in {*own, *keys}}
    found = {key: as_tensor(leaf) for key, leaf in entries.items() if leaf is not None}
    if not found.keys() >= {*own}:
        raise UsageError("The batch has no 'index', which its rows' priorities need.")
    return TensorDict(grow_tree(found), found[own[0]].shape)
