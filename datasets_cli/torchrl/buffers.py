"""TorchRL's prioritised replay buffers: they make their sampler themselves."""

from __future__ import annotations

import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import NestedKey
from datasets_cli.replay.buffers.buffer import DEFAULT_SIZE, ReplayBuffer
from datasets_cli.replay.buffers.parts import as_storage
from datasets_cli.replay.buffers.tensordict import TensorDictReplayBuffer
from datasets_cli.replay.rows.reader import CollateFunction
from datasets_cli.replay.samplers.prioritized import PrioritizedSampler
from datasets_cli.replay.samplers.protocol import Sampler
from datasets_cli.replay.storages.lists import NO_LIMIT, ListStorage
from datasets_cli.replay.storages.protocol import Storage, is_writable
from datasets_cli.replay.torchrl_words import BUFFER, Word, takes
from datasets_cli.replay.transforms.transform import TransformLike
from datasets_cli.replay.writers.protocol import Writer

PRIORITIZED = {
    **BUFFER,
    "sync": Word(True, instead="The process that writes rows draws them, too."),
}


@takes(**PRIORITIZED)
class PrioritizedReplayBuffer(ReplayBuffer):
    """A replay buffer that draws rows in proportion to their priority.

    Args:
        alpha: how much priorities matter.
        beta: how much importance weights correct for it.
        eps: added to every priority.
        dtype: of the importance weights.
        storage: where the rows are; a list of 1,000 by default.
        sampler: in place of one made of the arguments before.
        sampler_device: where rows are drawn; the CPU by default. Excludes ``sampler``.
        writer: where rows are written; see ``ReplayBuffer``, as for the others.
        collate_fn: takes what the storage gives, a list of rows or a batch, and returns the batch.
        pin_memory: put batches into page-locked memory.
        prefetch: batches of ``batch_size`` that a thread makes ahead of time.
        transform: applied to every batch; one that has ``inv`` also to what is written.
        batch_size: rows in a batch; ``sample`` can override it.
        dim_extend: the dimension of time in data with ``storage.ndim`` leading ones, the last.
        generator: draws rows; by default torch's global one, and those of a dataset one of the
            buffer's own, which that seeds at the first draw.
        seed: seeds a generator of the buffer's own.
        shared: let other processes read and write the same rows; see ``ReplayBuffer.share``.
        format: what batches are made of; see ``ReplayBuffer.with_format``.

    Raises:
        UsageError: the storage has no limit, or arguments exclude one another.
    """

    def __init__(
        self,
        *,
        alpha: float,
        beta: float,
        eps: float = 1e-8,
        dtype: torch.dtype = torch.float,
        storage: Storage | None = None,
        sampler: Sampler | None = None,
        sampler_device: torch.device | str | None = None,
        writer: Writer | None = None,
        collate_fn: CollateFunction | None = None,
        pin_memory: bool = False,
        prefetch: int | None = None,
        transform: TransformLike | None = None,
        batch_size: int | None = None,
        dim_extend: int | None = None,
        generator: torch.Generator | None = None,
        seed: int | None = None,
        shared: bool = False,
        format: str = "torch",
    ) -> None:
        storage = as_storage(ListStorage(DEFAULT_SIZE) if storage is None else storage)
        if sampler is None:
            sampler = PrioritizedSampler(
                capacity_of(storage), alpha, beta, eps, dtype, device=sampler_device
            )
        elif sampler_device is not None:
            raise UsageError("Give the sampler a device, or sampler_device without a sampler.")
        super().__init__(
            storage=storage,
            sampler=sampler,
            writer=writer,
            collate_fn=collate_fn,
            pin_memory=pin_memory,
            prefetch=prefetch,
            transform=transform,
            batch_size=batch_size,
            dim_extend=dim_extend,
            generator=generator,
            seed=seed,
            shared=shared,
            format=format,
        )


@takes(**PRIORITIZED)
class TensorDictPrioritizedReplayBuffer(TensorDictReplayBuffer):
    """A buffer of TensorDicts that draws rows in proportion to their priority.

    Args:
        alpha: how much priorities matter.
        beta: how much importance weights correct for it.
        priority_key: the entry that ``update_tensordict_priority`` reads.
        eps: added to every priority.
        storage: where the rows are; a list of 1,000 by default.
        sampler_device: where rows are drawn; the CPU by default.
        writer: where rows are written; see ``ReplayBuffer``, as for the others.
        collate_fn: takes what the storage gives, a list of rows or a batch, and returns the batch.
        pin_memory: put batches into page-locked memory.
        prefetch: batches of ``batch_size`` that a thread makes ahead of time.
        transform: applied to every batch; one that has ``inv`` also to what is written.
        reduction: how several numbers a row become one priority.
        batch_size: rows in a batch; ``sample`` can override it.
        dim_extend: the dimension of time in data with ``storage.ndim`` leading ones, the last.
        generator: draws rows; by default torch's global one, and those of a dataset one of the
            buffer's own, which that seeds at the first draw.
        seed: seeds a generator of the buffer's own.
        shared: let other processes read and write the same rows; see ``ReplayBuffer.share``.
        format: what batches are made of; see ``ReplayBuffer.with_format``.

    Raises:
        UsageError: the storage has no limit, or arguments exclude one another.
    """

    def __init__(
        self,
        *,
        alpha: float,
        beta: float,
        priority_key: NestedKey = "td_error",
        eps: float = 1e-8,
        storage: Storage | None = None,
        sampler_device: torch.device | str | None = None,
        writer: Writer | None = None,
        collate_fn: CollateFunction | None = None,
        pin_memory: bool = False,
        prefetch: int | None = None,
        transform: TransformLike | None = None,
        reduction: str = "max",
        batch_size: int | None = None,
        dim_extend: int | None = None,
        generator: torch.Generator | None = None,
        seed: int | None = None,
        shared: bool = False,
        format: str = "torch",
    ) -> None:
        storage = as_storage(ListStorage(DEFAULT_SIZE) if storage is None else storage)
        super().__init__(
            storage=storage,
            sampler=PrioritizedSampler(
                capacity_of(storage), alpha, beta, eps, reduction=reduction, device=sampler_device
            ),
            writer=writer,
            collate_fn=collate_fn,
            pin_memory=pin_memory,
            prefetch=prefetch,
            transform=transform,
            batch_size=batch_size,
            priority_key=priority_key,
            dim_extend=dim_extend,
            generator=generator,
            seed=seed,
            shared=shared,
            format=format,
        )


def capacity_of(storage: Storage) -> int:
    """Return how many rows a prioritised sampler must have room for."""
    # A storage of several dimensions may round its size up to a whole step.
    if not is_writable(storage):
        return len(storage)
    if storage.max_size >= NO_LIMIT:
        raise UsageError("Priorities need a storage with a limit: give ListStorage a max_size.")
    return storage.max_size * (2 if storage.ndim > 1 else 1)
