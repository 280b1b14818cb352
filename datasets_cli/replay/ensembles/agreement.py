"""Whether the rows of several buffers can be joined: the same entries, types and shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from tensordict import is_leaf_nontensor, is_tensor_collection

from datasets_cli.replay.arguments import Rows, key_of
from datasets_cli.store.schema.columns import Key, show_key

MOST_SHOWN = 20  # differences that a message lists


class LeafForm(NamedTuple):
    """What a leaf of a batch must have in common with that of another to be joined with it.

    Args:
        shape: after the row dimension.
        dtype: of its elements; None for text and other values that are no tensors.
        device: where it is; None for these.
    """

    shape: torch.Size
    dtype: torch.dtype | None
    device: torch.device | None

    def __str__(self) -> str:
        name = "no tensor" if self.dtype is None else str(self.dtype).removeprefix("torch.")
        place = "" if self.device is None or self.device.type == "cpu" else f" on {self.device}"
        return f"{name} {list(self.shape)}{place}"


def form_of_batch(batch: Rows) -> dict[Key, LeafForm]:
    """Return the form of each leaf; nothing where rows are tensors."""
    if not is_tensor_collection(batch):
        return {}
    leaves = batch.items(True, True, is_leaf=is_leaf_nontensor)  # text too
    return {key_of(key): _form(leaf) for key, leaf in leaves}


def _form(leaf: Any) -> LeafForm:
    if isinstance(leaf, torch.Tensor):
        return LeafForm(leaf.shape[1:], leaf.dtype, leaf.device)
    return LeafForm(leaf.shape[1:], None, None)


def differing(first: Rows, other: Rows) -> list[Key]:
    """Return the keys of the leaves that one of two batches does not have, or of another form."""
    return sorted({key for key, _ in form_of_batch(first).items() ^ form_of_batch(other).items()})


def table(keys: Sequence[Key], names: Sequence[str], batches: Sequence[Rows]) -> str:
    """Return the form of leaves in each batch, a line for each leaf.

    Args:
        keys: of the leaves; of many the first are shown.
        names: of the batches.
        batches: of rows.
    """
    forms = [form_of_batch(batch) for batch in batches]
    lines = [
        f"  {show_key(key)}: "
        + ", ".join(
            f"{form[key]} in {name}" if key in form else f"not in {name}"
            for name, form in zip(names, forms, strict=True)
        )
        for key in keys[:MOST_SHOWN]
    ]
    if len(keys) > MOST_SHOWN:
        lines.append(f"  and {len(keys) - MOST_SHOWN} more")
    return "\n".join(lines)
