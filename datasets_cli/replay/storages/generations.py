"""Generations: how often the rows of a storage were written, which tells a handle that is stale."""

from __future__ import annotations

import torch


class Generations:
    """How often each row was written after its first time; -1 for one that never was."""

    def __init__(self) -> None:
        self.counts = torch.full((1,), -1)  # int64, of the first rows

    def count(self, rows: torch.Tensor) -> None:
        """Count rows int64 ``[n]`` that were written, each as often as it is there."""
        num_rows = int(rows.max()) + 1 if len(rows) else 0
        if num_rows > len(self.counts):
            counts = torch.full((max(num_rows, 2 * len(self.counts)),), -1)
            counts[: len(self.counts)] = self.counts
            self.counts = counts
        self.counts.index_add_(0, rows, torch.ones_like(rows))

    def advance(self) -> None:
        """Count all rows as written: what they had is gone."""
        self.counts[self.counts >= 0] += 1

    def of(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the generations of rows, int64 in their shape; -1 where there is no such row."""
        number = rows.cpu()
        is_known = (number >= 0) & (number < len(self.counts))
        return torch.where(is_known, self.counts[number * is_known], -1).to(rows.device)
