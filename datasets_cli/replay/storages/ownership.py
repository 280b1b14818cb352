"""Who has the rows of a storage, this process or several, and what is counted of them."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from datasets_cli.errors import SourceError, UsageError
from datasets_cli.replay.arguments import StateDict
from datasets_cli.replay.sharing.files import Counters, SharedCounters, SharedForm, check_empty
from datasets_cli.replay.sharing.process import begin_before_fork, this_process
from datasets_cli.replay.sharing.sharing import Sharing, make_sharing
from datasets_cli.replay.sharing.temporary import delete_with, temporary_folder
from datasets_cli.replay.storages.columns import (
    Form,
    Node,
    PytreeForm,
    RowColumns,
    RowsForm,
    RowType,
    TensorDictForm,
    new_columns,
)
from datasets_cli.replay.storages.description import TENSORS, describe, restore
from datasets_cli.schema.bits import torch_dtype, type_name
from datasets_cli.schema.columns import Column

_BEGINNING = threading.Lock()


class Ownership:
    """Who has the rows of a storage, and what is counted of them; one process has them at first."""

    def __init__(self) -> None:
        self.sharing: Sharing | None = None
        self._must_share = False  # not only because it can
        self._counters = Counters()
        self._alone: tuple[Sharing, str] | None = None  # what could have been shared, and by whom
        self._later: tuple[Path, bool] | None = None  # where it will, and over what may be there

    @property
    def counters(self) -> Counters | SharedCounters:
        """What is counted of the rows."""
        return self._counters if self.sharing is None else self.sharing.counters

    @contextmanager
    def changing(self) -> Iterator[Counters | SharedCounters]:
        """Let counters be set."""
        if self.sharing is None:
            yield self._counters
            return
        with self.sharing.changing() as counters:
            yield counters

    @property
    def is_shared(self) -> bool:
        """Whether other processes have the rows, or will have them from the first write on."""
        return self.sharing is not None or self._later is not None

    def share_later(self, folder: Path, *, existsok: bool) -> None:
        """Share rows in a folder from the first write on, or once another process has them."""
        self._later = folder, existsok
        begin_before_fork(self)

    def begin(self) -> None:
        """Share the rows from now on that were to be shared later."""
        if self._later is None:
            return
        with _BEGINNING:  # another thread may write its first rows, too
            if self._later is None:
                return
            folder, existsok = self._later
            if not existsok:
                check_empty(folder)
            self.share_in(folder, None)
            self._later = None

    def share(self, rows: RowColumns | None, device: torch.device) -> None:
        """Share rows with other processes; what is there is copied into shared memory."""
        if rows is not None and rows.form.has_values:
            raise _values_stay()
        if self.is_shared:
            self._must_share = True
            return
        if device.type != "cpu":
            raise UsageError(
                f"Rows on {device} cannot be shared by processes. Keep them on the CPU, and move "
                "batches."
            )
        folder = temporary_folder(in_memory=True)
        try:
            self.share_in(folder, rows)
            self._must_share = True
        finally:
            delete_with(self, folder)

    def share_in(self, folder: Path, rows: RowColumns | None) -> None:
        """Share rows in a folder from now on; those that are there are copied into it."""
        known = self._counters
        sharing = make_sharing(folder)
        if rows is not None:
            own, there = _shared_columns(sharing, rows.form), slice(0, known.num_rows)
            sharing.reserve(there)
            old, rows.columns = rows.columns, [*own]
            rows.write(there, [column[there] for column in old])
        self.sharing = sharing
        with self.sharing.changing() as counters:
            for name, value in vars(known).items():
                setattr(counters, name, value)

    def allocate(self, form: RowsForm, device: torch.device) -> RowColumns:
        """Return columns with room for rows of a form, shared where the others are."""
        self.begin()
        if self.sharing is None:
            return new_columns(form, device)
        make = self._stay_alone if form.has_values else _shared_columns
        return new_columns(form, device, make(self.sharing, form))

    def _stay_alone(self, sharing: Sharing, form: RowsForm) -> list[torch.Tensor]:
        """Return columns in files, which are not shared: other values of the rows are in memory."""
        if self._must_share or sharing.has_others:
            raise _values_stay()
        columns = _shared_columns(sharing, form)
        self._counters = self._counted()
        self._alone, self.sharing = (sharing, this_process()), None
        return columns

    def reserve(self, rows: slice | torch.Tensor) -> None:
        """Give rows that are to be written their place on the disk, where they are in files."""
        sharing = self._alone[0] if self._alone is not None else self.sharing
        if sharing is not None:
            sharing.reserve(rows)

    def count(self, rows: slice | torch.Tensor, grid: tuple[int, ...]) -> None:
        """Count rows that were written."""
        # rows: consecutive ones, or numbered int64 `[n]`.
        counters = self.counters
        if isinstance(rows, slice):
            # The cursor counts time steps, and begins again after the last one that fits.
            counters.cursor = rows.stop // math.prod(grid[1:]) % grid[0]
            counters.write_count += rows.stop - rows.start
        last = rows.stop if isinstance(rows, slice) else int(rows.max()) + 1
        counters.num_rows = max(counters.num_rows, last)
        counters.revision += 1

    def clear(self) -> None:
        """Count no rows."""
        with self.changing() as counters:
            counters.num_rows = counters.cursor = counters.write_count = 0
            counters.revision += 1
            counters.clears += 1

    def check_values(self) -> None:
        """Check that values which are not tensors are those of this process."""
        if self._alone is not None and self._alone[1] != this_process():
            raise _values_stay()

    def copied(self) -> Ownership:
        """Return what a copy of the rows has, which is not shared."""
        copied = Ownership()
        copied._counters = self._counted()
        return copied

    def _counted(self) -> Counters:
        """Return a copy of the counters."""
        known = Counters()
        for name in vars(known):
            setattr(known, name, getattr(self.counters, name))
        return known


def _shared_columns(sharing: Sharing, rows: RowsForm) -> list[torch.Tensor]:
    """Return shared columns of those leaves that are tensors; tell the other processes of them."""
    numbered = [(str(number),) for number, _ in enumerate(rows.row_types)]
    keys = rows.form.keys if isinstance(rows.form, TensorDictForm) else numbered
    leaves = [
        Column(key, type_name(dtype), tuple(size))
        for key, (dtype, size) in zip(keys, rows.tensor_types, strict=True)
    ]
    try:
        sharing.allocate(SharedForm(tuple(leaves), rows.grid, tell_form(rows.form)))
    except SourceError as error:  # what these rows have for names is their user's to change
        raise UsageError(str(error)) from error
    return sharing.columns


def tell_form(form: Form) -> StateDict | None:
    """Return a form as JSON; None where that cannot tell it, as of classes of the user's own."""
    if isinstance(form, TensorDictForm):
        nodes = form.nodes.items()
        told = {"nodes": [[key, node.inner] for key, node in nodes]}
        return None if any(node.kind for _, node in nodes) else told
    try:
        numbers = [torch.empty(0) for _ in form.names]
        return {"structure": describe(form.unflatten(numbers), kinds=TENSORS)[0]}
    except UsageError:
        return None


def form_told(shared: SharedForm) -> RowsForm:
    """Return the form of rows that another process told this one."""
    told, leaves = shared.form, shared.leaves
    if told is None:
        raise UsageError(
            "Another process wrote the first rows of this storage, and they are of classes that "
            "this one cannot know of. Write the first rows before the buffer reaches other "
            "processes."
        )
    if "nodes" in told:
        nodes = {tuple(key): Node(tuple(inner)) for key, inner in told["nodes"]}
        form: Form = TensorDictForm([leaf.key for leaf in leaves], nodes=nodes)
    else:
        form = PytreeForm(restore(told["structure"], [torch.empty(0) for _ in leaves]))
    types: list[RowType] = [(torch_dtype(leaf.dtype), torch.Size(leaf.shape)) for leaf in leaves]
    return RowsForm(form, shared.grid, types)


def _values_stay() -> UsageError:
    return UsageError(
        "Text and other values that are not tensors stay in one process and cannot be shared. Keep "
        "them out of the rows, or write them as tensors, such as numbers of a list of texts."
    )
