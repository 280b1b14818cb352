"""The replay buffer of a training loop: it stores collected batches and returns samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDict, pad

from datasets_cli.errors import Unsupported, WrongSize, not_both
from datasets_cli.replay.buffer.buffer import ReplayBuffer
from datasets_cli.replay.mixing.offline_to_online import OfflineToOnline

if TYPE_CHECKING:
    from datasets_cli.trainer.trainer import Trainer

MASK = ("collector", "mask")
TRUNCATED, DONE = ("next", "truncated"), ("next", "done")


class ReplayBufferTrainer:
    """Stores collected batches in a replay buffer, and samples it for each optimisation step.

    Args:
        replay_buffer: the buffer, or a dataset and a buffer sampled as one. A read-only buffer,
            such as a dataset, is only sampled: do not register ``extend`` for it.
        batch_size: the number of rows in a sample; None for the batch size of the buffer.
        memmap: must be False; a ``LazyMemmapStorage`` stores rows on disk.
        device: the device of samples; None to leave them on the buffer's device.
        flatten_tensordicts: store single steps: those with a True ``("collector", "mask")``, or
            all if the batch has no mask. Without a mask, the last step of each row ``[T]`` that is
            not done is marked as truncated, because another row follows it in the buffer.
        max_dims: the length to which each batch dimension is padded with zeros; -1 for no padding.
            ``("collector", "mask")`` is False for padding. Excludes ``flatten_tensordicts``.
        iterate: use the batch size of the buffer, as iteration over it does.

    Raises:
        UsageError: arguments exclude one another.
        Unsupported: ``memmap`` is True, or the buffer is a ``ReplayBuffer`` with priorities but
            without ``update_tensordict_priority``.
    """

    def __init__(
        self,
        replay_buffer: ReplayBuffer | OfflineToOnline,
        batch_size: int | None = None,
        memmap: bool = False,
        device: torch.device | str | int | None = "cpu",
        flatten_tensordicts: bool = False,
        max_dims: Sequence[int] | None = None,
        iterate: bool = False,
    ) -> None:
        self._update_tensordict_priority = getattr(
            replay_buffer, "update_tensordict_priority", None
        )
        if (
            self._update_tensordict_priority is None
            and isinstance(replay_buffer, ReplayBuffer)
            and replay_buffer.sampler.has_priorities
        ):
            kind = type(replay_buffer).__name__
            raise Unsupported(
                f"A {kind} cannot update priorities from batches.",
                argument="replay_buffer",
                expected="a TensorDictReplayBuffer",
                found=kind,
                advice="Use a TensorDictReplayBuffer with the same sampler.",
            )
        if memmap:
            raise Unsupported(
                "memmap=True is not supported: the buffer copies every batch.",
                argument="memmap",
                expected=False,
                found=True,
                advice="To store rows on disk, use LazyMemmapStorage(max_size) in the buffer.",
            )
        if flatten_tensordicts and max_dims is not None:
            raise not_both("max_dims", "flatten_tensordicts", max_dims)
        self.replay_buffer = replay_buffer
        self.batch_size = None if iterate else batch_size
        self.device = device
        self.flatten_tensordicts = flatten_tensordicts
        self.max_dims = max_dims if max_dims is None else tuple(max_dims)

    def extend(self, batch: TensorDict) -> TensorDict:
        """Store a batch, and return the stored rows on the CPU; the batch does not change.

        Args:
            batch: a TensorDict ``[*B]``, or ``[*B, T]`` with time last.

        Raises:
            WrongSize: the batch is longer than ``max_dims``, or has other dimensions.
        """
        if self.flatten_tensordicts:
            batch = _flattened(batch)
        elif self.max_dims is not None:
            batch = self._padded(batch, self.max_dims)
        stored: TensorDict = batch.cpu()
        self.replay_buffer.extend(stored)
        return stored

    def sample(self, batch: TensorDict | None = None) -> TensorDict:
        """Return a sample of the buffer; the collected batch is not used."""
        sampled: TensorDict = self.replay_buffer.sample(self.batch_size)
        return sampled if self.device is None else sampled.to(self.device)

    def update_priority(self, batch: TensorDict) -> None:
        """Update the priorities of a sample's rows in the buffer, if the buffer has priorities."""
        if self._update_tensordict_priority is not None:
            self._update_tensordict_priority(batch)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the buffer, as ``{"replay_buffer": ...}``."""
        return {"replay_buffer": self.replay_buffer.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load a state of ``state_dict``."""
        self.replay_buffer.load_state_dict(state_dict["replay_buffer"])

    def register(self, trainer: Trainer, name: str = "replay_buffer") -> None:
        """Register the methods of this object at their points of a training loop.

        Args:
            trainer: the training loop.
            name: the key of the buffer's state in the trainer's state.
        """
        trainer.register_op("batch_process", self.extend)
        trainer.register_op("process_optim_batch", self.sample)
        trainer.register_op("post_loss", self.update_priority)
        trainer.register_module(name, self)

    def _padded(self, batch: TensorDict, lengths: tuple[int, ...]) -> TensorDict:
        # The padding of each dimension: [2, 3] to [-1, 5] needs [0, 2].
        missing = [
            0 if length == -1 else length - size
            for size, length in zip(batch.shape, lengths, strict=False)
        ]
        if len(lengths) != batch.ndim or min(missing, default=0) < 0:
            raise WrongSize(
                f"A batch of shape {list(batch.shape)} cannot be padded to max_dims="
                f"{list(lengths)}: each length must be at least the size of its dimension, or -1.",
                argument="max_dims",
                expected=tuple(batch.shape),
                found=lengths,
            )
        if MASK not in batch.keys(include_nested=True):
            mask = torch.ones(batch.shape, dtype=torch.bool, device=batch.device)
            batch = batch.copy().set(MASK, mask)
        padded: TensorDict = pad(batch, [number for after in missing for number in (0, after)])
        return padded


def _flattened(batch: TensorDict) -> TensorDict:
    """Return the single steps of a batch ``[*B, T]``; the last steps are marked as truncated."""
    if MASK in batch.keys(include_nested=True):
        valid: TensorDict = batch[batch[MASK]]
        return valid
    if TRUNCATED in batch.keys(include_nested=True) and batch.ndim:
        batch = batch.copy()
        done = batch.get(DONE, batch[TRUNCATED])
        last = torch.zeros_like(done)
        # Time is the last dimension of the batch; a flag may have one more, of size 1.
        last.movedim(batch.ndim - 1, 0)[-1] = True
        cut = last & ~done
        batch[TRUNCATED] = batch[TRUNCATED] | cut
        if DONE in batch.keys(include_nested=True):
            batch[DONE] = done | cut
    flat: TensorDict = batch.reshape(-1)
    return flat
