"""A storage of tensors in memory-mapped files."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path

import torch
from tensordict import TensorDict

from datasets_cli.errors import UsageError
from datasets_cli.replay.storages.form import Form, TensorDictForm
from datasets_cli.replay.storages.tensors import LazyTensorStorage


class LazyMemmapStorage(LazyTensorStorage):
    """Tensors in memory-mapped files, allocated when the first rows are written.

    Args:
        max_size: most rows.
        scratch_dir: the folder of the files; a temporary one, deleted with the storage, by default.
        device: must be the CPU.
        ndim: see ``LazyTensorStorage``.
        existsok: write over files that are in ``scratch_dir``; refused otherwise.
    """

    def __init__(
        self,
        max_size: int,
        *,
        scratch_dir: str | Path | None = None,
        device: str | torch.device = "cpu",
        ndim: int = 1,
        existsok: bool = False,
    ) -> None:
        super().__init__(max_size, device=device, ndim=ndim)
        if self.device.type != "cpu":
            raise UsageError("Mapped files are in the CPU's memory. Give the buffer a device.")
        self.existsok = existsok
        self.scratch_dir = None if scratch_dir is None else Path(scratch_dir)

    def _allocate(self, form: Form, columns: list[torch.Tensor]) -> list[torch.Tensor]:
        if self.scratch_dir is None:
            self.scratch_dir = Path(tempfile.mkdtemp(prefix="rlds-"))
            weakref.finalize(self, shutil.rmtree, self.scratch_dir, ignore_errors=True)
        elif not self.existsok and self.scratch_dir.exists() and any(self.scratch_dir.iterdir()):
            raise UsageError(
                f"{self.scratch_dir} is not empty: rows of another storage may be there. Choose a "
                "new scratch_dir, or pass existsok=True to write over it."
            )
        plain = [(str(number),) for number in range(len(columns))]
        keys = form.keys if isinstance(form, TensorDictForm) else plain
        rows = TensorDict({}, [self.capacity])
        for key, column in zip(keys, columns, strict=True):
            one = torch.zeros((), dtype=column.dtype)
            rows[key] = one.expand(self.capacity, *column.shape[self.ndim :])
        self.scratch_dir.mkdir(parents=True, exist_ok=True)
        mapped = rows.memmap_like(prefix=self.scratch_dir, existsok=True)
        return [mapped[key].as_subclass(torch.Tensor) for key in keys]
