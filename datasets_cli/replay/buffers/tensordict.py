"""Replay buffers of TensorDicts: a batch says how it was drawn, and priorities go back by that."""

from __future__ import annotations

from typing import Any, Unpack

import torch
from tensordict import TensorDictBase

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import key_of
from datasets_cli.replay.buffers.buffer import DEFAULT_SIZE, ReplayBuffer
from datasets_cli.replay.buffers.options import BufferOptions, WriteOptions
from datasets_cli.replay.buffers.rows import unravel_rows, without_index
from datasets_cli.replay.buffers.sample_info import expand_to_rows, slice_marks
from datasets_cli.replay.samplers.prioritized import PrioritizedSampler
from datasets_cli.replay.samplers.protocol import Info
from datasets_cli.replay.storages.lists import NO_LIMIT, ListStorage
from datasets_cli.store.schema.columns import Key
from datasets_cli.store.schema.tree import Tree, put


class TensorDictReplayBuffer(ReplayBuffer):
    """A replay buffer whose batches also carry ``index`` and the sampler's marks.

    Args:
        priority_key: the entry that ``update_tensordict_priority`` reads.
        arguments: those of ``ReplayBuffer``.
    """

    def __init__(
        self, *, priority_key: str = "td_error", **arguments: Unpack[BufferOptions]
    ) -> None:
        super().__init__(**arguments)
        self.priority_key = priority_key

    def extend(self, data: Any, update_priority: bool | None = None) -> torch.Tensor:
        """Write rows ``[n]``; see ``ReplayBuffer.extend``.

        Args:
            data: a TensorDict, or a list of them; an ``index`` among the entries is left out.
            update_priority: take the rows' priorities from ``priority_key``; where it is there, by
                default.
        """
        if not isinstance(data, TensorDictBase) and not isinstance(data, list):
            raise UsageError(f"This buffer takes TensorDicts, not {type(data).__name__}.")
        # Rows may have been a batch, perhaps of this buffer.
        data = [*map(without_index, data)] if isinstance(data, list) else without_index(data)
        takes_priorities = update_priority is not False
        return self._write(data, self._tell_priorities if takes_priorities else self._tell_sampler)

    def update_tensordict_priority(self, batch: TensorDictBase) -> None:
        """Give the rows of a batch the priorities in its entry ``priority_key``.

        Nothing happens unless the sampler has priorities.

        Raises:
            UsageError: it has none, or no ``index``.
        """
        if not hasattr(self.sampler, "update_priority"):
            return
        for key in (self.priority_key, "index"):
            if batch.get(key, None) is None:
                raise UsageError(f"The batch has no {key!r}, which its rows' priorities need.")
        index = batch["index"]
        for _ in self.storage.row_batch_size:  # the same all over a row
            index = index.select(1, 0)
        self.update_priority(index, batch[self.priority_key])

    def _tell_priorities(self, rows: torch.Tensor) -> None:
        """Tell the sampler which flat rows were written, and the priorities they came with."""
        self._tell_sampler(rows)
        rows = rows[rows >= 0]
        if hasattr(self.sampler, "update_priority") and len(rows):
            priority = self.storage.entry(key_of(self.priority_key), rows)
            if priority is not None:
                self.sampler.update_priority(rows, priority)

    def _describe(self, rows: Tree | TensorDictBase, index: torch.Tensor, info: Info) -> None:
        storage = self.storage
        numbers = index if storage.ndim == 1 else unravel_rows(storage, index)
        if not info and not storage.row_batch_size:
            rows["index"] = numbers
            return
        super()._describe(rows, index, info)
        marks: dict[Key, torch.Tensor] = {("index",): numbers, **info}
        if row_batch_size := storage.row_batch_size:  # each row is of a shape of its own
            marks = {key: expand_to_rows(mark, row_batch_size) for key, mark in marks.items()}
            marks |= slice_marks(rows, self.sampler, marks)
        for key, mark in marks.items():
            put(rows, key, mark)

    def _keep_marks(self, batch: Any, index: torch.Tensor, info: Info) -> None:
        if not isinstance(batch, TensorDictBase) or batch.batch_size[:1] != index.shape:
            return
        for key, mark in {("index",): unravel_rows(self.storage, index), **info}.items():
            if len(key) == 1 and key[0] not in batch.keys():  # noqa: SIM118
                batch[key[0]] = expand_to_rows(mark, self.storage.row_batch_size)


class PrioritizedReplayBuffer(ReplayBuffer):
    """A replay buffer that draws rows in proportion to their priority.

    Args:
        alpha: how much priorities matter.
        beta: how much importance weights correct for it.
        eps: added to every priority.
        dtype: of the importance weights.
        storage: where the rows are; a list of 1,000 by default.
        arguments: those of ``ReplayBuffer`` but ``sampler``.
    """

    def __init__(
        self,
        *,
        alpha: float,
        beta: float,
        eps: float = 1e-8,
        dtype: torch.dtype = torch.float,
        storage: Any = None,
        **arguments: Unpack[WriteOptions],
    ) -> None:
        storage = ListStorage(DEFAULT_SIZE) if storage is None else storage
        sampler = PrioritizedSampler(capacity_of(storage), alpha, beta, eps, dtype)
        super().__init__(storage=storage, sampler=sampler, **arguments)


class TensorDictPrioritizedReplayBuffer(TensorDictReplayBuffer):
    """A buffer of TensorDicts that draws rows in proportion to their priority.

    Args:
        alpha: how much priorities matter.
        beta: how much importance weights correct for it.
        eps: added to every priority.
        priority_key: the entry that ``update_tensordict_priority`` reads.
        reduction: how several numbers a row become one priority.
        storage: where the rows are; a list of 1,000 by default.
        arguments: those of ``ReplayBuffer`` but ``sampler``.
    """

    def __init__(
        self,
        *,
        alpha: float,
        beta: float,
        eps: float = 1e-8,
        priority_key: str = "td_error",
        reduction: str = "max",
        storage: Any = None,
        **arguments: Unpack[WriteOptions],
    ) -> None:
        storage = ListStorage(DEFAULT_SIZE) if storage is None else storage
        sampler = PrioritizedSampler(capacity_of(storage), alpha, beta, eps, reduction=reduction)
        super().__init__(priority_key=priority_key, storage=storage, sampler=sampler, **arguments)


def capacity_of(storage: Any) -> int:
    """Return how many rows a prioritised sampler must have room for.

    A storage of several dimensions may round its size up to a whole step.

    Raises:
        UsageError: the storage has no limit.
    """
    if storage.max_size >= NO_LIMIT:
        raise UsageError("Priorities need a storage with a limit: give ListStorage a max_size.")
    room: int = storage.max_size * (2 if storage.ndim > 1 else 1)
    return room
