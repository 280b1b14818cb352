"""What becomes of a batch between its collection and the user."""

from __future__ import annotations

import torch
from tensordict import TensorDictBase

from datasets_cli.environments.collectors.options import CollectorOptions
from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import whole_number
from datasets_cli.replay.trajectories.split import split_trajectories


class Delivery:
    """Hands batches out, and counts them."""

    def __init__(self, options: CollectorOptions) -> None:
        self._options = options
        self.frames_per_batch = whole_number("frames_per_batch", options.frames_per_batch, 1)
        self.total_frames = whole_number("total_frames", options.total_frames)
        self._device = options.batches_on
        self.frames = self.batches = 0
        if self.total_frames != -1 and (
            self.total_frames < 1 or self.total_frames % self.frames_per_batch
        ):
            raise UsageError(
                f"total_frames must be a multiple of frames_per_batch, {self.frames_per_batch}, "
                f"or -1 for no end, not {self.total_frames}: every batch is whole."
            )
        if options.init_random_frames is not None:
            whole_number("init_random_frames", options.init_random_frames)
        if options.postproc is not None and not callable(options.postproc):
            raise UsageError(f"postproc must be a function, not {options.postproc!r}.")
        if options.replay_buffer is not None and not hasattr(options.replay_buffer, "extend"):
            raise UsageError(
                f"replay_buffer must be a buffer, which extend(rows) fills, not "
                f"{options.replay_buffer!r}."
            )

    def place(self, device: torch.device | None) -> None:
        """Put batches where the environments' tensors are, unless a device was given."""
        self._device = self._device or device

    def is_due(self, begun: int) -> bool:
        """Return whether another batch is to be collected after some frames."""
        return self.total_frames == -1 or begun < self.total_frames

    def is_random(self, begun: int) -> bool:
        """Return whether the batch after some frames is one of random actions."""
        first = self._options.init_random_frames
        return first is not None and begun < first

    def deliver(self, batch: TensorDictBase) -> TensorDictBase | None:
        """Return what the user gets of a batch: None where it goes to a replay buffer."""
        self.frames += batch.numel()
        self.batches += 1
        if self._device is not None:
            batch = batch.to(self._device)
        if self._options.split_trajs:
            batch = split_trajectories(batch, prefix="collector")
        if self._options.postproc is not None:
            batch = self._options.postproc(batch)
        if self._options.replay_buffer is None:
            return batch
        self._options.replay_buffer.extend(batch)
        return None
