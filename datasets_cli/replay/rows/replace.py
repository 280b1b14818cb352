"""Replacing rows: some of them, some of their entries, or all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tensordict import TensorDictBase

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import Index, Rows, StateDict
from datasets_cli.replay.nested_keys import NestedKey, key_of
from datasets_cli.replay.rows.reader import BatchReader
from datasets_cli.replay.rows.row_numbers import row_numbers
from datasets_cli.replay.rows.writers import RoundRobinWriter, Writer, refuse_to_write
from datasets_cli.replay.storages.batches import map_rows
from datasets_cli.replay.storages.protocol import WritableStorage, is_writable
from datasets_cli.replay.storages.tensor_rows import TensorRows
from datasets_cli.schema.columns import Key, show_key

BLOCK = 4096  # rows that are copied at once where some of their entries are replaced


def writable(reader: BatchReader) -> WritableStorage:
    """Return the storage of a buffer to write to."""
    if not is_writable(reader.storage):
        refuse_to_write()
    reader.others.check_writes(reader.storage, writer=None)
    return reader.storage


def refuse_dimensions(storage: WritableStorage) -> None:
    """Refuse rows of several dimensions that are not given by their numbers."""
    if storage.ndim > 1:
        raise UsageError(
            "Rows of several dimensions can only be written by extend(), and entries of them by "
            "set_at_() with the numbers [n, ndim] that it returns."
        )


def write_at(storage: WritableStorage, index: Index, data: Rows) -> None:
    """Write rows in place of those that an index means."""
    refuse_dimensions(storage)
    rows = row_numbers(index, storage)
    if not rows.numel() and not len(storage):  # which must not take the form of such rows
        raise UsageError("There are no rows to replace: the storage is empty. Use extend().")
    data = data if rows.ndim else storage.one_row(data)
    if isinstance(storage, TensorRows) and torch.equal(rows, torch.arange(len(storage))):
        storage.add_keys(data)
    columns = storage.flatten(data)
    if len(columns[0]) != rows.numel():
        raise UsageError(f"{rows.numel()} rows cannot be replaced by {len(columns[0])}.")
    storage.write(rows.flatten(), columns)


def write_entries(
    storage: WritableStorage, rows: torch.Tensor, entries: Mapping[Key, Rows]
) -> None:
    """Replace some entries of rows, block by block: no copy of all rows is made."""
    # rows: int64 `[n]`.
    # entries: what the rows get, `[n, ...]` each.
    for key, values in entries.items():
        first = storage.entry(key, rows[:1])
        if first is None:
            raise UsageError(f"The rows have no {show_key(key)} that could be replaced.")
        expected = (first.dtype, [len(rows), *first.shape[1:]])
        found = (values.dtype, list(values.shape))
        if found != expected:
            raise UsageError(
                f"{show_key(key)} of {len(rows)} rows is {expected[0]} {expected[1]}; found "
                f"{found[0]} {found[1]}. Give the entry of each of these rows."
            )
    side = (*storage.grid[-1:], *storage.grid[1:-1])[: storage.ndim - 1]  # environments
    for start in range(0, len(rows), BLOCK):
        stop = start + BLOCK
        batch = storage.get(rows[start:stop])
        for key, values in entries.items():
            batch.set(key, values[start:stop].to(batch[key].device))
        if side:  # a step is of all environments: each row is given as that of all
            batch = map_rows(lambda part: part.expand(*side, *part.shape), batch)
        columns = storage.flatten(batch)
        storage.write(rows[start:stop], [each[:: storage.width] for each in columns])


def entries_by_key(
    entries: Mapping[NestedKey, Rows], only: Sequence[NestedKey] | None
) -> dict[Key, Rows]:
    """Return the leaves ``[n, ...]`` of a nested dict or TensorDict by their keys."""
    found: dict[Key, Rows] = {}
    for name, value in entries.items():
        is_group = isinstance(value, Mapping | TensorDictBase)
        below = entries_by_key(value, None) if is_group else {(): value}
        found.update({(*key_of(name), *rest): leaf for rest, leaf in below.items()})
    if only is None:
        return found
    wanted = [key_of(name) for name in only]
    for key in wanted:
        if not any(leaf[: len(key)] == key for leaf in found):
            raise UsageError(f"There is no {show_key(key)} among what is to be written.")
    return {leaf: v for leaf, v in found.items() if any(leaf[: len(k)] == k for k in wanted)}


def replace_rows(
    reader: BatchReader, writer: Writer, columns: list[Any] | None, writer_state: StateDict
) -> None:
    """Forget a buffer's rows for others, and continue after these where the writer stood."""
    # columns: of the other rows `[n, ...]`, as the storage flattens them; None for none.
    storage = writable(reader)
    clear_rows(reader, writer)
    if columns is not None:
        storage.write(slice(0, len(columns[0])), columns)
    writer.load_state_dict(writer_state)
    # The storage counts time steps, the writer rows.
    storage.cursor = writer_state.get("cursor", 0) // storage.width


def clear_rows(reader: BatchReader, writer: Writer) -> None:
    """Forget a buffer's rows, and tell all parts that know of them."""
    storage = writable(reader)
    if not isinstance(writer, RoundRobinWriter):
        reader.others.check_writes(storage, writer=type(writer).__name__)
    writer.on_clear()  # first, because it may refuse
    storage.clear()
    if storage.generations is not None:
        storage.generations.advance()
    reader.transform.on_clear()
    reader.sampler.on_clear()
    reader.drop()
