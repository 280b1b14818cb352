"""What becomes of a batch between its collection and the user."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from tensordict import TensorDictBase

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import whole_number
from datasets_cli.replay.trajectories.split import split_trajectories


class Extendable(Protocol):
    """What batches can be written to: a replay buffer."""

    def extend(self, data: Any) -> Any:
        """Write rows."""


@dataclass
class Delivery:
    """Hands batches out, and counts them."""

    frames_per_batch: int
    total_frames: int
    init_random_frames: int | None
    storing_device: torch.device | None
    split_trajs: bool | None
    postproc: Callable[[Any], Any] | None
    replay_buffer: Extendable | None
    frames: int = 0
    batches: int = 0

    def __post_init__(self) -> None:
        self.frames_per_batch = whole_number("frames_per_batch", self.frames_per_batch, 1)
        self.total_frames = whole_number("total_frames", self.total_frames)
        if self.total_frames != -1 and (
            self.total_frames < 1 or self.total_frames % self.frames_per_batch
        ):
            raise UsageError(
                f"total_frames must be a multiple of frames_per_batch, {self.frames_per_batch}, "
                f"or -1 for no end, not {self.total_frames}: every batch is whole."
            )
        if self.init_random_frames is not None:
            whole_number("init_random_frames", self.init_random_frames)
        if self.postproc is not None and not callable(self.postproc):
            raise UsageError(f"postproc must be a function, not {self.postproc!r}.")
        if self.replay_buffer is not None and not hasattr(self.replay_buffer, "extend"):
            raise UsageError(
                f"replay_buffer must be a buffer, which extend(rows) fills, not "
                f"{self.replay_buffer!r}."
            )

    def is_due(self, begun: int) -> bool:
        """Return whether another batch is to be collected after some frames."""
        return self.total_frames == -1 or begun < self.total_frames

    def is_random(self, begun: int) -> bool:
        """Return whether the batch after some frames is one of random actions."""
        return self.init_random_frames is not None and begun < self.init_random_frames

    def deliver(self, batch: TensorDictBase) -> TensorDictBase | None:
        """Return what the user gets of a batch: None where it goes to a replay buffer."""
        self.frames += batch.numel()
        self.batches += 1
        if self.storing_device is not None:
            batch = batch.to(self.storing_device)
        if self.split_trajs:
            batch = split_trajectories(batch, prefix="collector")
        if self.postproc is not None:
            batch = self.postproc(batch)
        if self.replay_buffer is None:
            return batch
        self.replay_buffer.extend(batch)
        return None
