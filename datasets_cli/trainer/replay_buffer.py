"""A replay buffer in a training loop: it stores what is collected, and gives samples of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDict, pad

from datasets_cli.errors import UsageError
from datasets_cli.replay.buffer.buffer import ReplayBuffer
from datasets_cli.replay.mixing.offline_to_online import OfflineToOnline

if TYPE_CHECKING:
    from datasets_cli.trainer.trainer import Trainer

MASK = ("collector", "mask")
TRUNCATED, DONE = ("next", "truncated"), ("next", "done")


class ReplayBufferTrainer:
    """Fills a replay buffer with what is collected, and samples it for each optimisation step.

    Args:
        replay_buffer: the buffer, or a dataset and a buffer sampled as one. A buffer that cannot be
            written, as a dataset, is only sampled: do not register ``extend`` then.
        batch_size: rows of a sample; the buffer's own batch size where None.
        memmap: False; a storage of mapped files is what keeps rows on the disk.
        device: where samples are moved; None leaves them where they are.
        flatten_tensordicts: store single steps: those that ``("collector", "mask")`` is True for,
            where there is one; else all, and the last step of each row of a batch that is not done
            is marked as truncated, since what follows it in the buffer is another row's.
        max_dims: pad each batch dimension with zeros to this length, -1 to leave it;
            ``("collector", "mask")`` is False for what is padding. Only without
            ``flatten_tensordicts``.
        iterate: samples have the buffer's own batch size, as the batches of its iteration do.

    Raises:
        UsageError: arguments that exclude one another, or a sampler of priorities in a
            ``ReplayBuffer`` that has no ``update_tensordict_priority``.
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
        self._updates = getattr(replay_buffer, "update_tensordict_priority", None)
        if (
            self._updates is None
            and isinstance(replay_buffer, ReplayBuffer)
            and replay_buffer.sampler.has_priorities
        ):
            raise UsageError(
                f"The priorities of a {type(replay_buffer).__name__} cannot be updated from "
                "batches. Make a TensorDictReplayBuffer with the same sampler."
            )
        if memmap:
            raise UsageError(
                "memmap=True asks for batches in mapped files, which a buffer copies at once. To "
                "keep the rows on the disk, give the buffer LazyMemmapStorage(max_size)."
            )
        if flatten_tensordicts and max_dims is not None:
            raise UsageError(
                "max_dims pads batches to one shape, and flatten_tensordicts leaves none. Give one."
            )
        self.replay_buffer = replay_buffer
        self.batch_size = None if iterate else batch_size
        self.device = device
        self.flatten_tensordicts = flatten_tensordicts
        self.max_dims = max_dims if max_dims is None else tuple(max_dims)

    def extend(self, batch: TensorDict) -> TensorDict:
        """Store a batch and return what was stored, on the CPU; the batch itself is not changed.

        Args:
            batch: ``[*B]``, or ``[*B, T]`` with time last.

        Raises:
            UsageError: the batch is longer than ``max_dims``, or has other dimensions.
        """
        if self.flatten_tensordicts:
            batch = _flattened(batch)
        elif self.max_dims is not None:
            batch = self._padded(batch, self.max_dims)
        stored: TensorDict = batch.cpu()
        self.replay_buffer.extend(stored)
        return stored

    def sample(self, batch: TensorDict | None = None) -> TensorDict:
        """Return rows of the buffer; the batch that was collected is not used."""
        sampled: TensorDict = self.replay_buffer.sample(self.batch_size)
        return sampled if self.device is None else sampled.to(self.device)

    def update_priority(self, batch: TensorDict) -> None:
        """Set the priorities of a sample's rows to those in it, where the buffer has priorities."""
        if self._updates is not None:
            self._updates(batch)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the buffer, as ``{"replay_buffer": ...}``."""
        return {"replay_buffer": self.replay_buffer.state_dict()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load what ``state_dict`` returned."""
        self.replay_buffer.load_state_dict(state_dict["replay_buffer"])

    def register(self, trainer: Trainer, name: str = "replay_buffer") -> None:
        """Take part in a training loop at the usual points.

        Args:
            trainer: the loop.
            name: under which the trainer's state keeps the buffer's.
        """
        trainer.register_op("batch_process", self.extend)
        trainer.register_op("process_optim_batch", self.sample)
        trainer.register_op("post_loss", self.update_priority)
        trainer.register_module(name, self)

    def _padded(self, batch: TensorDict, lengths: tuple[int, ...]) -> TensorDict:
        # What each dimension lacks; 0 where it is not padded.
        missing = [
            0 if length == -1 else length - size
            for size, length in zip(batch.shape, lengths, strict=False)
        ]
        if len(lengths) != batch.ndim or min(missing, default=0) < 0:
            raise UsageError(
                f"A batch of shape {list(batch.shape)} cannot be padded to max_dims "
                f"{list(lengths)}. Expected, for each, at least its size, or -1."
            )
        if MASK not in batch.keys(include_nested=True):
            mask = torch.ones(batch.shape, dtype=torch.bool, device=batch.device)
            batch = batch.copy().set(MASK, mask)
        padded: TensorDict = pad(batch, [number for after in missing for number in (0, after)])
        return padded


def _flattened(batch: TensorDict) -> TensorDict:
    """Return the single steps of a batch ``[*B, T]``, where rows end as truncated."""
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
