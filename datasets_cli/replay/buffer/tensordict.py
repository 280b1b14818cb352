"""The replay buffer of TensorDicts: a batch has its row numbers, for priorities to return."""

from __future__ import annotations

from typing import Any, Self

import torch
from tensordict import TensorDictBase

from datasets_cli.core.options import suggests_keywords
from datasets_cli.errors import UnknownKey, Unsupported, WrongRows, wrong_value
from datasets_cli.replay.arguments import NestedKey, Rows, key_of
from datasets_cli.replay.batches.reader import CollateFunction, SampleInfo
from datasets_cli.replay.buffer.buffer import ReplayBuffer
from datasets_cli.replay.samplers.protocol import Sampler
from datasets_cli.replay.storages.collate import ARRAYS, rows_of_arrays
from datasets_cli.replay.storages.columns import without_index
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.storages.tensors import LazyTensorStorage
from datasets_cli.replay.transforms.transform import TransformLike
from datasets_cli.replay.writing.writers import Writer
from datasets_cli.schema.tree import Tree, entry
from datasets_cli.torchrl.keywords import accepts_keywords


@accepts_keywords
class TensorDictReplayBuffer(ReplayBuffer):
    """A replay buffer of TensorDicts, whose batches also carry ``index`` and the sampler's info.

    Args:
        storage: holds the rows; a list of 1,000 by default.
        sampler: draws the rows of a batch; uniformly with replacement by default.
        writer: places new rows; see ``ReplayBuffer``.
        batch_size: rows in a batch; ``sample`` can override it.
        priority_key: the entry that ``update_tensordict_priority`` reads.
        collate_fn: takes a list of rows, or a batch, from the storage, and returns the batch.
        transform: applied to every batch; one that has ``inv`` also to the rows that are written.
        prefetch: batches that a thread makes ahead of time; see ``ReplayBuffer``.
        pin_memory: put batches into page-locked memory.
        dim_extend: the dimension of time in data of ``storage.ndim`` leading dimensions: the last.
        generator: draws rows, exclusive with ``seed``; torch's global generator by default.
        seed: seeds a generator of the buffer's own.
        shared: let other processes read and write the same rows; see ``share``.
        format: ``"torch"``, ``"numpy"`` or ``"jax"``; see ``with_format``.
        cast: with ``"jax"``, convert columns of 64 bits to 32; see ``with_format``.

    Raises:
        UsageError: as ``ReplayBuffer``.
    """

    _sample_info = SampleInfo(index=True, info=True)
    _array_kinds = (*ARRAYS, torch.Tensor)

    @suggests_keywords
    def __init__(
        self,
        *,
        storage: Storage | None = None,
        sampler: Sampler | None = None,
        writer: Writer | None = None,
        batch_size: int | None = None,
        priority_key: NestedKey = "td_error",
        collate_fn: CollateFunction | None = None,
        transform: TransformLike | None = None,
        prefetch: int | None = None,
        pin_memory: bool = False,
        dim_extend: int | None = None,
        generator: torch.Generator | None = None,
        seed: int | None = None,
        shared: bool = False,
        format: str = "torch",
        cast: bool = False,
    ) -> None:
        super().__init__(
            storage=storage,
            sampler=sampler,
            writer=writer,
            batch_size=batch_size,
            collate_fn=collate_fn,
            transform=transform,
            prefetch=prefetch,
            pin_memory=pin_memory,
            dim_extend=dim_extend,
            generator=generator,
            seed=seed,
            shared=shared,
            format=format,
            cast=cast,
        )
        self.priority_key = priority_key

    @classmethod
    def from_arrays(cls, arrays: Tree, **options: Any) -> Self:
        """Return a buffer with copies of the rows ``[N, ...]`` of a nested dict of arrays.

        Args:
            arrays: numpy arrays by the names of the entries, such as ``observation`` and ``next``.
            options: options of the buffer; by default its ``storage`` has room for these rows.

        Raises:
            UsageError: a value is not an array, or the arrays differ in their number of rows.
        """
        rows = rows_of_arrays(arrays, 1, cls._array_kinds)
        if not isinstance(rows, TensorDictBase):
            raise wrong_value("arrays", "a nested dict of arrays", type(arrays), kind=WrongRows)
        buffer = cls(**{"storage": LazyTensorStorage(len(rows)), **options})
        buffer.extend(rows)
        return buffer

    @property
    def priority_key(self) -> NestedKey:
        """The entry that ``update_tensordict_priority`` reads."""
        key = self.reader.priority_key
        assert key is not None, "the constructor sets it"
        return key if len(key) > 1 else key[0]  # as users write keys

    @priority_key.setter
    def priority_key(self, key: NestedKey) -> None:
        self.reader.priority_key = key_of(key)

    def extend(
        self,
        data: TensorDictBase | list[TensorDictBase] | Tree,
        update_priority: bool | None = None,
    ) -> torch.Tensor:
        """Write rows ``[n]``; see ``ReplayBuffer.extend``.

        Args:
            data: a TensorDict, a list of them, or a nested dict of arrays; an entry ``index`` is
                left out.
            update_priority: read the rows' priorities from ``priority_key``; by default if rows
                have this entry.
        """
        if not isinstance(data, TensorDictBase):
            data = self._as_rows(data, self.reader.storage.ndim)
        if not isinstance(data, TensorDictBase | list):
            raise wrong_value(
                "data",
                "a TensorDict, a list of them, or a nested dict of arrays",
                type(data),
                kind=WrongRows,
            )
        # A batch, perhaps of this buffer, may be written again.
        data = [*map(without_index, data)] if isinstance(data, list) else without_index(data)
        key = None if update_priority is False else self.reader.priority_key
        return self.row_writer.extend(data, key)

    def sample(
        self,
        batch_size: int | None = None,
        return_info: bool = False,
        include_info: bool | None = None,
    ) -> Rows:
        """Return a batch with ``index`` and the sampler's info; see ``ReplayBuffer.sample``.

        Args:
            batch_size: rows to draw; the buffer's own by default.
            return_info: return ``(batch, info)``.
            include_info: True or None; a batch always has ``index`` and the sampler's info.

        Raises:
            UsageError: as ``ReplayBuffer.sample``.
        """
        if include_info not in (True, None):
            raise Unsupported(
                f"{type(self).__name__} always adds index and the sampler's info to a batch; found "
                f"include_info={include_info!r}.",
                argument="include_info",
                expected=True,
                found=include_info,
                advice="A ReplayBuffer leaves them out.",
            )
        return self.reader.sample(batch_size, return_info, self._format)

    def update_tensordict_priority(self, batch: TensorDictBase | Tree) -> None:
        """Set the priorities of a batch's rows to its entry ``priority_key``, in any format.

        Does nothing if the sampler has no priorities.

        Raises:
            UsageError: the batch lacks that entry, or ``index``.
        """
        if not self.reader.sampler.has_priorities:
            return
        priority, index = entry(batch, key_of(self.priority_key)), entry(batch, ("index",))
        for key, found in ((self.priority_key, priority), ("index", index)):
            if found is None:
                raise UnknownKey(
                    f"The batch lacks {key!r}, which the priorities of its rows need.", key=key
                )
        for _ in self.reader.storage.row_batch_size:  # the same all over a row
            index = index[:, 0]
        self.update_priority(index, priority)
