"""A storage of tensors in memory-mapped files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.sharing.control import delete_with, has_rows, temporary_folder
from datasets_cli.replay.storages.tensors import LazyTensorStorage
from datasets_cli.replay.torchrl_words import MAPPED, takes
from datasets_cli.schema.columns import Key, show_key


@takes(**MAPPED)
class LazyMemmapStorage(LazyTensorStorage):
    """Tensors in memory-mapped files, allocated when the first rows are written.

    Every process that the storage reaches, forked or by a pickle, reads and writes the same rows. A
    pickle has the folder, and no rows. Text and other values that are no tensors stay in memory,
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
        else:
            self.scratch_dir = Path(scratch_dir)
            if not existsok and has_rows(self.scratch_dir):
                raise UsageError(
                    f"{scratch_dir} is not empty: rows of another storage may be there. Choose a "
                    "new scratch_dir, or pass existsok=True to write over it."
                )
        self._owner.share_in(self.scratch_dir, None)
        if scratch_dir is None:
            delete_with(self.sharing, self.scratch_dir)

    def _check_keys_may_be_added(self, keys: Sequence[Key]) -> None:
        raise UsageError(
            f"The keys of {type(self).__name__} are fixed by its files, when the first rows are "
            f"written; these rows have {', '.join(map(show_key, keys))}. Write all keys at first, "
            "or use LazyTensorStorage, where rb[:] = rows adds some."
        )
