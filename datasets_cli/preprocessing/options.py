"""What decides the values of a derived dataset, besides its parent and the function."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import Literal, get_args

from datasets_cli.errors import UsageError

Per = Literal["trajectory", "transition"]
"""What a function maps: whole trajectories, or rows that it looks at alone."""


@dataclass(frozen=True)
class PreprocessOptions:
    """The arguments of a run."""

    CLOSED = True

    num_frames: int | None = None
    chunksize: int | None = None
    num_chunks: int | None = None
    per: Per = "trajectory"
    seed: int = 0
    where: str | None = None
    max_trajectories: int | None = None

    def __post_init__(self) -> None:
        if self.per not in get_args(Per):
            raise UsageError(f'per is "trajectory" or "transition", not {self.per!r}.')
        if self.chunksize is not None and self.num_chunks is not None:
            raise UsageError("Give chunksize or num_chunks, not both.")
        for name in ("num_frames", "chunksize", "num_chunks", "max_trajectories"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, Integral):
                raise UsageError(f"{name} is {value!r}; expected a whole number.")
            if value is not None and value < 1:
                raise UsageError(f"{name} is {value}; expected 1 or more.")
        if not isinstance(self.seed, Integral):
            raise UsageError(f"seed is {self.seed!r}; expected a whole number.")
        if self.seed < 0:
            raise UsageError(f"seed is {self.seed}; expected 0 or more.")

    @property
    def chooses(self) -> bool:
        """Whether some trajectories are chosen."""
        return self.where is not None or self.max_trajectories is not None

    def num_rows(self, num_transitions: int) -> int:
        """Return the rows that a run reads of a dataset that has ``num_transitions``."""
        return min(self.num_frames or num_transitions, num_transitions)

    def task_rows(self, num_rows: int, default: int) -> int:
        """Return the rows of a chunk; at most those of the run."""
        if self.num_chunks is not None:
            return -(-num_rows // self.num_chunks)  # rounded up
        return min(self.chunksize or default, num_rows)
