"""The table of a dataset's trajectories: a row each, with columns computed on first use."""

from __future__ import annotations

import functools
import hashlib
import logging
import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args

import numpy as np

from datasets_cli.core.options import check_choice
from datasets_cli.core.quantities import counted, html_table
from datasets_cli.core.system_errors import check_memory
from datasets_cli.errors import RldsError, UnknownKey, WrongRows
from datasets_cli.replay.arguments import NestedKey, key_of
from datasets_cli.schema.columns import (
    NUMPY_TYPES,
    REWARD,
    TERMINATED,
    TRUNCATED,
    Column,
    Key,
    key_in,
    refuse_missing_reward,
    rows_per_block,
    show_key,
)
from datasets_cli.schema.shapes import LengthArray, OffsetArray, RowArray
from datasets_cli.schema.texts import LANGUAGE, SPLIT, TextColumn
from datasets_cli.schema.trajectories import lengths_of, runs_within
from datasets_cli.store.arrays import ArraySource, plain_numbers
from datasets_cli.store.cache_root import CacheRoot, has_manifest
from datasets_cli.store.content import canonical_json
from datasets_cli.store.tables import map_array, write_array

if TYPE_CHECKING:
    import pandas


logger = logging.getLogger(__name__)

Blocks = Iterable[tuple[int, np.ndarray]]
"""Parts of an array, each after the place of its first value."""


def cached_array(
    dataset: ArraySource,
    root: CacheRoot | None,
    name: str,
    form: tuple[np.dtype, tuple[int, ...]],
    compute: Callable[[], Blocks],
) -> np.ndarray:
    """Return an array of the given dtype and shape, from the cache or computed."""
    dtype, shape = form
    content = dataset.manifest.content
    # The cache holds tables of whole datasets, by their content; not of views.
    if root is not None and dataset.selection is None:
        if (cached := map_array(root, content, name, dtype, shape)) is not None:
            return cached
        # Do not cache the table of a dataset that was deleted while it was open.
        if has_manifest(dataset.folder):
            try:
                write_array(root, content, name, dtype, shape, compute())
                if (cached := map_array(root, content, name, dtype, shape)) is not None:
                    return cached
            except (OSError, RldsError) as error:  # compute it in memory
                logger.debug("%s of %s is not cached: %s", name, content, error)
    check_memory(math.prod(shape) * dtype.itemsize, dataset.id)
    return joined(compute(), dtype, shape)


def joined(blocks: Blocks, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array of the given blocks."""
    array = np.empty(shape, dtype)
    for first, values in blocks:
        array[first : first + len(values)] = values.reshape(-1, *shape[1:])
    return array


def values_of_view(
    dataset: ArraySource, values_of: Callable[[Any], np.ndarray], *, by_row: bool
) -> np.ndarray:
    """Return the values of a dataset, or of a view by row or by trajectory.

    dataset     0 0 0 0 1 1 2 2 2
    view            0 0     2 2 2      2 is whole: its values are the dataset's; 0 is cut
    """
    selection = dataset.selection
    if selection is None:
        return values_of(dataset)
    from datasets_cli.store.dataset import Dataset  # imports torch, which views need
    from datasets_cli.store.selection import SelectedRowMap

    assert isinstance(dataset, Dataset), "nothing else has a selection"
    offsets = dataset.whole.starts
    is_cut = ~selection.are_whole(offsets)
    if is_cut.all():
        return values_of(dataset)
    # Values of whole trajectories are read from the table of the dataset; compute the others.
    whole, places = values_of(dataset.whole), selection.numbers
    if by_row:
        check_memory(len(dataset) * whole[0].nbytes, dataset.id)
        places = SelectedRowMap(selection, offsets).numbers(np.arange(len(dataset)))
    values: np.ndarray = whole.take(places, 0)
    if is_cut.any():
        cut = dataset.select(selection.at(np.flatnonzero(is_cut), ""))
        values[np.repeat(is_cut, selection.lengths) if by_row else is_cut] = values_of(cut)
    return values


Reduction = Literal["max", "min", "sum", "mean", "first", "last", "any", "all"]
REDUCTIONS: tuple[str, ...] = get_args(Reduction)

UFUNCS = {
    "max": np.maximum,
    "min": np.minimum,
    "sum": np.add,
    "mean": np.add,
    "any": np.logical_or,
    "all": np.logical_and,
}
"""Reductions of several numbers; "first" and "last" select rows."""

AS_FLOAT32 = frozenset(
    {"bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"}
)
"""Dtypes that numpy does not have; float32 represents all their numbers."""

BLOCK_ROWS = 16_384
"""The most rows of a block; four times as many took a third longer for records of 11 leaves."""


def reduced_leaf(
    dataset: ArraySource, column: Column, reduction: str, root: CacheRoot | None
) -> np.ndarray:
    """Return a reduction of a leaf ``[K, *shape]`` of a dataset or a view, cached of a dataset."""
    of_rows = block_dtype(column)
    assert of_rows is not None, "a leaf of numbers"
    dtype = reduced_dtype(reduction, of_rows)
    # Part of a file name: the names of a key may not be valid in one.
    digest = hashlib.sha256(canonical_json(list(column.key))).hexdigest()[:32]

    def values_of(part: ArraySource) -> np.ndarray:
        form = dtype, (part.num_trajectories, *column.shape)
        # Computed once, even if it cannot be cached.
        compute = functools.cache(lambda: [(0, _reduced(part, column, reduction, *form))])
        return cached_array(part, root, f"trajectories-{reduction}-{digest}", form, compute)

    return values_of_view(dataset, values_of, by_row=False).astype(dtype, copy=False)


def _reduced(
    dataset: ArraySource, column: Column, reduction: str, dtype: np.dtype, shape: tuple[int, ...]
) -> np.ndarray:
    check_memory(math.prod(shape) * dtype.itemsize, dataset.id)
    reduced = np.empty(shape, dtype)
    offsets = dataset.starts
    if reduction in UFUNCS:
        reduce_blocks(reduction, leaf_blocks(dataset, column), offsets, reduced)
        return reduced
    number = 0
    for block in leaf_blocks(
        dataset, column, offsets[:-1] if reduction == "first" else offsets[1:] - 1
    ):
        reduced[number : number + len(block)] = block
        number += len(block)
    return reduced


def reduced_dtype(reduction: str, dtype: np.dtype) -> np.dtype:
    """Return the dtype of a reduction of a column of the given dtype."""
    if reduction in ("sum", "mean"):
        return np.dtype(np.float64)
    return np.dtype(np.bool_) if reduction in ("any", "all") else dtype


def reduce_entries(reduction: str, values: np.ndarray) -> np.ndarray:
    """Return a reduction of the numbers of each row of ``[n, ...]``, ``[n]``."""
    with np.errstate(invalid="ignore", over="ignore"):  # NaN and infinity are results
        reduced: np.ndarray = UFUNCS[reduction].reduce(values, axis=tuple(range(1, values.ndim)))
    return reduced / math.prod(values.shape[1:]) if reduction == "mean" else reduced


def reduce_blocks(
    reduction: str, blocks: Iterable[np.ndarray], offsets: OffsetArray, reduced: np.ndarray
) -> None:
    """Write a reduction of the rows of each trajectory into ``reduced`` ``[K, *shape]``.

    The blocks ``[n, *shape]`` are all rows in order; ``reduced`` has the ``reduced_dtype``.

    offsets 0 3 7    block of rows 2 to 4: trajectories 0 and 1, whose rows start at 0 and 1 of it
    """
    ufunc = UFUNCS[reduction]
    row = 0
    for block in blocks:
        # Convert first: sums of float32 are added in float64, and "any" and "all" reduce bools.
        values = block.astype(reduced.dtype, copy=False)
        trajectories, starts = runs_within(offsets, row, row + len(values))
        with np.errstate(invalid="ignore", over="ignore"):  # NaN and infinity are results
            parts = ufunc.reduceat(values, starts, axis=0)
            if offsets[trajectories.start] < row:  # it started in an earlier block
                parts[0] = ufunc(reduced[trajectories.start], parts[0])
        reduced[trajectories] = parts
        row += len(values)
    if reduction == "mean":
        reduced /= lengths_of(offsets).reshape(-1, *(1,) * (reduced.ndim - 1))


def block_dtype(column: Column) -> np.dtype | None:
    """Return the dtype of a leaf's blocks, or None if numpy has no dtype for its numbers."""
    if column.dtype in AS_FLOAT32:
        return np.dtype(np.float32)
    return np.dtype(column.dtype) if column.dtype in NUMPY_TYPES else None


def leaf_blocks(
    dataset: ArraySource, column: Column, rows: RowArray | None = None
) -> Iterator[np.ndarray]:
    """Yield the given rows of a leaf, or all, in blocks ``[n, *shape]`` of a few megabytes."""
    reader = dataset.arrays_of(frozenset({column.key}))
    num_rows = len(dataset) if rows is None else len(rows)
    # Blocks by the size of whole rows, equal in every layout: sums are then equal bit for bit.
    step = min(BLOCK_ROWS, rows_per_block(dataset.row_bytes))
    for start in range(0, num_rows, step):
        stop = min(start + step, num_rows)
        read = reader.run(start, stop) if rows is None else reader.gather(rows[start:stop])
        numbers = plain_numbers(read[column.key])
        assert numbers is not None, "a leaf of numbers"
        yield numbers


TEXTS: dict[str, Key] = {"split": SPLIT, "language": LANGUAGE}
"""Columns that are the text of the first row."""

SHOWN = 4
"""Rows at each end of a printed table."""

MOST_CHARACTERS = 40
"""The width of a column of text in a printed table."""

REDUCED: dict[str, tuple[tuple[Key, ...], Reduction]] = {
    "return": ((REWARD,), "sum"),
    "terminated": ((TERMINATED,), "last"),
    "truncated": ((TRUNCATED,), "last"),
    "success": ((("next", "info", "success"), ("info", "success")), "any"),
}
"""Columns that are reductions: the candidate leaves, of which the first is used, and how."""


class HasDataset(Protocol):
    """A storage of a dataset's rows, which pickles by the folder of the dataset."""

    @property
    def dataset(self) -> ArraySource:
        """The dataset, or a view of it."""


class Trajectories:
    """The trajectories of a dataset as a table, a row each.

        replay.trajectories["return"].max()
        replay.trajectories.reduce("action", "mean")

    Its columns are read-only arrays by name, computed on first use: ``number``, which a view takes
    from its dataset; ``start``, the first row in the dataset or the view; ``length``, the recorded
    steps; and ``num_transitions``, the rows, int64 ``[K]``. ``return`` is the sum of the rewards,
    float64 ``[K]``; ``terminated`` and ``truncated`` are of the last row, bool ``[K]``. If the
    publisher flags successful steps, ``success`` is whether any step succeeded, bool ``[K]``.
    ``split``, the publisher's, and ``language``, the instruction, are text, if it states them.

    ``length``, ``return`` and ``success`` include the final step, which is not a row. A view that
    cuts the last row of a trajectory cuts its final step, too. Reductions of leaves are of rows.

    Columns that need reading are cached under the cache root, for all layouts and views of the same
    data.

    Args:
        storage: the dataset, or a view of it.
        root: the cache root; None for no cache.
    """

    def __init__(self, storage: HasDataset, root: CacheRoot | None) -> None:
        self._storage, self._root = storage, root
        self._leaves = {column.key: column for column in storage.dataset.manifest.columns}
        self._columns: dict[str, np.ndarray] = {}
        self._reductions: dict[tuple[NestedKey, str], np.ndarray] = {}

    def __len__(self) -> int:
        return self._storage.dataset.num_trajectories

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def keys(self) -> list[str]:
        """Return the names of the columns; a dataset of ``preprocess`` may lack some."""
        reduced = (name for name in REDUCED if self._leaf_of(name) is not None)
        texts = (name for name in TEXTS if self._text_of(name) is not None)
        return ["number", "start", "length", "num_transitions", *reduced, *texts]

    def __getitem__(self, name: str) -> np.ndarray:
        """Return a column; ``[K]``, or ``[K, n]`` of rewards that are n numbers each."""
        if not isinstance(name, str):
            raise UnknownKey(
                f"The trajectories of {self._id} are read by the name of a column, not by "
                f"{name!r}.",
                id=self._id,
                expected=list(self),
                found=name,
                advice=f"Read one of {', '.join(self)}: table['length'][:3].",
            )
        if name not in self._columns:
            self._columns[name] = _read_only(self._column(name))
        return self._columns[name]

    @property
    def num_transitions(self) -> LengthArray:
        """The number of rows of each trajectory, int64 ``[K]``."""
        return self["num_transitions"]

    def reduce(self, key: NestedKey, reduction: Reduction) -> np.ndarray:
        """Reduce the rows of a leaf in each trajectory to one value.

        Args:
            key: a leaf of numbers.
            reduction: ``"max"``, ``"min"``, ``"first"`` and ``"last"`` have the leaf's dtype;
                ``"sum"`` and ``"mean"`` are float64; ``"any"`` and ``"all"`` of nonzero values are
                bool. With NaN among the rows, the maximum, minimum, sum and mean are NaN; NaN is
                nonzero. Numbers of bfloat16 and float8 become float32.

        Returns:
            ``[K, *shape]``, read-only; ``[K]`` if a row of the leaf is one number, ``[1]``.

        Raises:
            UnknownKey: no leaf has this key.
            UsageError: the reduction is unknown, or the values would take more than half of the
                free memory.
            WrongRows: the leaf is text or complex.
        """
        check_choice("reduction", reduction, REDUCTIONS)
        leaf = self._leaf(key)
        if (key := leaf.key, reduction) not in self._reductions:
            values = reduced_leaf(self._storage.dataset, leaf, reduction, self._root)
            values = values[:, 0] if leaf.shape == (1,) else values
            self._reductions[key, reduction] = _read_only(values)
        return self._reductions[key, reduction]

    def has(self, key: Key) -> bool:
        """Return whether rows have a leaf, of numbers or of text."""
        return key in self._leaves or self._is_text(key)

    def blocks(self, key: NestedKey) -> Iterator[np.ndarray]:
        """Return an iterator over all rows of a leaf, in blocks ``[n, *shape]`` of some megabytes.

        Args:
            key: a leaf of numbers.

        Raises:
            UnknownKey: no leaf has this key.
            WrongRows: the leaf is text or complex.
        """
        return leaf_blocks(self._storage.dataset, self._leaf(key))

    def to_pandas(self) -> pandas.DataFrame:
        """Return the table as a DataFrame; rewards of n numbers become ``return.0`` to n - 1."""
        import pandas  # slow to import, and rarely needed

        columns: dict[str, np.ndarray] = {}
        for name in self:
            values = self[name]
            if values.ndim == 1:
                columns[name] = values
            else:
                parts = values.reshape(len(values), -1).T
                columns |= {f"{name}.{place}": part for place, part in enumerate(parts)}
        return pandas.DataFrame(columns)

    def __repr__(self) -> str:
        if not len(self):
            return f"{self._title}; columns: {', '.join(self)}"
        table = self.to_pandas().to_string(
            index=False,
            max_rows=2 * SHOWN,
            max_colwidth=MOST_CHARACTERS,
            float_format="{:.6g}".format,
        )
        return f"{self._title}:\n{table}"

    def _repr_html_(self) -> str:
        return html_table(self._title, self.to_pandas())

    @property
    def _title(self) -> str:
        return f"{type(self).__name__} of {self._id}, {counted(len(self), 'row')}"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._storage, self._root)  # computed columns are in the cache

    @property
    def _id(self) -> str:
        return self._storage.dataset.id

    def _leaf_of(self, name: str) -> Key | None:
        """Return the leaf that the column of a name reduces; None for a column without one."""
        keys, _ = REDUCED.get(name, ((), ""))
        return next((key for key in keys if key in self._leaves), None)

    def _text_of(self, name: str) -> Key | None:
        """Return the key of the text that is the column of a name; None for other columns."""
        text = TextColumn(TEXTS.get(name, ()), ())
        return text.key if text in self._storage.dataset.manifest.texts else None

    def _column(self, name: str) -> np.ndarray:
        dataset = self._storage.dataset
        offsets, selection = dataset.starts, dataset.selection
        if name == "number":
            return np.arange(len(self)) if selection is None else selection.numbers.copy()
        if name == "start":
            return offsets[:-1].copy()
        if name in ("length", "num_transitions"):
            lengths = lengths_of(offsets)
            lengths[dataset.final_places()[0]] += name == "length"
            return lengths
        if key := self._text_of(name):
            return dataset.first_texts(key)
        if leaf := self._leaf_of(name):
            _, reduction = REDUCED[name]
            values = self.reduce(leaf, reduction)
            return values if reduction == "last" else self._with_final(leaf, reduction, values)
        if name == "return":
            self._storage.dataset.manifest.check_rewards("the return of a trajectory")
        raise UnknownKey(
            f"The trajectories of {self._id} have no column {name!r}. Expected one of "
            f"{', '.join(self)}.",
            id=self._id,
            key=name,
            expected=list(self),
            advice=f"Compute others by a reduction: {', '.join(REDUCTIONS)}, such as "
            "reduce('action', 'max'), or max(action) in a condition.",
        )

    def _with_final(self, leaf: Key, reduction: str, values: np.ndarray) -> np.ndarray:
        """Return a reduction ``[K, ...]`` over the rows that includes the final steps."""
        dataset = self._storage.dataset
        numbers, places = dataset.final_places()
        if not len(numbers) or leaf not in dataset.final.keys:
            return values
        final = plain_numbers(dataset.final[leaf][places])
        assert final is not None, "the rows are reduced"
        values, final = values.copy(), final.reshape(-1, *values.shape[1:])
        with np.errstate(invalid="ignore", over="ignore"):  # NaN and infinity are results
            values[numbers] = UFUNCS[reduction](values[numbers], final)
        return values

    def _is_text(self, key: Key) -> bool:
        return any(text.key == key for text in self._storage.dataset.manifest.texts)

    def _leaf(self, name: NestedKey) -> Column:
        """Return a leaf that can be reduced."""
        columns = self._storage.dataset.manifest.all_columns
        key = key_in((each.key for each in columns), key_of(name))
        if self._is_text(key):
            raise WrongRows(
                f"{show_key(key)} of {self._id} is text, not numbers to reduce.",
                id=self._id,
                key=key,
                expected="real numbers",
                found="text",
            )
        if key not in self._leaves:
            refuse_missing_reward(key, "this call", self._id)
            below = [name for name in self._leaves if name[: len(key)] == key]
            expected = ", ".join(show_key(name) for name in below or self._leaves)
            raise UnknownKey(
                f"{self._id} has no leaf {show_key(key)}. Expected one of {expected}.",
                id=self._id,
                key=key,
                expected=expected,
            )
        column = self._leaves[key]
        dtype = block_dtype(column)
        if dtype is None or dtype.kind == "c":
            raise WrongRows(
                f"{show_key(key)} of {self._id} is {column.dtype}; only real numbers can be "
                "reduced.",
                id=self._id,
                key=key,
                expected="real numbers",
                found=column.dtype,
                advice="Convert them with preprocess() first.",
            )
        return column


def sorted_places(values: np.ndarray, by: str) -> np.ndarray:
    """Return the places of the values of a column in the order ``by``, int64 ``[K]``.

    A ``-`` before the name sorts the largest first. Equal values keep their order; NaN comes last.
    """
    is_text = values.dtype.hasobject
    keys = np.unique(values, return_inverse=True)[1] if is_text else values.astype(np.float64)
    return np.argsort(-keys if by.startswith("-") else keys, kind="stable")


def _read_only(values: np.ndarray) -> np.ndarray:
    values.flags.writeable = False
    return values
