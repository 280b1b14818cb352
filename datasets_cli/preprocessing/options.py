"""What of a dataset a run reads, in which chunks: with the function it decides all values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from datasets_cli.core.options import check_numbers
from datasets_cli.errors import UsageError, argument
from datasets_cli.install.options import LAYOUT, check_layout

Per = Literal["chunk", "trajectory", "transition"]
"""What a function maps: whole trajectories at once, one trajectory, or any rows."""


RowOrder = Literal["same", "any"]
"""In which order a function returns rows: that in which it got them, or any."""


@dataclass(frozen=True, kw_only=True)
class ChunkOptions:
    """How many rows are read, and how many of them a function takes at once.

    Args:
        num_frames: only this many rows, the first, to try a function; they may cut a trajectory.
        per: what a call of the function gets: several whole trajectories (``"chunk"``), which
            it tells apart by ``episode`` or ``next.done``, one trajectory (``"trajectory"``), or
            exactly ``chunksize`` rows, of any trajectories (``"transition"``).
        chunksize: rows of a chunk, at least, to the next end of a trajectory; by default about
            8 MiB of rows, at most 65,536. 0 is each row alone: a call takes a TensorDict ``[]``,
            and what is returned for each is stacked.
        num_chunks: the number of chunks instead, at most.
        order: ``"any"`` takes rows that the function returns in another order, and ends that it
            moves; both are refused otherwise.
        layout: ``"ted"`` or ``"compact"``; by default that of the dataset that is read.
    """

    num_frames: int | None = field(default=None, metadata={"least": 1})
    per: Per = "chunk"
    chunksize: int | None = field(default=None, metadata={"least": 0})
    num_chunks: int | None = field(default=None, metadata={"least": 1})
    order: RowOrder = "same"
    layout: str | None = field(default=None, metadata={**LAYOUT, "default": "that of the dataset"})

    def __post_init__(self) -> None:
        if self.per not in get_args(Per):
            raise UsageError(
                f'{argument("per")} is "chunk", "trajectory" or "transition", not {self.per!r}.'
            )
        if self.per == "trajectory" and self.chunksize == 0:
            raise UsageError(
                f"{argument('per', 'trajectory')} gives a function whole trajectories, and "
                f"{argument('chunksize', '0')} each row alone. Give one of them."
            )
        if self.order not in get_args(RowOrder):
            raise UsageError(f'{argument("order")} is "same" or "any", not {self.order!r}.')
        check_layout(self.layout)
        if self.chunksize is not None and self.num_chunks is not None:
            raise UsageError(f"Give {argument('chunksize')} or {argument('num_chunks')}, not both.")
        check_numbers(self)


@dataclass(frozen=True, kw_only=True)
class PreprocessOptions(ChunkOptions):
    """What of a dataset ``preprocess`` reads, in which chunks, and the seed of what is drawn.

    Args:
        where: only what this leaves: ``"return > 300 and length >= 100"``, ``"first-success"``.
        max_trajectories: at most this many of these, drawn by ``seed`` and read in their order.
        seed: seeds torch for every chunk, so that random functions repeat, and draws
            ``max_trajectories``.

    Raises:
        UsageError: a value is of another type or out of range.
    """

    CLOSED = True

    where: str | None = field(default=None, metadata={"metavar": "CONDITION"})
    max_trajectories: int | None = field(default=None, metadata={"least": 1})
    seed: int = field(default=0, metadata={"least": 0})

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.where, str | None):
            raise UsageError(f"{argument('where')} is {self.where!r}; expected text.")

    @property
    def chooses(self) -> bool:
        """Whether some trajectories are chosen."""
        return self.where is not None or self.max_trajectories is not None

    def num_rows(self, num_transitions: int) -> int:
        """Return the rows that a run reads of a dataset that has ``num_transitions``."""
        return min(self.num_frames or num_transitions, num_transitions)

    def task_rows(self, num_rows: int, default: int) -> int:
        """Return the rows of a chunk, together or each alone; at most those of the run."""
        if self.num_chunks is not None:
            return -(-num_rows // self.num_chunks)  # rounded up
        return min(self.chunksize or default, num_rows)
