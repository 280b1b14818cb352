"""A storage of tensors in memory-mapped files."""

from __future__ import annotations

import math
import shutil
import tempfile
import weakref
from pathlib import Path

import torch

from datasets_cli.errors import SourceError, UsageError
from datasets_cli.replay.storages.form import Form, TensorDictForm
from datasets_cli.replay.storages.tensors import LazyTensorStorage
from datasets_cli.replay.torchrl_words import MAPPED, takes
from datasets_cli.store.schema.bits import bits_dtype, torch_dtype, type_name
from datasets_cli.store.schema.columns import Column, check_key, one_file_each
from datasets_cli.store.schema.meta_files import write_meta_files


@takes(**MAPPED)
class LazyMemmapStorage(LazyTensorStorage):
    """Tensors in memory-mapped files, allocated when the first rows are written.

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
        leaves = [
            Column(key, type_name(column.dtype), tuple(column.shape[self.ndim :]))
            for key, column in zip(keys, columns, strict=True)
        ]
        try:
            return self._make_files(self.scratch_dir, leaves)
        except SourceError as error:  # what these rows have for names is their user's to change
            raise UsageError(str(error)) from error

    def _make_files(self, folder: Path, leaves: list[Column]) -> list[torch.Tensor]:
        """Make the files of leaves, all zeros, as tensordict has them; return what they hold."""
        for leaf in leaves:
            check_key(leaf.key)
            # Not written over: what another storage still maps must not change below it.
            (folder / leaf.filename).unlink(missing_ok=True)
        write_meta_files(folder, leaves, self.capacity)
        mapped = []
        for leaf in leaves:
            dtype, size = bits_dtype(torch_dtype(leaf.dtype)), math.prod(leaf.shape)
            shape = (self.capacity, *leaf.shape)
            if not size:  # tensordict has no file of a leaf without elements either
                mapped.append(torch.empty(shape, dtype=dtype))
                continue
            path = folder / leaf.filename
            with one_file_each(path, leaf.key), path.open("xb") as file:
                file.truncate(self.capacity * leaf.row_bytes)
            rows = torch.from_file(str(path), shared=True, size=self.capacity * size, dtype=dtype)
            mapped.append(rows.view(shape))
        return mapped
