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
from typing import Any

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
from datasets_cli.replay.arguments import Rows
from datasets_cli.replay.keeping.dataset_reference import dataset_of
from datasets_cli.replay.keeping.draws import write_draws
from datasets_cli.replay.keeping.dump_folder import (
    DATASET,
    ROWS,
    SEAL,
    WRITER,
)
from datasets_cli.replay.keeping.write_folder import plan_files, write_files
from datasets_cli.replay.rows.reader import BatchReader
from datasets_cli.replay.rows.writers import Writer
from datasets_cli.replay.storages.batches import as_tensordict, map_rows, stack_rows
from datasets_cli.replay.storages.description import TENSORS, Description, describe
from datasets_cli.replay.storages.form import outline
from datasets_cli.replay.storages.protocol import Storage, is_writable
from datasets_cli.replay.storages.state_files import write_state

Hook = Callable[[Any], Any]
"""Takes rows that are written or were read, and returns others."""

ROWS_META = "storage_metadata.json"
WRITER_META = "metadata.json"
STRUCTURE = "structure"  # of rows that are no TensorDicts, among the counts
EMPTY = "empty"


def plan_dump(reader: BatchReader, writer: Writer, hooks: list[Hook]) -> Callable[[Path], None]:
    """Return what writes the rows, or their dataset's name, and the draws into a new folder."""
    dataset = dataset_of(reader.storage)
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


def _rows_of(storage: Storage, hooks: list[Hook]) -> tuple[TensorDictBase | None, Any]:
    """Return the rows ``[steps, ...]`` that are dumped, time first, and the structure they are
    in.
    """
    # None for no rows; without a structure where they are TensorDicts.
    if not len(storage):
        return None, None
    rows = storage.contents() if is_writable(storage) else storage.run(0, len(storage))
    if isinstance(rows, list):
        rows = _as_one(rows)
    if isinstance(rows, list):
        rows = stack_rows(rows) if all(map(_is_of_tensors, rows)) else rows
    elif storage.ndim > 1:
        time = storage.ndim - 1
        rows = map_rows(lambda part: part.transpose(0, time), rows)
    is_tensordict = is_tensor_collection(rows)
    for hook in hooks:
        rows = hook(rows)
    found = as_tensordict(rows) if is_tensorclass(rows) else rows
    if not is_tensordict and not isinstance(found, TensorDictBase):
        return to_columns(found, storage.ndim)
    if not isinstance(found, TensorDictBase) or not found.batch_size:
        raise UsageError(
            f"Only rows that are TensorDicts can be dumped of such rows, not {outline(rows)}, "
            "which a hook returned. Let it return rows [steps, ...]."
        )
    return found, None


def to_columns(rows: Rows, ndim: int) -> tuple[TensorDict, Description]:
    """Return the tensors of rows under their numbers ``[*rows]``, and what the rows are."""
    description, columns = describe(rows, kinds=TENSORS)
    sizes = {tuple(column.shape[:ndim]) for column in columns}
    if len(sizes) != 1 or min(column.ndim for column in columns) < ndim:
        raise UsageError(f"Expected tensors of the same number of rows; found the sizes {sizes}.")
    named = {str(number): column for number, column in enumerate(columns)}
    return TensorDict(named, sizes.pop()), description


def _is_of_tensors(row: Any) -> bool:
    """Tell whether a row of a list is tensors alone, which it is after it was joined, too."""
    return all(isinstance(leaf, torch.Tensor) for leaf in _pytree.tree_leaves(row))


def _write_counts(
    storage: Storage,
    writer: Writer,
    rows: TensorDictBase | None,
    structure: Any,
    folder: Path,
) -> None:
    """Write how many rows there are, and where the next one goes."""
    steps = 0 if rows is None else len(rows)
    width = 1 if rows is None else math.prod(rows.shape[1 : storage.ndim])
    # TorchRL knows nothing of the names that are stored in another form.
    counts = {"metadata": {}, "is_pytree": False, "len": steps * width, "escaped_names": True}
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
    """Return rows that are TensorDicts or tensorclasses as one TensorDict; others as they are."""
    # Unlike in a batch, rows that differ make a lazy stack, and equal values that are no tensors
    # stay one value a row.
    if not items or not all(isinstance(i, TensorDictBase) or is_tensorclass(i) for i in items):
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
    if any(type(row) is not TensorDict for row in rows):
        return None
    if len({(row.batch_size, tuple(sorted(row.keys()))) for row in rows}) > 1:
        return None
    entries: dict[str, Rows] = {}
    for name in rows[0].keys():  # noqa: SIM118
        column = [row._get_str(name, None) for row in rows]
        entry = _joined_entry(column)
        if entry is None:
            return None
        entries[name] = entry
    return TensorDict(entries, (len(rows), *rows[0].batch_size))


def _joined_entry(column: list[Rows]) -> Rows | None:
    if all(isinstance(item, torch.Tensor) for item in column):
        forms = {(item.dtype, item.shape, item.device) for item in column}
        return torch.stack(column) if len(forms) == 1 else None
    if all(isinstance(item, NonTensorData | NonTensorStack) for item in column):
        return NonTensorStack(*column)
    return _joined(column)
