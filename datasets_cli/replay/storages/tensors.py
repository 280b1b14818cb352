"""Storages of tensors in memory: given, allocated when written, or in memory-mapped files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import Rows, StateDict, whole_number
from datasets_cli.replay.sharing.files import check_empty
from datasets_cli.replay.sharing.temporary import delete_with, temporary_folder
from datasets_cli.replay.storages.batches import as_bits
from datasets_cli.replay.storages.form import check_leading, form_of
from datasets_cli.replay.storages.row_columns import RowColumns, RowsForm, row_types_of
from datasets_cli.replay.storages.tensor_rows import TensorRows
from datasets_cli.replay.torchrl_words import LAZY, MAPPED, STORAGE, takes
from datasets_cli.schema.columns import Key, show_key


@takes(**STORAGE)
class TensorStorage(TensorRows):
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
        # Nothing is copied: these are the tensors that were given.
        flat = [as_bits(column).flatten(0, ndim - 1) for column in columns]
        self._use_rows(RowColumns(RowsForm(form, grid, row_types_of(columns, ndim)), flat))
        self.counters.num_rows = math.prod(grid)


@takes(**LAZY)
class LazyTensorStorage(TensorStorage):
    """Tensors in memory, allocated when the first rows are written.

    Rows may have text and other values, too: each row keeps its own. Later rows have the keys,
    shapes and element types of the first ones; ``rb[:] = rows`` may add keys to all rows.

    With ``ndim`` above 1, data come as ``[environments..., time]`` and are kept time first, so that
    each environment's steps are one run; ``max_size`` counts all of them, and is rounded up to
    a whole step, as TorchRL does.

    Args:
        max_size: most rows.
        device: where the tensors live; ``"auto"`` for where the first rows are.
        ndim: leading dimensions of the data that are rows.

    Raises:
        UsageError: a size is not a whole number from 1 on.
    """

    def __init__(self, max_size: int, *, device: str | torch.device = "cpu", ndim: int = 1) -> None:
        TensorRows.__init__(self, max_size, device=device, ndim=ndim)  # no tensors are there yet

    def share(self) -> None:
        """Share the rows with other processes; what is there is copied into shared memory.

        Raises:
            UsageError: the rows are on another device or are not tensors, or memory has no room.
        """
        self._owner.share(self._rows, self.device)


@takes(**MAPPED)
class LazyMemmapStorage(LazyTensorStorage):
    """Tensors in memory-mapped files, made when the first rows are written.

    Every process that the storage reaches, forked or by a pickle, reads and writes the same rows. A
    pickle has the folder, and no rows. Text and other values that are not tensors stay in memory,
    and rows that have some in this process.

    Args:
        max_size: most rows.
        scratch_dir: the folder of the files; a temporary one, deleted with the storage, by default.
        device: the CPU; ``"auto"`` is the same.
        ndim: see ``LazyTensorStorage``.
        existsok: write over files that are in ``scratch_dir``; refused otherwise.
        auto_cleanup: whether the files are deleted; None, or what is so anyway.
    """

    def __init__(
        self,
        max_size: int,
        *,
        scratch_dir: str | Path | None = None,
        device: str | torch.device = "cpu",
        ndim: int = 1,
        existsok: bool = False,
        auto_cleanup: bool | None = None,
    ) -> None:
        super().__init__(max_size, device="cpu" if device == "auto" else device, ndim=ndim)
        if auto_cleanup not in (None, scratch_dir is None):
            raise UsageError(
                "A temporary folder is deleted with its storage, and a scratch_dir stays: "
                f"auto_cleanup={auto_cleanup} is not possible here."
            )
        if self.device.type != "cpu":
            raise UsageError("Mapped files are in the CPU's memory. Give the buffer a device.")
        self.existsok = existsok
        if scratch_dir is None:
            self.scratch_dir = temporary_folder(in_memory=False)
            delete_with(self._owner, self.scratch_dir)
            existsok = True  # nobody else knows of it
        else:
            self.scratch_dir = Path(scratch_dir)
            if not existsok:
                check_empty(self.scratch_dir)
        self._owner.share_later(self.scratch_dir, existsok=existsok)

    def begin(self) -> None:
        """Make the files in which the rows are shared, unless they are there."""
        self._owner.begin()

    def __getstate__(self) -> StateDict:
        self.begin()
        return super().__getstate__()

    def _check_keys_may_be_added(self, keys: Sequence[Key]) -> None:
        raise UsageError(
            f"The keys of {type(self).__name__} are fixed by its files, when the first rows are "
            f"written; these rows have {', '.join(map(show_key, keys))}. Write all keys at first, "
            "or use LazyTensorStorage, where rb[:] = rows adds some."
        )
