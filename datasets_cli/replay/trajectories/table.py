"""The table of a dataset's trajectories: a row each, columns worked out when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

import numpy as np

from datasets_cli.errors import UnknownKey, UsageError
from datasets_cli.quantities import counted, html_table
from datasets_cli.replay.nested_keys import NestedKey, key_of
from datasets_cli.replay.trajectories.reductions import (
    REDUCTIONS,
    Reduction,
    block_dtype,
    leaf_blocks,
    reduced_leaf,
)
from datasets_cli.schema.columns import (
    REWARD,
    TERMINATED,
    TRUNCATED,
    Column,
    Key,
    key_in,
    refuse_missing_reward,
    show_key,
)
from datasets_cli.schema.trajectories import lengths_of
from datasets_cli.store.arrays import ArraySource
from datasets_cli.store.cache_root import CacheRoot

if TYPE_CHECKING:
    import pandas

SHOWN = 4
"""Rows at each end of what is printed of a table."""

REDUCED: dict[str, tuple[tuple[Key, ...], Reduction]] = {
    "return": ((REWARD,), "sum"),
    "terminated": ((TERMINATED,), "last"),
    "truncated": ((TRUNCATED,), "last"),
    "success": ((("next", "info", "success"), ("info", "success")), "any"),
}
"""Columns that are reductions: the leaves that they may be of, the first that there is, and how."""


class HasDataset(Protocol):
    """A storage of a dataset's rows, which pickles by the folder of the dataset."""

    @property
    def dataset(self) -> ArraySource:
        """The dataset, or a view of it."""


class Trajectories:
    """The trajectories of a dataset as a table, a row each.

        replay.trajectories["return"].max()
        replay.trajectories.reduce("action", "mean")

    Its columns are read-only arrays by name, worked out when they are first asked for: ``number``,
    from 0 on in a dataset and the dataset's own in a view, ``start``, the first row in the dataset
    or the view, and ``length``, int64 ``[K]``; ``return``, the sum of the
    rewards, float64 ``[K]``; ``terminated`` and ``truncated`` of the last step, bool ``[K]``; and,
    where the publisher says which steps succeed, ``success``, whether any does, bool ``[K]``.

    What took reading is kept under the cache root, for every layout of the same data and all views.

    Args:
        storage: the dataset, or a view of it.
        root: the cache root; nothing is kept where None.
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
        """Return the names of the columns; a dataset of ``preprocess`` need not have them all."""
        reduced = (name for name in REDUCED if self._leaf_of(name) is not None)
        return ["number", "start", "length", *reduced]

    def __getitem__(self, name: str) -> np.ndarray:
        """Return a column; ``[K]``, or ``[K, n]`` of rewards that are n numbers each."""
        if not isinstance(name, str):
            raise UnknownKey(
                f"The trajectories of {self._id} are read by column, not by {name!r}: "
                f"{', '.join(self)}. A column is an array: table['return'][:3]."
            )
        if name not in self._columns:
            self._columns[name] = _read_only(self._column(name))
        return self._columns[name]

    @property
    def lengths(self) -> np.ndarray:
        """The rows of each trajectory, int64 ``[K]``."""
        return self["length"]

    def reduce(self, key: NestedKey, reduction: Reduction) -> np.ndarray:
        """Return one value of each trajectory, made of a leaf's rows in it.

        Args:
            key: a leaf of numbers.
            reduction: ``"max"``, ``"min"``, ``"first"`` and ``"last"`` have the leaf's element
                type; ``"sum"`` and ``"mean"`` are float64; ``"any"`` and ``"all"``, of what is not
                0, are bool. NaN among the rows makes the first two and the sum and the mean NaN,
                and it is not 0. Numbers of bfloat16 and float8 become float32.

        Returns:
            ``[K, *shape]``, read-only; ``[K]`` where a row of the leaf is one number, ``[1]``.

        Raises:
            UnknownKey: there is no such leaf.
            UsageError: there is no such reduction, the leaf is text or complex, or the values would
                take more than half of the free memory.
        """
        if reduction not in REDUCTIONS:
            raise UsageError(
                f"Trajectories cannot be reduced by {reduction!r}. Expected one of "
                f"{', '.join(REDUCTIONS)}."
            )
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
            UnknownKey: there is no such leaf.
            UsageError: the leaf is text or complex.
        """
        return leaf_blocks(self._storage.dataset, self._leaf(key))

    def to_pandas(self) -> pandas.DataFrame:
        """Return the table as a DataFrame; of rewards of n numbers, ``return.0`` up to n - 1."""
        import pandas  # heavy, and few ask for it

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
            index=False, max_rows=2 * SHOWN, float_format="{:.6g}".format
        )
        return f"{self._title}:\n{table}"

    def _repr_html_(self) -> str:
        return html_table(self._title, self.to_pandas())

    @property
    def _title(self) -> str:
        return f"{type(self).__name__} of {self._id}, {counted(len(self), 'row')}"

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._storage, self._root)  # what was worked out is under the root

    @property
    def _id(self) -> str:
        return self._storage.dataset.id

    def _leaf_of(self, name: str) -> Key | None:
        """Return the leaf that a column of a name is a reduction of; None for other columns."""
        keys, _ = REDUCED.get(name, ((), ""))
        return next((key for key in keys if key in self._leaves), None)

    def _column(self, name: str) -> np.ndarray:
        offsets, selection = self._storage.dataset.starts, self._storage.dataset.selection
        if name == "number":
            return np.arange(len(self)) if selection is None else selection.numbers.copy()
        if name == "start":
            return offsets[:-1].copy()
        if name == "length":
            return lengths_of(offsets)
        if leaf := self._leaf_of(name):
            return self.reduce(leaf, REDUCED[name][1])
        if name == "return":
            self._storage.dataset.manifest.check_rewards("the return of a trajectory")
        raise UnknownKey(
            f"The trajectories of {self._id} have no column {name!r}. Expected one of "
            f"{', '.join(self)}; reduce(key, reduction) makes others."
        )

    def _is_text(self, key: Key) -> bool:
        return any(text.key == key for text in self._storage.dataset.manifest.texts)

    def _leaf(self, name: NestedKey) -> Column:
        """Return a leaf that can be reduced."""
        columns = self._storage.dataset.manifest.all_columns
        key = key_in((each.key for each in columns), key_of(name))
        if self._is_text(key):
            raise UsageError(f"{show_key(key)} of {self._id} is text, not numbers to reduce.")
        if key not in self._leaves:
            refuse_missing_reward(key, "this call", self._id)
            below = [name for name in self._leaves if name[: len(key)] == key]
            expected = ", ".join(show_key(name) for name in below or self._leaves)
            raise UnknownKey(f"{self._id} has no leaf {show_key(key)}. Expected one of {expected}.")
        column = self._leaves[key]
        dtype = block_dtype(column)
        if dtype is None or dtype.kind == "c":
            raise UsageError(
                f"{show_key(key)} of {self._id} is {column.dtype}; expected real numbers to "
                "reduce. Convert them with preprocess() first."
            )
        return column


def _read_only(values: np.ndarray) -> np.ndarray:
    values.flags.writeable = False
    return values
