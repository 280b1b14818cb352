"""Storages of tensors in memory: rows are written, and gathered as a dataset's are.

A storage keeps plain flat columns beside the form of its rows: a batch is one ``index_select`` a
column, never an indexing of a TensorDict.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import torch
from tensordict import TensorDictBase, is_tensor_collection

from datasets_cli.errors import EmptyBuffer, SourceError, UsageError
from datasets_cli.replay.arguments import Rows, StateDict, whole_number
from datasets_cli.replay.sharing.control import delete_with, temporary_folder
from datasets_cli.replay.sharing.counters import Counters, SharedCounters
from datasets_cli.replay.sharing.process import this_process
from datasets_cli.replay.sharing.sharing import Sharing, make_sharing
from datasets_cli.replay.storages.batch import make_batch, map_rows
from datasets_cli.replay.storages.description import (
    RowsForm,
    RowType,
    describe,
    from_description,
)
from datasets_cli.replay.storages.form import (
    Form,
    TensorDictForm,
    check_leading,
    form_of,
    inner_shape,
    leaves_of,
)
from datasets_cli.replay.storages.protocol import NO_ROWS, WritableStorage
from datasets_cli.replay.storages.values import Column, ValueColumn
from datasets_cli.replay.torchrl_words import LAZY, STORAGE, takes
from datasets_cli.store.schema import columns as leaf_columns
from datasets_cli.store.schema.bits import MOVABLE, bits_dtype, bits_of, take, type_name
from datasets_cli.store.schema.columns import Key, show_key
from datasets_cli.store.schema.device_options import ON_DISK, DeviceOptions
from datasets_cli.store.schema.tree import Tree


@takes(**LAZY)
class LazyTensorStorage(WritableStorage):
    """Tensors in memory, allocated when the first rows are written.

    Rows may have text and other values, too: each row keeps its own. Later rows have the keys,
    shapes and element types of the first ones; ``rb[:] = rows`` may add keys to all rows.

    With ``ndim`` above 1, data come as ``[environments..., time]`` and are kept time first, so that
    each environment's steps are a run of their own; ``max_size`` counts all of them, and is
    rounded up to a whole step, as TorchRL does.

    Args:
        max_size: most rows.
        device: where the tensors live; ``"auto"`` for where the first rows are.
        ndim: leading dimensions of the data that are rows.

    Raises:
        UsageError: a size is no whole number from 1 on.
    """

    device: torch.device

    def __init__(self, max_size: int, *, device: str | torch.device = "cpu", ndim: int = 1) -> None:
        self.max_size = whole_number("max_size", max_size, 1)
        self.ndim = whole_number("ndim", ndim, 1)
        self._use_device(torch.device("cpu" if device == "auto" else device))
        self._follows_rows = device == "auto"
        self._counters = Counters()
        self.sharing: Sharing | None = None
        self._must_share = False  # not only because it can
        self._alone: tuple[Sharing, str] | None = None  # what could have been shared, and by whom
        self.is_tensordict = False  # as long as nothing was written
        self._grid: tuple[int, ...] = (self.max_size,)
        self._form: Form | None = None
        # What torch cannot move is kept, and handed from flatten() to write(), as its bits.
        self._columns: list[torch.Tensor] = []
        self._values: list[ValueColumn] = []  # of the leaves that are no tensors
        self._first_form: TensorDictForm | None = None  # before keys were added
        self._row_types: list[RowType] = []  # of all columns
        self._has_bits = False

    def __len__(self) -> int:
        num_rows = self.counters.num_rows
        if num_rows and not self._columns:
            self.find_form()
        return num_rows

    @property
    def counters(self) -> Counters | SharedCounters:
        """What is counted of the rows."""
        return self._counters if self.sharing is None else self.sharing.counters

    @property
    def cursor(self) -> int:
        """The time step that is written next."""
        return self.counters.cursor

    @cursor.setter
    def cursor(self, step: int) -> None:
        with self._changing() as counters:
            counters.cursor = step

    @property
    def write_count(self) -> int:
        """Rows that were written one after the other since the storage was empty."""
        return self.counters.write_count

    @write_count.setter
    def write_count(self, count: int) -> None:
        with self._changing() as counters:
            counters.write_count = count

    @property  # set by what is counted, never as such
    def revision(self) -> int:  # type: ignore[override]
        """A number that changes whenever rows are written or cleared."""
        return self.counters.revision

    def __repr__(self) -> str:
        names = ", ".join(self._form.names) if self._form else "nothing yet"
        shape = list(self.grid) if self._form else [self.max_size]
        return (
            f"{type(self).__name__}({names}, shape={shape}, device={self.device}, "
            f"len={len(self)}, max_size={self.max_size})"
        )

    @property
    def grid(self) -> tuple[int, ...]:
        """The rows that fit, as a grid: steps, then the environments side by side."""
        self.find_form()
        return self._grid

    @property
    def capacity(self) -> int:
        """Rows that fit, more than ``max_size`` where environments do not divide it."""
        return math.prod(self.grid)

    def flatten(self, data: Rows) -> list[Column]:
        """Return the columns ``[n, ...]`` of data, time first and flat; allocate with the first.

        Raises:
            UsageError: they have another form than the rows that are there.
        """
        self.find_form()
        if self._first_form is not None and not len(self):
            self._forget_added_keys(data)
        form = self._form or form_of(data, self.ndim)
        columns = form.flatten(data)
        check_leading(form, columns, self.ndim)
        if self._form is None and self._follows_rows:
            self._use_device(columns[0].device)
        side = columns[0].transpose(0, self.ndim - 1).shape[1 : self.ndim]
        if self._form is None:
            self._begin(form, data, columns, side)
        elif self._grid[1:] != side:
            raise UsageError(
                f"The storage holds steps of {_environments(self.grid[1:])} environments; these "
                f"are of {_environments(side)}."
            )
        for name, column, own in zip(form.names, columns, self._row_types, strict=True):
            if (column.dtype, column.shape[self.ndim :]) != own:
                raise _other_type(name, own, column.dtype, column.shape[self.ndim :])
        return self._as_kept(columns)

    def _begin(self, form: Form, data: Rows, columns: list[Column], side: tuple[int, ...]) -> None:
        """Allocate the rows that fit, of the form of the first ones."""
        before = self._grid
        self._grid = (-(-self.max_size // max(1, math.prod(side))), *side)
        self._set_form(form, inner_shape(data, self.ndim), _row_types(columns, self.ndim))
        try:
            self._allocate(form)
        except BaseException:
            self._grid, self._form, self.is_tensordict = before, None, False
            raise
        self._values = self._empty_values(columns)

    def _use_device(self, device: torch.device) -> None:
        self.device = device
        self.device_options = ON_DISK if device.type == "cpu" else DeviceOptions(device)

    def _set_form(
        self, form: Form, row_batch_size: tuple[int, ...], row_types: list[RowType]
    ) -> None:
        self._form = form
        self.is_tensordict = isinstance(form, TensorDictForm)
        self.row_batch_size = row_batch_size
        self._row_types = row_types
        self._has_bits = not MOVABLE.issuperset(_dtypes(row_types))

    def _empty_values(self, columns: list[Column]) -> list[ValueColumn]:
        return [
            ValueColumn.empty((self.capacity, *column.shape[self.ndim :]))
            for column in columns
            if isinstance(column, ValueColumn)
        ]

    def add_keys(self, data: Rows) -> None:
        """Make room for the keys that rows in place of all rows have beside those that are there.

        They are forgotten when rows without them are written to the storage after ``clear``.

        Args:
            data: a TensorDict; nothing happens where it has no other keys, or not all of those that
                are there.

        Raises:
            UsageError: what the rows have under the other keys is not as it was, or the keys of
                this storage are fixed.
        """
        form = self._form
        if not isinstance(form, TensorDictForm) or not isinstance(data, TensorDictBase):
            return
        found = form_of(data, self.ndim)
        assert isinstance(found, TensorDictForm)
        if not set(found.leaves) > set(form.leaves):
            return
        before = self.flatten(data.select(*form.leaves))  # refuses what is not as it was
        whole = form.extended(found)
        columns = whole.flatten(data)
        check_leading(whole, columns, self.ndim)
        if len(before[0]) != len(self):
            return
        row_types, values = _row_types(columns, self.ndim), self._empty_values(columns)
        self._check_keys_may_be_added(whole.leaves)
        self._columns += self._empty_columns(row_types[len(self._columns) :])
        self._values += values[len(self._values) :]
        self._first_form = self._first_form or form
        self._set_form(whole, self.row_batch_size, row_types)

    def _check_keys_may_be_added(self, keys: Sequence[Key]) -> None:
        """Refuse keys where they cannot be added."""
        if self.sharing is not None:
            raise UsageError(
                f"The keys of shared rows are fixed; these have {', '.join(map(show_key, keys))}. "
                "Write all keys at first, or add them before the buffer is shared."
            )

    def _forget_added_keys(self, data: Rows) -> None:
        """Be as before keys were added, where the rows that are written do not have them."""
        first = self._first_form
        assert first is not None and isinstance(self._form, TensorDictForm)
        if not is_tensor_collection(data) or leaves_of(data).keys() != set(first.leaves):
            return
        types = dict(zip(self._form.leaves, self._row_types, strict=True))
        del self._columns[len(first.keys) :], self._values[len(first.values) :]
        self._form, self._first_form = first, None
        self._row_types = [types[key] for key in first.leaves]

    def _as_kept(self, columns: list[Column]) -> list[Column]:
        """Return columns as they are written: flat, time first, on the storage's device.

        Of types that torch cannot move, they are the bits.
        """
        if self._has_bits:
            columns = [_bits_of(column) for column in columns]
        if self.ndim > 1:
            time = self.ndim - 1
            columns = [column.transpose(0, time).flatten(0, time) for column in columns]
        # A copy to another device may fail: it must not when half of the leaves are written.
        return [
            column.detach().to(self.device) if isinstance(column, torch.Tensor) else column
            for column in columns
        ]

    def _as_given(self, columns: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return what is kept as the columns that were written."""
        pairs = zip(columns, self._row_types, strict=False)  # those of values come last
        return [column.view(dtype) for column, (dtype, _) in pairs]

    def write(self, rows: slice | torch.Tensor, columns: list[Column]) -> None:
        """Put columns ``[n, ...]`` into rows."""
        if self.sharing is not None:
            self.sharing.write(rows, _tensors(columns), self._count)
            return
        own: list[Any] = [*self._columns, *self._values]
        for kept, new in zip(own, columns, strict=True):
            kept[rows] = new
        self._count(rows)

    def _count(self, rows: slice | torch.Tensor) -> None:
        """Count rows that were written."""
        counters = self.counters
        if isinstance(rows, slice):
            counters.cursor = rows.stop // self.width % self.grid[0]
            counters.write_count += rows.stop - rows.start
        last = rows.stop if isinstance(rows, slice) else int(rows.max()) + 1
        counters.num_rows = max(counters.num_rows, last)
        counters.revision += 1

    def clear(self) -> None:
        """Forget every row."""
        with self._changing() as counters:
            counters.num_rows = counters.cursor = counters.write_count = 0
            counters.revision += 1
            counters.clears += 1
        self._values = [ValueColumn.empty(tuple(column.shape)) for column in self._values]

    def share(self) -> None:
        """Share the rows with other processes; what is there is copied into shared memory.

        Raises:
            UsageError: the rows are on another device or are no tensors, or memory has no room.
        """
        if self._values:
            raise _values_stay()
        self._must_share = True
        if self.sharing is not None:
            return
        if self.device.type != "cpu":
            raise UsageError(
                f"Rows on {self.device} cannot be shared by processes. Keep them on the CPU, and "
                "move batches."
            )
        folder = temporary_folder(in_memory=True)
        try:
            self._share_in(folder)
        finally:
            delete_with(self if self.sharing is None else self.sharing, folder)

    def _share_in(self, folder: Path) -> None:
        """Share the rows in a folder from now on."""
        known, columns = self._counters, self._columns
        self.sharing = make_sharing(folder)
        if self._form is not None:
            self._make_files(self.sharing, self._form)
            for own, old in zip(self._columns, columns, strict=True):
                own[: known.num_rows] = old[: known.num_rows]
        with self.sharing.changing() as counters:
            for name, value in vars(known).items():
                setattr(counters, name, value)

    def _make_files(self, sharing: Sharing, form: Form) -> None:
        """Make shared files for the columns of a form, and tell the other processes."""
        plain = [(str(number),) for number, _ in enumerate(self._row_types)]
        keys = form.keys if isinstance(form, TensorDictForm) else plain
        leaves = [
            leaf_columns.Column(key, type_name(dtype), tuple(size))
            for key, (dtype, size) in zip(keys, self._row_types, strict=False)  # values are last
        ]
        types = self._row_types[: len(leaves)]
        known = describe(RowsForm(form, self._grid, self.row_batch_size, types))
        try:
            sharing.allocate(leaves, self.capacity, self.width, known)
        except SourceError as error:  # what these rows have for names is their user's to change
            raise UsageError(str(error)) from error
        self._columns = sharing.columns

    def _stay_alone(self, sharing: Sharing, form: Form) -> None:
        """Keep the tensors of rows in files, and do not share them: their values are in memory.

        Raises:
            UsageError: another process has the storage already, or it was to be shared.
        """
        if self._must_share or sharing.has_others:
            raise _values_stay()
        self._make_files(sharing, form)
        self._counters = self._counted()
        self._alone, self.sharing = (sharing, this_process()), None

    def _counted(self) -> Counters:
        """Return a copy of the counters."""
        known = Counters()
        for name in vars(known):
            setattr(known, name, getattr(self.counters, name))
        return known

    def find_form(self) -> None:
        """Learn the form of the rows where another process wrote the first ones.

        Raises:
            UsageError: it is a form that cannot be told.
        """
        if self._columns or self.sharing is None or not self.sharing.find_form():
            return
        if self._form is None:
            known = from_description(self.sharing.form)
            self._grid = known.grid
            self._set_form(known.form, known.row_batch_size, known.row_types)
        self._columns = self.sharing.columns

    def __getstate__(self) -> StateDict:
        # Shared rows travel as the folder that they are in.
        return vars(self) | {"_columns": []} if self.sharing is not None else self._snapshot()

    def _snapshot(self) -> StateDict:
        """Return a state with copies of the rows there are, which is not shared."""
        known = self._counted()
        # As bytes: multiprocessing would share the memory of tensors instead of copying it.
        columns = [
            column[: known.num_rows].cpu().reshape(-1).view(torch.uint8).numpy()
            for column in self._columns
        ]
        alone = {"sharing": None, "_must_share": False, "_alone": None}
        return vars(self) | alone | {"_counters": known, "_columns": columns}

    def __setstate__(self, state: StateDict) -> None:
        vars(self).update(state)
        self._columns = []
        self.find_form()
        for values, (dtype, size) in zip(state["_columns"], self._row_types, strict=False):
            rows = torch.from_numpy(values).view(bits_dtype(dtype)).view(len(self), *size)
            column = rows.new_empty((self.capacity, *size), device=self.device)
            column[: len(rows)] = rows
            self._columns.append(column)

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """Return a storage with copies of the rows, which is not shared."""
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        copied.__setstate__(self._snapshot())
        return copied

    @contextmanager
    def _changing(self) -> Iterator[Counters | SharedCounters]:
        """Let counters be set."""
        if self.sharing is None:
            yield self._counters
            return
        with self.sharing.changing() as counters:
            yield counters

    def gather(self, index: torch.Tensor) -> Rows:
        """Return copies ``[B, ...]`` of the rows ``index`` int64 ``[B]``, in the rows' form."""
        if self._form is None:
            raise EmptyBuffer(NO_ROWS)
        if self._alone is not None and self._alone[1] != this_process():
            raise _values_stay()  # this process has their tensors, which change, and old values
        if index.device != self.device:
            index = index.to(self.device)
        columns = [column.index_select(0, index) for column in self._columns]
        if not self._values and not self._has_bits:
            return self._form.unflatten(columns)
        return self._unflatten(columns, [each.index_select(0, index) for each in self._values])

    def _unflatten(self, columns: list[torch.Tensor], values: list[ValueColumn]) -> Rows:
        """Return columns of rows in their form; of TensorDicts the nested dict."""
        assert self._form is not None
        given = self._as_given(columns) if self._has_bits else columns
        if not values:
            return self._form.unflatten(given)
        return self._form.unflatten([*given, *(column.as_entry() for column in values)])

    def as_batch(self, tree: Tree, shape: torch.Size) -> Rows:
        """Return what ``gather`` returned as one batch ``[*shape]``: TensorDicts, or tensorclasses.

        Nested ones have the batch sizes and classes that were written.
        """
        form = self._form
        assert isinstance(form, TensorDictForm)
        if form.is_plain:
            return make_batch(tree, shape, self.device)
        return form.batch(tree, shape, self.device)

    def contents(self) -> Rows:
        """Return copies of all rows, as ``flatten`` takes them: time last."""
        time = self.ndim - 1
        if not time:
            return self.run(0, len(self))
        # By column: reshaped in a TensorDict, values that are no tensors get lost.
        steps, side = len(self) // self.width, self.grid[1:]
        columns = [
            column[: len(self)].reshape(steps, *side, *column.shape[1:]).transpose(0, time).clone()
            for column in self._columns
        ]
        values = [
            column[: len(self)].reshape(steps, *side, *column.shape[1:]).transpose(0, time)
            for column in self._values
        ]
        rows = self._unflatten(columns, values)
        shape = torch.empty(steps, *side, device="meta").transpose(0, time).shape
        return self.as_batch(rows, shape) if self.is_tensordict else rows

    def one_row(self, data: Rows) -> Rows:
        """Return one row, or one step of all environments, as ``flatten`` takes several.

        Raises:
            UsageError: it is not made of tensors.
        """
        return map_rows(self._with_time, data)

    def _with_time(self, leaf: Rows) -> Rows:
        if not isinstance(leaf, torch.Tensor) and not is_tensor_collection(leaf):
            raise UsageError(
                f"A row of tensors is expected, not {type(leaf).__name__}. Tensor storages take "
                "tensors; ListStorage takes anything."
            )
        return leaf.unsqueeze(self.ndim - 1)

    def _leaf(self, key: Key) -> torch.Tensor:
        """Return a column ``[rows, ...]``: not a copy.

        Raises:
            KeyError: there is none.
        """
        if isinstance(self._form, TensorDictForm) and key in self._form.keys:
            number = self._form.keys.index(key)
            return self._columns[number][: len(self)].view(self._row_types[number][0])
        if self._form is None:
            raise EmptyBuffer(NO_ROWS)
        known = ", ".join(self._form.names)
        raise KeyError(f"The storage has no {show_key(key)}. It has: {known}")

    def has(self, key: Key) -> bool:
        """Tell whether rows have a column."""
        self.find_form()
        return isinstance(self._form, TensorDictForm) and key in self._form.keys

    def entry(self, key: Key, rows: torch.Tensor) -> torch.Tensor | None:
        """Return a column of some rows, or None where there is no such column."""
        if not self.has(key):
            return None
        return take(self._leaf(key), rows.to(self.device))

    def scalar_column(self, key: Key) -> torch.Tensor:
        """Return a column of one number a row, ``[T, W]``: T steps of W environments.

        Raises:
            KeyError: there is none.
            UsageError: it has more numbers a row.
        """
        column = self._leaf(key)
        if column.numel() != len(self):
            raise UsageError(
                f"{show_key(key)} is {tuple(column.shape[1:])} a row; trajectories need one number."
            )
        return column.reshape(-1, self.width)

    def _allocate(self, form: Form) -> None:
        """Make room for rows of a form."""
        if self.sharing is not None:
            has_values = isinstance(form, TensorDictForm) and form.values
            (self._stay_alone if has_values else self._make_files)(self.sharing, form)
            return
        self._columns = self._empty_columns(self._row_types)

    def _empty_columns(self, row_types: Sequence[RowType]) -> list[torch.Tensor]:
        return [
            torch.empty((self.capacity, *size), dtype=bits_dtype(dtype), device=self.device)
            for dtype, size in row_types
            if isinstance(dtype, torch.dtype)
        ]


@takes(**STORAGE)
class TensorStorage(LazyTensorStorage):
    """Tensors that are there already, all of them rows: nothing is copied.

    Args:
        storage: a TensorDict, a tensor, or a structure of tensors.
        max_size: their number; given for compatibility.
        device: where batches are gathered; the tensors must be there. ``"auto"`` for where they
            are.
        ndim: leading dimensions that are rows, time first.

    Raises:
        UsageError: there are no tensors, or of different lengths, or not ``max_size`` rows.
    """

    def __init__(
        self,
        storage: Rows,
        max_size: int | None = None,
        *,
        device: str | torch.device = "cpu",
        ndim: int = 1,
    ) -> None:
        form = form_of(storage, whole_number("ndim", ndim, 1))
        columns = form.flatten(storage)
        check_leading(form, columns, ndim)
        grid = tuple(columns[0].shape[:ndim])
        device = columns[0].device if device == "auto" else device
        super().__init__(max(1, math.prod(grid)), device=device, ndim=ndim)
        if max_size not in (None, self.max_size):
            raise UsageError(f"max_size={max_size}, but the storage has {self.max_size} rows.")
        self._grid = grid
        self._set_form(form, inner_shape(storage, ndim), _row_types(columns, ndim))
        # Nothing is copied: these are the tensors that were given.
        self._columns = [bits_of(column).flatten(0, ndim - 1) for column in _tensors(columns)]
        self._values = [
            column.flatten(0, ndim - 1) for column in columns if isinstance(column, ValueColumn)
        ]
        self._counters.num_rows = math.prod(grid)

    def share(self) -> None:
        """Refuse: these are tensors of the user's, in the memory of this process."""
        WritableStorage.share(self)


def _row_types(columns: Sequence[Column], ndim: int) -> list[RowType]:
    """Return what a row of each column is."""
    return [(column.dtype, torch.Size(column.shape[ndim:])) for column in columns]


def _dtypes(row_types: Sequence[RowType]) -> list[torch.dtype]:
    """Return the element types of those columns that are tensors."""
    return [dtype for dtype, _ in row_types if isinstance(dtype, torch.dtype)]


def _values_stay() -> UsageError:
    return UsageError(
        "Text and other values that are no tensors stay in one process, and cannot be shared. Keep "
        "them out of the rows, or write them as tensors, such as numbers of a list of texts."
    )


def _tensors(columns: Sequence[Column]) -> list[torch.Tensor]:
    return [column for column in columns if isinstance(column, torch.Tensor)]


def _bits_of(column: Column) -> Column:
    return bits_of(column) if isinstance(column, torch.Tensor) else column


def _other_type(
    name: str,
    own: RowType,
    dtype: Any,
    shape: torch.Size,
) -> UsageError:
    """Return the error of a column that is not as that of the storage."""
    if dtype != own[0]:
        return UsageError(
            f"{name} is {own[0]} in the storage and {dtype} in these rows. Nothing is converted "
            f"when it is written: pass {name} as {own[0]}, such as by .to({own[0]})."
        )
    return UsageError(
        f"{name} has the shape {list(own[1])} a row in the storage, and {list(shape)} in these "
        "rows. Reshape them, or write them to another storage."
    )


def _environments(side: Sequence[int]) -> str:
    """Return how many environments there are, as data come: the last of a step's sizes first."""
    return " x ".join(map(str, (*side[-1:], *side[:-1])))
