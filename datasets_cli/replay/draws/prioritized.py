"""The prioritised sampler: it draws rows in proportion to priorities that training gives back."""

from __future__ import annotations

from pathlib import Path

import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import REDUCTIONS, Numbers
from datasets_cli.replay.draws.priority_draw import PriorityDraw, not_negative
from datasets_cli.replay.draws.priority_files import read_priorities, write_priorities
from datasets_cli.replay.draws.protocol import PrioritySampler
from datasets_cli.replay.draws.rows import SingleRows


class PrioritizedSampler(SingleRows, PrioritySampler):
    """Draws rows in proportion to a power of their priority.

    >>> sampler = PrioritizedSampler(max_capacity=1000, alpha=0.7, beta=0.5)
    >>> sampler.update_priority(torch.arange(3), torch.tensor([0.1, 2.0, -1.0]))

    A batch has the importance weight of each row, ``priority_weight`` ``[B]``.

    Args:
        max_capacity: rows that there is room for at first; more take more.
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

    draw: PriorityDraw

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
            PriorityDraw(
                max_capacity, alpha, beta, eps, dtype, reduction, max_priority_within_buffer, device
            )
        )

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(alpha={self.alpha}, beta={self.beta}, eps={self.eps}, "
            f"reduction={self.draw.reduction!r})"
        )

    @property
    def max_capacity(self) -> int:
        """Rows that there is room for; it grows with the storage."""
        return self.draw.max_capacity

    @property
    def alpha(self) -> float:
        """How much priorities matter; setting it works out the weight of every row again."""
        return self.draw.priorities.alpha

    @alpha.setter
    def alpha(self, value: float) -> None:
        self.draw.priorities.alpha = not_negative("alpha", value)

    @property
    def beta(self) -> float:
        """How much importance weights correct for the draws."""
        return self.draw.beta

    @beta.setter
    def beta(self, value: float) -> None:
        self.draw.beta = not_negative("beta", value)

    @property
    def eps(self) -> float:
        """What is added to every priority."""
        return self.draw.priorities.eps

    @property
    def default_priority(self) -> float:
        """The priority of a new row: the highest so far, and 1 before there is any."""
        return self.draw.default_priority

    def update_priority(self, index: Numbers, priority: Numbers) -> None:
        """Give rows new priorities.

        Args:
            index: rows int64 ``[B]``, or of any shape; -1 is passed over: a writer returns it for a
                row that it refused. Of equal rows the last counts.
            priority: one number for all; or one a row, such as ``[B]`` or ``[B, 1]``; or several a
                row, ``[B, T]``, which are reduced. Their sign does not matter.

        Raises:
            UsageError: a priority is NaN, infinite or complex, the shapes do not fit together, or a
                row is not a whole number from -1 up to the capacity.
        """
        rows = torch.as_tensor(index).reshape(-1)
        if rows.dtype != torch.int64:
            is_whole = not (rows.is_floating_point() or rows.is_complex())
            if rows.numel() and (rows.dtype == torch.bool or not is_whole):
                raise UsageError(f"Rows are whole numbers, int64, not {rows.dtype}.")
            rows = rows.long()
        values = torch.as_tensor(priority)
        if values.is_complex():
            raise UsageError(f"Priorities are real numbers, not {values.dtype}. Give their .abs().")
        if values.dtype not in (torch.float32, torch.float64):
            values = values.double()  # whole numbers have no safe absolute value
        self.draw.set(rows, self._one_a_row(values, len(rows)))

    def on_write(self, rows: torch.Tensor) -> None:
        """Give rows int64 ``[B]`` that were just written the default priority."""
        self.draw.on_write(rows)

    def dumps(self, path: str | Path) -> None:
        """Write the priorities into the folder ``path``, which is made."""
        write_priorities(Path(path), self.state_dict(), self.max_capacity)

    def loads(self, path: str | Path) -> None:
        """Read the priorities that ``dumps``, or TorchRL 0.14, wrote."""
        state = read_priorities(Path(path))
        self.load_state_dict({"kind": self.kind} | state)

    def _one_a_row(self, priority: torch.Tensor, num_rows: int) -> torch.Tensor:
        """Return priorities ``[num_rows]``, or ``[]`` where one number is for all."""
        if priority.numel() == 1:
            return priority.reshape(())
        if priority.numel() == num_rows:
            return priority.reshape(-1)
        if num_rows == 0 or priority.ndim == 0 or len(priority) != num_rows:
            raise UsageError(
                f"Priorities of shape {list(priority.shape)} do not fit {num_rows} rows. Give one "
                "number, or one a row, or several a row with the row first."
            )
        return REDUCTIONS[self.draw.reduction](priority.abs().reshape(num_rows, -1))
