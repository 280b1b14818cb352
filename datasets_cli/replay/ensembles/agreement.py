"""Whether the rows of several buffers can be joined: the same entries, types and shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import TensorDict, is_leaf_nontensor, is_tensor_collection

from datasets_cli.replay.arguments import Rows, key_of
from datasets_cli.schema.columns import Key, show_key

MOST_SHOWN = 20  # entries that a message lists


def plain_leaves(batch: Rows) -> dict[Key, torch.Tensor] | None:
    """Return the leaves of a batch that is tensors in plain TensorDicts of one batch size."""
    # None for any other: with text, tensorclasses, or nested batch sizes of their own.
    if type(batch) is not TensorDict:
        return None
    found: dict[Key, torch.Tensor] = {}
    return found if _collect(batch, batch.batch_size, (), found) else None


def _collect(batch: TensorDict, size: torch.Size, key: Key, found: dict[Key, torch.Tensor]) -> bool:
    """Put the leaves below a key among those found; return whether all are plain."""
    for name, entry in batch.items():
        if type(entry) is torch.Tensor:
            found[*key, name] = entry
            continue
        is_plain = type(entry) is TensorDict and entry.batch_size == size
        if not is_plain or not _collect(entry, size, (*key, name), found):
            return False
    return True


def leaves_of(batch: Rows) -> dict[Key, Any]:
    """Return the leaves of a batch of TensorDicts; nothing where rows are tensors."""
    if (plain := plain_leaves(batch)) is not None:
        return plain
    if not is_tensor_collection(batch):
        return {}
    leaves = batch.items(True, True, is_leaf=is_leaf_nontensor)  # text too
    return {key_of(key): leaf for key, leaf in leaves}


def differing(first: Rows, other: Rows) -> list[Key]:
    """Return the keys of leaves that cannot be joined, or that only one of two batches has."""
    ours, theirs = leaves_of(first), leaves_of(other)
    odd = ours.keys() ^ theirs.keys()
    odd |= {key for key in ours.keys() & theirs.keys() if not _fit(ours[key], theirs[key])}
    return sorted(odd)


def _fit(leaf: Any, other: Any) -> bool:
    if leaf.shape[1:] != other.shape[1:]:
        return False
    if not isinstance(leaf, torch.Tensor) or not isinstance(other, torch.Tensor):
        return isinstance(leaf, torch.Tensor) == isinstance(other, torch.Tensor)
    return leaf.dtype == other.dtype and leaf.device == other.device


def table(keys: Sequence[Key], names: Sequence[str], batches: Sequence[Rows]) -> str:
    """Return what leaves are in each batch, a line for each leaf."""
    found = [leaves_of(batch) for batch in batches]
    lines = [
        f"  {show_key(key)}: "
        + ", ".join(
            f"{_outline(leaves[key])} {name}" if key in leaves else f"not {name}"
            for name, leaves in zip(names, found, strict=True)
        )
        for key in keys[:MOST_SHOWN]
    ]
    if len(keys) > MOST_SHOWN:
        lines.append(f"  and {len(keys) - MOST_SHOWN} more")
    return "\n".join(lines)


def _outline(leaf: Any) -> str:
    """Return type, shape after the rows, and device of a leaf, as a message names them."""
    if not isinstance(leaf, torch.Tensor):
        return f"no tensor {list(leaf.shape[1:])}"
    place = "" if leaf.device.type == "cpu" else f" on {leaf.device}"
    return f"{str(leaf.dtype).removeprefix('torch.')} {list(leaf.shape[1:])}{place}"
