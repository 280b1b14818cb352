"""Making batches of rows that were gathered: marked, collated, transformed, in a format."""

from __future__ import annotations

from collections.abc import Callable

import torch
from tensordict import TensorDictBase

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import Rows
from datasets_cli.replay.draws.protocol import Info, Sampler
from datasets_cli.replay.rows.batch_format import BatchFormat
from datasets_cli.replay.rows.sample_info import SampleInfo
from datasets_cli.replay.storages.batches import map_rows
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.transforms.compose import Compose, parts_of
from datasets_cli.replay.transforms.transform import TransformLike, as_transform

CollateFunction = Callable[[Rows], Rows]
"""Takes what a storage gathers, a list of rows or a batch, and returns the batch."""


class BatchMaker:
    """The half of a batch reader that makes a batch of the rows that were drawn and gathered."""

    storage: Storage
    sampler: Sampler
    transform: Compose
    collate_fn: CollateFunction | None
    sample_info: SampleInfo
    _pin_memory: bool
    _to_output: Callable[[torch.Tensor], torch.Tensor] | None
    _checked: BatchFormat | None

    def check_format(self, batch_format: BatchFormat) -> None:
        """Check that batches can be had in a format, as far as is known beforehand."""
        if self._is_direct:  # a transform may give other types than the storage
            batch_format.check(self.storage)
            self._checked = batch_format

    def check_transform(
        self, transform: TransformLike, sampler: Sampler, storage: Storage, rows: Rows = None
    ) -> None:
        """Check that a transform has steps in a row where it needs them, and is not in vain."""
        # rows: the first that are written; a storage without rows does not know their form.
        row_shape = storage.row_batch_size if len(storage) else None
        if isinstance(rows, TensorDictBase):
            row_shape = rows.shape[storage.ndim :]
        is_split = row_shape == () and self.collate_fn is None and not sampler.has_slices
        for part, inverted in parts_of(as_transform(transform)):
            reads = part.only_writes == inverted
            name = type(part).__name__
            if reads and part.needs_steps and is_split:
                raise UsageError(
                    f"{name} needs steps in a row, and {sampler!r} draws rows one by one. Draw "
                    "slices: slice_len= of a dataset, or a SliceSampler. Or call it with steps in "
                    "a row, such as replay.episode(0), or write what it makes with preprocess()."
                )
            if not (reads or storage.is_writable) and (part.needs_steps or part.only_writes):
                raise UsageError(
                    f"{name} acts here on rows that are written, and a dataset is only read. Write "
                    "what it makes into a new one, with preprocess()."
                )

    def _takes_arrays(self, batch_format: BatchFormat | None) -> bool:
        """Tell whether batches are made of arrays where the storage has them."""
        if batch_format is None or not self._is_direct:
            return False
        if self._checked is not batch_format:
            self.check_format(batch_format)
        return True

    @property
    def _is_direct(self) -> bool:
        """Whether batches can be made of what is gathered without TensorDicts in between."""
        is_changed = self.transform.steps or self.collate_fn is not None or self._pin_memory
        return self.storage.is_tensordict and not is_changed

    def _make_batch(
        self, index: torch.Tensor, info: Info, rows: Rows, batch_format: BatchFormat | None
    ) -> Rows:
        if self._to_output is not None:
            index = self._to_output(index)
            info.update({key: self._to_output(mark) for key, mark in info.items()})
        storage, collate_fn = self.storage, self.collate_fn
        if storage.is_tensordict:  # its nested dict takes entries ten times as fast as a TensorDict
            self.sampler.relabel(rows, info)
            self.sample_info.describe(rows, index, info, storage, self.sampler)
            if batch_format is not None and self._is_direct:
                return batch_format.from_tree(rows)
            batch = storage.as_batch(rows, index.shape)
            if collate_fn is not None:
                batch = collate_fn(batch)
        else:
            batch = storage.collate(rows) if collate_fn is None else collate_fn(rows)
            if isinstance(batch, TensorDictBase):
                self.sampler.relabel(batch, info)
                self.sample_info.describe(batch, index, info, storage, self.sampler)
        if self._pin_memory:
            batch = map_rows(lambda part: part.pin_memory(), batch)
        if self.transform.steps:
            batch = self.transform(batch)
            self.sample_info.restore(batch, index, info, self.storage)
        return batch if batch_format is None else batch_format.from_batch(batch)
