"""The rows that a run reads of a dataset, and the chunks in which its function gets them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from datasets_cli.core.options import check_choice, check_numbers
from datasets_cli.errors import UsageError, argument, not_both, wrong_value
from datasets_cli.install.options import LAYOUT, check_layout

Per = Literal["chunk", "trajectory", "transition"]
"""The unit of a call: a chunk of whole trajectories, one trajectory, or any rows."""


@dataclass(frozen=True, kw_only=True)
class ChunkOptions:
    """The numbers of rows for a run and for a call of the function.

    Args:
        num_frames: process only the first N rows, for testing; they may cut a trajectory.
        per: rows of one call: several whole trajectories (``"chunk"``), which the function
            separates by ``episode`` or ``next.done``, one trajectory (``"trajectory"``), or
            exactly ``chunksize`` rows, of any trajectories (``"transition"``).
        chunksize: minimum rows of a chunk, rounded up to whole trajectories; by default about
            8 MiB of rows, at most 65,536. 0 calls the function once per row, with a TensorDict
            ``[]``, and stacks the results.
        num_chunks: maximum number of chunks, in place of ``chunksize``.
        layout: ``"ted"`` or ``"compact"``; by default that of the input.
    """

    num_frames: int | None = field(
        default=None,
        metadata={
            "least": 1,
            "flag": ("-n", "--num"),
            "help": "Process only the first N transitions, for testing.",
        },
    )
    per: Per = field(
        default="chunk",
        metadata={
            "help": (
                "Transitions per call: whole trajectories (chunk), one trajectory, or exactly "
                "--chunksize transitions of any trajectories (transition)."
            )
        },
    )
    chunksize: int | None = field(
        default=None,
        metadata={
            "least": 0,
            "help": (
                "Minimum transitions per call, rounded up to whole trajectories; 0 calls the "
                "function once per transition."
            ),
            "default": "about 8 MiB, at most 65,536",
        },
    )
    num_chunks: int | None = field(
        default=None,
        metadata={"least": 1, "help": "Maximum number of chunks, instead of --chunksize."},
    )
    layout: str | None = field(default=None, metadata={**LAYOUT, "default": "that of the dataset"})

    def __post_init__(self) -> None:
        check_choice("per", self.per, get_args(Per))
        if self.per == "trajectory" and self.chunksize == 0:
            raise UsageError(
                f"{argument('per', 'trajectory')} passes whole trajectories to the function, and "
                f"{argument('chunksize', '0')} each row alone.",
                argument="chunksize",
                found=0,
                advice="Pass only one of them.",
            )
        check_layout(self.layout)
        if self.chunksize is not None and self.num_chunks is not None:
            raise not_both("num_chunks", "chunksize", self.num_chunks)
        check_numbers(self)


@dataclass(frozen=True, kw_only=True)
class PreprocessOptions(ChunkOptions):
    """The trajectories that ``preprocess`` reads, their chunks, and the seed.

    Args:
        where: keep only trajectories that match, such as ``"return > 300 and length >= 100"`` or
            ``"first-success"``.
        max_trajectories: use at most N trajectories, chosen at random with ``seed`` and read in
            their order.
        seed: seeds torch for every chunk, so random functions repeat, and chooses
            ``max_trajectories``.

    Raises:
        UsageError: a value is of another type or out of range.
    """

    CLOSED = True

    where: str | None = field(
        default=None,
        metadata={
            "metavar": "CONDITION",
            "help": "Keep only trajectories that match, e.g. 'return > 300 and length >= 100'.",
        },
    )
    max_trajectories: int | None = field(
        default=None,
        metadata={"least": 1, "help": "Use at most N trajectories, chosen at random with --seed."},
    )
    seed: int = field(
        default=0,
        metadata={"least": 0, "help": "Seed of torch in every chunk, and of --max-trajectories."},
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.where, str | None):
            raise wrong_value("where", "text", self.where)

    @property
    def chooses(self) -> bool:
        """Whether only some trajectories are read."""
        return self.where is not None or self.max_trajectories is not None

    def num_rows(self, num_transitions: int) -> int:
        """Return the number of rows that a run reads of ``num_transitions``."""
        return min(self.num_frames or num_transitions, num_transitions)

    def task_rows(self, num_rows: int, default: int) -> int:
        """Return the number of rows of a chunk; at most all rows of the run."""
        if self.num_chunks is not None:
            return -(-num_rows // self.num_chunks)  # rounded up
        return min(self.chunksize or default, num_rows)
