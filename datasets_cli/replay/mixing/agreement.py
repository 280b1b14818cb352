"""What members must agree in: the columns of their rows, and what publishers say of the numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from tensordict import TensorDict, is_leaf_nontensor, is_tensor_collection

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import Rows, key_of
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.storages.sequences import Sequences, dataset_of_rows
from datasets_cli.schema.bits import TYPE_NAMES
from datasets_cli.schema.columns import Key, show_key
from datasets_cli.schema.texts import TEXT
from datasets_cli.schema.tree import leaves_in
from datasets_cli.store.manifest import Manifest

MOST_LINES = 30


class ColumnForm(NamedTuple):
    """What each row has under a key."""

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype} {list(self.shape)}"


def forms_of(storage: Storage, name: str) -> dict[Key, ColumnForm]:
    """Return the form of every column of a storage."""
    if not storage.is_tensordict or storage.row_batch_size:
        have = "no TensorDicts" if not storage.is_tensordict else "a batch size each"
        raise UsageError(
            f"{name}: a mixture takes rows that are TensorDicts of plain columns, and rows of this "
            f"{type(storage).__name__} have {have}. Give it a dataset, or a buffer that such rows "
            "were written to."
        )
    row = storage.gather(torch.arange(min(1, len(storage))))
    return {key: _form(leaf, TEXT) for key, leaf in leaves_in(row)}


def _form(leaf: Rows, other: str) -> ColumnForm:
    """Return the form of a leaf ``[n, ...]``; ``other`` names the type of what is not a tensor."""
    if isinstance(leaf, torch.Tensor):
        name = TYPE_NAMES.get(leaf.dtype, str(leaf.dtype).removeprefix("torch."))
        return ColumnForm(name, tuple(leaf.shape[1:]))
    return ColumnForm(other, tuple(leaf.shape[1:]))


def check_columns(forms: Sequence[Mapping[Key, ColumnForm]], names: Sequence[str]) -> None:
    """Check that members of a mixture have the same columns."""
    keys = sorted({key for each in forms for key in each})
    lines = {
        show_key(key): [str(each.get(key, "-")) for each in forms]
        for key in keys
        if len({each.get(key) for each in forms}) > 1
    }
    if lines:
        raise UsageError(
            "The members of the mixture have different columns, which are never cast, cut or left "
            f"out in silence:\n{table('column', names, lines)}\n"
            "  Say how each member is to be mapped: Member(buffer, rename={old: new}, drop=[key], "
            "cast={key: dtype}, fill={key: value}, pad={key: size})."
        )


def plain_leaves(batch: Rows) -> dict[Key, torch.Tensor] | None:
    """Return the leaves of a batch that is tensors in plain TensorDicts of one batch size."""
    # None for any other: with text, tensorclasses, or nested batch sizes.
    if type(batch) is not TensorDict:
        return None
    leaves: dict[Key, torch.Tensor] = {}
    return leaves if _collect(batch, batch.batch_size, (), leaves) else None


def _collect(
    batch: TensorDict, size: torch.Size, above: Key, leaves: dict[Key, torch.Tensor]
) -> bool:
    """Put the leaves below a key among the others; return whether all are plain."""
    for name, entry in batch.items():
        if type(entry) is torch.Tensor:
            leaves[*above, name] = entry
            continue
        is_plain = type(entry) is TensorDict and entry.batch_size == size
        if not is_plain or not _collect(entry, size, (*above, name), leaves):
            return False
    return True


def batch_leaves(batch: Rows) -> dict[Key, Rows]:
    """Return the leaves of a batch of TensorDicts; nothing where rows are tensors."""
    if (plain := plain_leaves(batch)) is not None:
        return plain
    if not is_tensor_collection(batch):
        return {}
    leaves = batch.items(True, True, is_leaf=is_leaf_nontensor)  # text too
    return {key_of(key): leaf for key, leaf in leaves}


def differing(first: Rows, other: Rows) -> list[Key]:
    """Return the keys of leaves that cannot be joined, or that only one of two batches has."""
    ours, theirs = batch_leaves(first), batch_leaves(other)
    odd = ours.keys() ^ theirs.keys()
    odd |= {key for key in ours.keys() & theirs.keys() if not _fit(ours[key], theirs[key])}
    return sorted(odd)


def _fit(leaf: Rows, other: Rows) -> bool:
    # Of every batch, so that no form is made of leaves that fit.
    if leaf.shape[1:] != other.shape[1:]:
        return False
    if not isinstance(leaf, torch.Tensor) or not isinstance(other, torch.Tensor):
        return isinstance(leaf, torch.Tensor) == isinstance(other, torch.Tensor)
    return leaf.dtype == other.dtype and leaf.device == other.device


def difference_table(keys: Sequence[Key], names: Sequence[str], batches: Sequence[Rows]) -> str:
    """Return a table of what each of several batches has under some keys."""
    leaves = [batch_leaves(batch) for batch in batches]
    lines = {show_key(key): [_cell(each.get(key)) for each in leaves] for key in keys}
    return table("", names, lines)


def _cell(leaf: Rows | None) -> str:
    if leaf is None:
        return "-"
    is_elsewhere = isinstance(leaf, torch.Tensor) and leaf.device.type != "cpu"
    return f"{_form(leaf, 'no tensor')}" + (f" on {leaf.device}" if is_elsewhere else "")


def table(title: str, names: Sequence[str], lines: Mapping[str, Sequence[str]]) -> str:
    """Return a table of text: a line for each name, a column for each member."""
    rows = [[title, *names], *([name, *cells] for name, cells in lines.items())]
    left = len(rows) - MOST_LINES
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    shown = [
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows[:MOST_LINES]
    ]
    return "\n".join([*shown, f"  and {left} more"] if left > 0 else shown)


def manifest_of(storage: Storage) -> Manifest | None:
    """Return the manifest of a storage's dataset; None where it has other rows."""
    dataset = storage.dataset if isinstance(storage, Sequences) else dataset_of_rows(storage)
    return None if dataset is None else dataset.manifest
