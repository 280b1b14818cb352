"""The prioritised sampler: rows drawn in proportion to their priority."""

from __future__ import annotations

import torch

from datasets_cli.replay.draws.priority_sampler import Prioritized
from datasets_cli.replay.draws.protocol import Info
from datasets_cli.replay.storages.protocol import Storage


class PrioritizedSampler(Prioritized):
    """Draws rows in proportion to a power of their priority.

    >>> sampler = PrioritizedSampler(max_capacity=1000, alpha=0.7, beta=0.5)
    >>> sampler.update_priority(torch.arange(3), torch.tensor([0.1, 2.0, -1.0]))

    Args:
        max_capacity: most rows that the storage can have.
        alpha: how much priorities matter; 0 draws uniformly.
        beta: how much importance weights correct for it; 1 corrects fully.
        eps: added to every priority, so that none is 0.
        dtype: of the importance weights; priorities and their sums are float64.
        reduction: how several numbers a row become one priority: ``"max"``, ``"min"``, ``"mean"``
            or ``"median"``.
        max_priority_within_buffer: new rows get the highest priority among the rows that are there,
            rather than the highest that ever was.
        device: where rows are drawn; the CPU by default.

    Raises:
        UsageError: an argument is out of its range.
    """

    kind = "rows by priority"

    def __init__(
        self,
        max_capacity: int,
        alpha: float,
        beta: float,
        eps: float = 1e-8,
        dtype: torch.dtype = torch.float,
        reduction: str = "max",
        max_priority_within_buffer: bool = False,
        device: torch.device | str | None = None,
    ) -> None:
        super().__init__(
            max_capacity, alpha, beta, eps, dtype, reduction, max_priority_within_buffer, device
        )

    def sample(
        self, storage: Storage, batch_size: int, generator: torch.Generator
    ) -> tuple[torch.Tensor, Info]:
        """Return row numbers int64 ``[B]`` and importance weights ``priority_weight`` ``[B]``.

        Raises:
            UsageError: the storage is larger than the capacity, or there is nothing to draw.
        """
        self._fit(storage)
        rows, weights = self.priorities.draw(batch_size, self.beta, generator)
        return rows, {("priority_weight",): weights.to(self.dtype)}
