"""TorchRL's prioritised replay buffers: they make their sampler themselves."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch

from datasets_cli.errors import UsageError
from datasets_cli.options import part_of, takes_fields
from datasets_cli.replay.buffers.buffer import ReplayBuffer
from datasets_cli.replay.buffers.options import BufferOptions, TensorDictBufferOptions
from datasets_cli.replay.buffers.parts import storage_or_list
from datasets_cli.replay.buffers.tensordict import TensorDictReplayBuffer
from datasets_cli.replay.draws.prioritized import PrioritizedSampler
from datasets_cli.replay.storages.lists import NO_LIMIT
from datasets_cli.replay.storages.protocol import Storage, is_writable
from datasets_cli.replay.torchrl_words import BUFFER, Word, takes

PRIORITIZED = {
    **BUFFER,
    "sync": Word(True, instead="The process that writes rows draws them, too."),
}


@dataclass(frozen=True, kw_only=True)
class PriorityOptions:
    """How rows are drawn by priority.

    Args:
        alpha: how much priorities matter.
        beta: how much importance weights correct for it.
        eps: added to every priority.
        sampler_device: where rows are drawn; the CPU by default.
    """

    alpha: float
    beta: float
    eps: float = 1e-8
    sampler_device: torch.device | str | None = None


@dataclass(frozen=True, kw_only=True)
class PrioritizedOptions(BufferOptions, PriorityOptions):
    """What a prioritised buffer of any rows takes.

    Args:
        dtype: of the importance weights.
        sampler: in place of one made of ``alpha``, ``beta`` and so on; excludes ``sampler_device``.
    """

    dtype: torch.dtype = torch.float


@takes(**PRIORITIZED)
class PrioritizedReplayBuffer(ReplayBuffer):
    """A replay buffer that draws rows in proportion to their priority.

    Raises:
        UsageError: arguments exclude one another.
    """

    @takes_fields(PrioritizedOptions)
    def __init__(self, options: PrioritizedOptions) -> None:
        storage = storage_or_list(options.storage)
        sampler, device = options.sampler, options.sampler_device
        if sampler is not None and device is not None:
            raise UsageError("Give the sampler a device, or sampler_device without a sampler.")
        if sampler is None:
            sampler = PrioritizedSampler(
                capacity_of(storage),
                options.alpha,
                options.beta,
                options.eps,
                options.dtype,
                device=device,
            )
        buffer = replace(part_of(options, BufferOptions), storage=storage, sampler=sampler)
        super().__init__(**vars(buffer))


@dataclass(frozen=True, kw_only=True)
class TensorDictPrioritizedOptions(TensorDictBufferOptions, PriorityOptions):
    """What a prioritised buffer of TensorDicts takes.

    Args:
        reduction: how several numbers a row become one priority.
    """

    reduction: str = "max"
    sampler: None = field(default=None, init=False)  # it is made of these options


@takes(**PRIORITIZED)
class TensorDictPrioritizedReplayBuffer(TensorDictReplayBuffer):
    """A buffer of TensorDicts that draws rows in proportion to their priority.

    Raises:
        UsageError: arguments exclude one another.
    """

    @takes_fields(TensorDictPrioritizedOptions)
    def __init__(self, options: TensorDictPrioritizedOptions) -> None:
        storage = storage_or_list(options.storage)
        sampler = PrioritizedSampler(
            capacity_of(storage),
            options.alpha,
            options.beta,
            options.eps,
            reduction=options.reduction,
            device=options.sampler_device,
        )
        buffer = part_of(options, TensorDictBufferOptions)
        super().__init__(**vars(replace(buffer, storage=storage, sampler=sampler)))


def capacity_of(storage: Storage) -> int:
    """Return how many rows a prioritised sampler has room for at first."""
    room = storage.max_size if is_writable(storage) else len(storage)
    return room if room < NO_LIMIT else 1
