"""Rows of a dataset, or of a view of one, as other libraries have them in memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from datasets_cli.core.system_errors import check_memory, damaged
from datasets_cli.errors import UsageError, install_extra
from datasets_cli.exchange.flat import recorded_columns
from datasets_cli.replay.arguments import NestedKeys
from datasets_cli.replay.batches.row_numbers import row_numbers
from datasets_cli.replay.storages.dataset import DatasetStorage
from datasets_cli.schema.columns import Key, rows_per_block, show_key
from datasets_cli.schema.texts import AnyColumn
from datasets_cli.store.arrays import RecordedSteps, open_arrays, plain_numbers
from datasets_cli.store.dataset import Dataset

if TYPE_CHECKING:
    import pandas
    import pyarrow

MOST_COLUMNS = 1000
"""Maximum columns of a DataFrame."""


def to_numpy(
    storage: DatasetStorage, columns: NestedKeys | None = None, rows: Any = None
) -> dict[str, np.ndarray]:
    """Return rows as arrays ``[n, ...]`` by the keys of their columns, with dots between names.

    Args:
        storage: the rows of the dataset.
        columns: the keys of columns, also of text, or of whole groups such as ``"next"``; by
            default the columns of the buffer.
        rows: a slice, whole numbers, or a bool for each row; by default all.

    Raises:
        UsageError: the copy would take more than half of the free memory, a row or column does not
            exist, or numpy lacks its dtype.
    """
    storage = _reading(storage, columns)
    dataset, numbers = storage.dataset, _numbers(rows, storage)
    dataset.check_memory(len(numbers))
    step, whole = rows_per_block(dataset.row_bytes), dict[Key, np.ndarray]()
    for start in range(0, max(1, len(numbers)), step):
        for key, values in _gathered(dataset, numbers[start : start + step]).items():
            if key not in whole:
                whole[key] = np.empty((len(numbers), *values.shape[1:]), values.dtype)
            whole[key][start : start + step] = values
    return {show_key(key): values for key, values in whole.items()}


def recorded(storage: DatasetStorage) -> dict[str, np.ndarray]:
    """Return the publisher's arrays of every recorded step, including the final steps.

    The arrays of a dataset of D4RL are those of its file, bit for bit: ``observations``,
    ``actions``, ``rewards``, ``terminals``, and ``timeouts``, ``next_observations`` and
    ``infos/qpos`` if the file has them. The same holds for an imported file whose flags mark the
    ends of trajectories, and for a copy of whole trajectories by ``preprocess``, in which an end
    without a flag gets one. Any other dataset returns the columns that ``create_dataset`` accepts:
    ``observation``, ``action``, ``reward``, ``terminated``, ``truncated`` (True also at an end
    without a flag), ``info.speed``, and ``next_observation`` if the source has it.

    Args:
        storage: the rows of the dataset; a view has whole trajectories, in the view's order.

    Returns:
        The arrays ``[S, ...]`` of the S recorded steps, in the publisher's dtypes and shapes, by
        the publisher's names. Text is objects: ``str``, or ``bytes`` as h5py returns it.

    Raises:
        WrongSize: the arrays would take more than half of the free memory; the message states their
            size.
        UsageError: two columns have the same name.
        DamagedDataset: the dataset was replaced since it was opened.
    """
    return recorded_arrays(storage)


def recorded_arrays(
    storage: DatasetStorage, names: frozenset[str] | None = None
) -> dict[str, np.ndarray]:
    """Return arrays of all recorded steps, by their names; all by default."""
    dataset = storage.dataset
    whole = open_arrays(dataset.folder)
    if whole.content != dataset.content:
        raise damaged(dataset.folder, f"{dataset.id} was replaced since it was opened")
    columns = [each for each in recorded_columns(whole.manifest) if not names or each.name in names]
    if len({each.name for each in columns}) < len(columns):
        raise UsageError(f"Two columns of {dataset.id} have the same name. Use to_numpy(columns=).")
    numbers = None if dataset.selection is None else dataset.selection.distinct_numbers
    steps, first = RecordedSteps(whole, columns, numbers), 0
    step_bytes = sum(column.row_bytes for column in columns)
    check_memory(len(steps) * step_bytes, f"{dataset.id}: {len(steps):,} recorded steps")
    arrays: dict[str, np.ndarray] = {}
    for block in steps.blocks():
        for name, rows in block.items():
            if name not in arrays:
                arrays[name] = np.empty((len(steps), *rows.shape[1:]), rows.dtype)
            arrays[name][first : first + len(rows)] = rows
        first += len(rows)
    return arrays


def to_pandas(
    storage: DatasetStorage, columns: NestedKeys | None = None, rows: Any = None
) -> pandas.DataFrame:
    """Return rows as a DataFrame, which has a column for each number of a row.

    Of a leaf ``[n]`` the columns are ``observation.0`` up to n - 1.

    Args:
        storage: the rows of the dataset.
        columns: as ``to_numpy`` takes them.
        rows: likewise.

    Raises:
        UsageError: as ``to_numpy``, or there would be more than 1,000 columns, as of frames.
    """
    import pandas  # heavy, and few ask for it

    storage = _reading(storage, columns)
    dataset = storage.dataset
    width = sum(math.prod(column.shape) for column in dataset.columns_read)
    if width > MOST_COLUMNS:
        raise UsageError(
            f"{dataset.id} has {width:,} numbers per row; expected {MOST_COLUMNS:,} or "
            "fewer for a DataFrame. Leave frames out with columns=."
        )
    dataset.check_memory(2 * len(_numbers(rows, storage)))
    parts: dict[str, Any] = {}
    for name, values in to_numpy(storage, None, rows).items():
        flat = values.reshape(len(values), math.prod(values.shape[1:])).T
        parts |= {name if len(flat) == 1 else f"{name}.{n}": part for n, part in enumerate(flat)}
    return pandas.DataFrame(parts)


def to_arrow(
    storage: DatasetStorage, columns: NestedKeys | None = None
) -> pyarrow.RecordBatchReader:
    """Return a reader of all rows in bounded batches; vectors are lists of a fixed size.

    A Parquet file of these batches is one that ``rlds import`` reads.

    Args:
        storage: the rows of the dataset.
        columns: as ``to_numpy`` takes them.

    Raises:
        UsageError: pyarrow is not installed, a column does not exist, or Arrow lacks its dtype.
    """
    from pyarrow import RecordBatchReader

    from datasets_cli.exchange import arrow_table  # its error names the package to install

    dataset = _reading(storage, columns).dataset
    texts = dataset.texts.columns if dataset.texts else ()
    columns_read: tuple[AnyColumn, ...] = (*dataset.columns_read, *texts)
    known = {show_key(each.key): each for each in columns_read}
    if lost := [name for name, column in known.items() if not arrow_table.storable(column)]:
        raise UsageError(f"Arrow cannot hold {', '.join(lost)}. Leave it out with columns=.")
    schema = arrow_table.schema_of(known, dataset.manifest.metadata)
    names = {name: column.key for name, column in known.items()}

    def batches() -> Iterator[Any]:
        step = rows_per_block(dataset.row_bytes)
        for start in range(0, len(dataset), step):
            numbers = np.arange(start, min(start + step, len(dataset)))
            yield arrow_table.batch_of(_gathered(dataset, numbers), names, schema)

    return RecordBatchReader.from_batches(schema, batches())


def to_hf_dataset(storage: DatasetStorage, columns: NestedKeys | None = None) -> Any:
    """Return all rows as a ``datasets.Dataset`` in memory, with the columns of ``to_arrow``.

    Args:
        storage: the rows of the dataset.
        columns: as ``to_numpy`` takes them.

    Raises:
        UsageError: as ``to_arrow``, ``datasets`` is not installed, or the copy would take more than
            half of the free memory.
    """
    try:
        from datasets import Dataset as Table
    except ModuleNotFoundError as error:
        raise UsageError(
            "A Hugging Face table needs datasets, which is not installed. Its load_dataset also "
            "reads Parquet.",
            expected="datasets",
            advice=install_extra("hf"),
        ) from error
    storage = _reading(storage, columns)
    storage.dataset.check_memory(len(storage))
    return Table(to_arrow(storage).read_all())


def _reading(storage: DatasetStorage, columns: NestedKeys | None) -> DatasetStorage:
    """Return the same rows with only some columns, text too; each name is one column's."""
    if columns is not None:
        reopened: Any = storage.__reduce__()
        reopen, (folder, options, *others) = reopened
        storage = reopen(folder, replace(options, columns=columns, text=True), *others)
    names = [*map(show_key, storage.dataset.keys)]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise UsageError(f"Two columns are {twice} by their names. Choose one with columns=.")
    return storage


def _numbers(rows: Any, storage: DatasetStorage) -> np.ndarray:
    """Return the numbers int64 ``[n]`` of rows that a user names."""
    chosen: Any = np.array(rows) if not isinstance(rows, slice | None) else rows or slice(None)
    numbers = row_numbers(chosen, storage)
    if numbers.ndim > 1:
        raise UsageError(f"rows have one dimension, not {numbers.ndim}. Give a list of numbers.")
    return numbers.reshape(-1).numpy()


def _gathered(dataset: Dataset, numbers: np.ndarray) -> dict[Key, np.ndarray]:
    """Return some rows of all columns that are read, text as objects."""
    columns: dict[Key, np.ndarray] = {}
    keys = frozenset(column.key for column in dataset.columns_read)
    for key, rows in dataset.arrays_of(keys).gather(numbers).items():
        values = plain_numbers(rows)
        if values is None:
            raise UsageError(f"numpy does not have {show_key(key)}. Leave it out with columns=.")
        columns[key] = values
    texts = dataset.texts.gather(numbers) if dataset.texts else {}
    for key, listed in texts.items():
        assert dataset.texts is not None
        columns[key] = np.array(listed, object).reshape(len(numbers), *dataset.texts.shape(key))
    return {key: columns[key] for key in dataset.keys}
