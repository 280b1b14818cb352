"""Priorities of rows that came from several buffers: they go back to the one that each is of."""

from __future__ import annotations

from collections.abc import Sequence

from tensordict import TensorDict, TensorDictBase

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import as_tensor, key_of
from datasets_cli.replay.buffers.buffer import ReplayBuffer
from datasets_cli.store.schema.tree import Tree, entry, grow_tree


def update_batch_priorities(buffers: Sequence[ReplayBuffer], batch: TensorDictBase | Tree) -> None:
    """Give the rows of a batch, of either form, the priorities that their buffers look for."""
    flat = _numbers_of(batch, buffers).reshape(-1)
    owner = flat["index", "buffer_ids"]
    for number, buffer in enumerate(buffers):
        if (update := getattr(buffer, "update_tensordict_priority", None)) is None:
            continue
        own = flat[owner == number]
        if len(own):
            update(own.exclude("index").set("index", own["index", "index"]))


def _numbers_of(batch: TensorDictBase | Tree, buffers: Sequence[ReplayBuffer]) -> TensorDict:
    """Return what priorities need of a batch, in its shape.

    Args:
        batch: of several buffers.
        buffers: those, whose priorities are taken along.

    Raises:
        UsageError: the batch does not say which rows it has.
    """
    own = ("index", "buffer_ids"), ("index", "index")
    keys = {key_of(getattr(buffer, "priority_key", own[0])) for buffer in buffers}
    entries = {key: entry(batch, key) for key in {*own, *keys}}
    found = {key: as_tensor(leaf) for key, leaf in entries.items() if leaf is not None}
    if not found.keys() >= {*own}:
        raise UsageError("The batch has no 'index', which its rows' priorities need.")
    return TensorDict(grow_tree(found), found[own[0]].shape)
