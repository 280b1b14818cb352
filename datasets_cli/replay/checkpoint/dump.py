"""Keeping a buffer in a folder, laid out as TorchRL 0.14 does; ``load`` reads it.

PATH/storage/             a TensorDict in files; storage_metadata.json: how many rows
PATH/writer/metadata.json where the next row goes
PATH/dataset.json         in place of these two: id, content and rows of the buffer's dataset
PATH/sampler/             priorities, or the position in an epoch
PATH/rng_state/           the state of the generator
PATH/buffer_metadata.json the batch size
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import torch
from tensordict import (
    LazyStackedTensorDict,
    NonTensorData,
    NonTensorStack,
    TensorDict,
    TensorDictBase,
    is_tensor_collection,
    is_tensorclass,
)
from torch.utils import _pytree

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import Rows, StateDict
from datasets_cli.replay.batches.reader import BatchReader
from datasets_cli.replay.checkpoint.draws import write_draws
from datasets_cli.replay.checkpoint.dump_folder import DATASET, ROWS, SEAL, WRITER
from datasets_cli.replay.checkpoint.write_folder import plan_files, write_files
from datasets_cli.replay.storages.collate import as_tensordict, leading_sizes, map_rows, stack_rows
from datasets_cli.replay.storages.columns import outline
from datasets_cli.replay.storages.description import TENSORS, RowsJson, describe
from datasets_cli.replay.storages.protocol import Storage, is_writable
from datasets_cli.replay.storages.state_files import write_state
from datasets_cli.replay.writing.writers import Writer

Hook = Callable[[Rows], Rows]
"""Takes rows that are written or were read, and returns others."""

ROWS_META = "storage_metadata.json"
WRITER_META = "metadata.json"
STRUCTURE = "structure"  # of rows that are not TensorDicts, among the counts
EMPTY = "empty"


def plan_dump(reader: BatchReader, writer: Writer, hooks: list[Hook]) -> Callable[[Path], None]:
    """Return what writes the rows, or their dataset's name, and the draws into a new folder."""
    dataset = reader.storage.reference()
    rows, structure = (None, None) if dataset else _rows_of(reader.storage, hooks)
    files = [] if rows is None else list(plan_files(rows))  # refuses before anything is written

    def write(folder: Path) -> None:
        if dataset:
            write_state(folder / DATASET, dataset)
        else:
            write_files(folder / ROWS, files)
            _write_counts(reader.storage, writer, rows, structure, folder)
        write_draws(reader, folder, dumps_global=bool(dataset))
        write_state(folder / SEAL, {"batch_size": reader.batch_size})

    return write


def _rows_of(storage: Storage, hooks: list[Hook]) -> tuple[TensorDictBase | None, RowsJson]:
    """Return the rows ``[steps, ...]`` that are dumped, time first, and what they are in."""
    # No rows for an empty storage; no structure where they are TensorDicts.
    if not len(storage):
        return None, None
    rows = storage.contents() if is_writable(storage) else storage.run(0, len(storage))
    if isinstance(rows, list):
        rows = _as_one(rows)
        if isinstance(rows, list) and all(map(_is_of_tensors, rows)):
            rows = stack_rows(rows)
    elif storage.ndim > 1:
        rows = map_rows(lambda part: part.transpose(0, storage.ndim - 1), rows)
    is_tensordict = is_tensor_collection(rows)
    for hook in hooks:
        rows = hook(rows)
    if not is_tensordict and not is_tensor_collection(rows):
        # Their tensors, under their numbers.
        description, columns = describe(rows, kinds=TENSORS)
        named = {str(number): column for number, column in enumerate(columns)}
        return TensorDict(named, leading_sizes(rows, storage.ndim)), description
    if not is_tensor_collection(rows) or not rows.batch_size:
        raise UsageError(
            f"Only rows that are TensorDicts can be dumped of such rows, not {outline(rows)}, "
            "which a hook returned. Let it return rows [steps, ...]."
        )
    return as_tensordict(rows), None


def _is_of_tensors(row: Rows) -> bool:
    """Return whether a row of a list is tensors alone, which it is after it was joined, too."""
    return all(isinstance(leaf, torch.Tensor) for leaf in _pytree.tree_leaves(row))


def _write_counts(
    storage: Storage,
    writer: Writer,
    rows: TensorDictBase | None,
    structure: RowsJson,
    folder: Path,
) -> None:
    """Write how many rows there are, and where the next one goes."""
    steps, *side = (0,) if rows is None else rows.shape[: storage.ndim]
    width = math.prod(side)
    # TorchRL knows nothing of the names that are stored in another form.
    counts: StateDict = {"metadata": {}, "is_pytree": False, "escaped_names": True}
    counts["len"] = steps * width
    if structure is not None:
        counts[STRUCTURE] = structure
    if rows is None:
        counts[EMPTY] = True
    write_state(folder / ROWS / ROWS_META, counts)
    state = writer.state_dict()
    if "cursor" in state and rows is not None:  # TorchRL counts time steps
        is_whole = steps * width == len(storage)  # a hook may leave rows out
        state["cursor"] = state["cursor"] // width if is_whole else steps
    write_state(folder / WRITER / WRITER_META, state)


def _as_one(items: list[Rows]) -> Rows:
    """Return rows that are TensorDicts or tensorclasses as one TensorDict; others unchanged."""
    # Unlike in a batch, rows that differ make a lazy stack, and equal values that are not tensors
    # stay one value a row.
    if not all(map(is_tensor_collection, items)):
        return items
    rows = [item._tensordict if is_tensorclass(item) else item for item in items]
    if len(shapes := {tuple(row.batch_size) for row in rows}) > 1:
        raise UsageError(
            f"Rows have the batch sizes {', '.join(map(str, sorted(shapes)))}, so that they do not "
            "make one TensorDict. Give them the same."
        )
    joined = _joined(rows)
    return LazyStackedTensorDict(*rows) if joined is None else joined


def _joined(rows: list[Rows]) -> TensorDict | None:
    """Return TensorDicts of the same form as one; None for others."""
    forms = {(row.batch_size, *sorted(row.keys())) for row in rows if type(row) is TensorDict}
    if len(forms) != 1 or any(type(row) is not TensorDict for row in rows):
        return None
    names = rows[0].keys()
    columns = {name: _joined_entry([row._get_str(name, None) for row in rows]) for name in names}
    if any(column is None for column in columns.values()):
        return None
    return TensorDict(columns, (len(rows), *rows[0].batch_size))


def _joined_entry(column: list[Rows]) -> Rows | None:
    if all(isinstance(item, torch.Tensor) for item in column):
        forms = {(item.dtype, item.shape, item.device) for item in column}
        return torch.stack(column) if len(forms) == 1 else None
    if all(isinstance(item, NonTensorData | NonTensorStack) for item in column):
        return NonTensorStack(*column)
    return _joined(column)
