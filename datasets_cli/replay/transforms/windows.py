"""Windows: the steps of a trajectory that make each stack of N, and what is beyond its edge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from datasets_cli.replay.trajectories.bounds import first_of, last_of

Padding = Literal["same", "constant"]


@dataclass(frozen=True)
class Windows:
    """The steps of each stack."""

    # row: where a row of the batch begins, flattened, int64 `[*B, 1, 1]`.
    # steps: the steps to read, int64 `[*B, t, N]`.
    # edge: the first (or last) of their trajectory, int64 `[*B, t, 1]`.
    # padded: which steps are beyond it, bool `[*B, t, N]`.
    # wanted: what the steps would have been, int64 `[t, N]`.

    row: torch.Tensor
    steps: torch.Tensor
    edge: torch.Tensor
    padded: torch.Tensor
    wanted: torch.Tensor

    def stacks(
        self, value: torch.Tensor, first: torch.Tensor | None, padding: Padding, fill: float
    ) -> torch.Tensor:
        """Return ``[*B, t, N, ...]`` of an entry ``[*B, T, ...]``."""
        ndim = self.steps.ndim - 1
        rows = self.row + self.steps
        stack: torch.Tensor = value.flatten(0, ndim - 1).index_select(0, rows.flatten())
        stack = stack.view(*rows.shape, *value.shape[ndim:])
        padded = self.padded
        if first is not None:
            edge = (self.row + self.edge).expand(padded.shape)[padded]
            stack[padded] = first.flatten(0, ndim - 1)[edge]
            padded = self.wanted < self.edge - 1
        if padding == "same":
            return stack
        return torch.where(padded.view(*padded.shape, *[1] * (value.ndim - ndim)), fill, stack)


def windows_of(ends: torch.Tensor, size: int, when: slice, *, future: bool) -> Windows:
    """Return the steps that make the stack of each step."""
    # ends: which steps end their trajectory, bool `[*B, T]`.
    time = ends.shape[-1]
    offsets = torch.arange(size, device=ends.device) - (0 if future else size - 1)
    wanted = torch.arange(time, device=ends.device)[when].unsqueeze(1) + offsets
    edge = (last_of(ends) if future else first_of(ends))[..., when].unsqueeze(-1)
    steps = torch.minimum(wanted, edge) if future else torch.maximum(wanted, edge)
    row = torch.arange(ends[..., 0].numel(), device=ends.device) * time
    return Windows(row.view(*ends.shape[:-1], 1, 1), steps, edge, wanted != steps, wanted)
