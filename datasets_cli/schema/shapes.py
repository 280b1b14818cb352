"""Type aliases for shapes and dtypes in signatures, and checks of row numbers.

``K`` counts trajectories, ``B`` rows or slices of a batch, ``T`` steps, ``M`` members of a mixture.
The aliases of tensors are strings at run time, so torch is not imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from datasets_cli.errors import OutOfRange

if TYPE_CHECKING:
    import torch

RowNumbers: TypeAlias = "torch.Tensor"
"""Numbers of rows of a storage, int64 ``[B]``."""

TrajectoryNumbers: TypeAlias = "torch.Tensor"
"""Numbers of trajectories, counted from 0, int64 ``[B]``."""

Items: TypeAlias = "torch.Tensor"
"""Numbers of drawn items (rows or trajectories), int64 ``[B]``."""

Steps: TypeAlias = "torch.Tensor"
"""Steps within trajectories, counted from 0, int64 ``[B]``."""

Lengths: TypeAlias = "torch.Tensor"
"""Rows of each trajectory or slice, int64 ``[K]``."""

Offsets: TypeAlias = "torch.Tensor"
"""The first row of each trajectory, followed by the number of rows, int64 ``[K + 1]``."""

Mask: TypeAlias = "torch.Tensor"
"""A flag for each row, bool ``[B]``."""

FlagColumn: TypeAlias = "torch.Tensor"
"""A flag for each row as a column of a batch, bool ``[B, 1]``."""

StepFlags: TypeAlias = "torch.Tensor"
"""A flag for each step of sequences, bool ``[*B, T]``, time last."""

Uniforms: TypeAlias = "torch.Tensor"
"""Uniform random numbers in [0, 1), float64 ``[B]``."""

MemberNumbers: TypeAlias = "torch.Tensor"
"""The member of a mixture of each row, int64 ``[B]``."""

Shares: TypeAlias = "torch.Tensor"
"""The share of each member of a mixture, float64 ``[M]``; the sum is 1."""

RowArray: TypeAlias = np.ndarray
"""``RowNumbers`` as a numpy array, int64 ``[B]``."""

ItemArray: TypeAlias = np.ndarray
"""Positions in an order, or the items at these positions, int64 ``[n]``, as a numpy array."""

OffsetArray: TypeAlias = np.ndarray
"""``Offsets`` as a numpy array, int64 ``[K + 1]``."""

LengthArray: TypeAlias = np.ndarray
"""``Lengths`` as a numpy array, int64 ``[K]``."""

MaskArray: TypeAlias = np.ndarray
"""``Mask`` as a numpy array, bool ``[B]``."""

Runs: TypeAlias = tuple[tuple[int, int], ...]
"""Ascending row numbers as runs: the first number and the length of each."""


def check_numbers(numbers: RowArray, num_rows: int) -> RowArray:
    """Return the row numbers, or raise ``OutOfRange`` if one is negative or too large."""
    # For numpy -1 is the last row, and the mode "clip", the fastest copy, hides numbers beyond both
    # ends. As unsigned integers negative numbers are huge: one comparison finds both.
    if len(numbers) and numbers.view(np.uint64).max() >= num_rows:
        raise _out_of_range(f"{numbers.min()} to {numbers.max()}", num_rows)
    return numbers


def check_run(start: int, stop: int, num_rows: int) -> None:
    """Raise ``OutOfRange`` unless the rows ``start`` to ``stop - 1`` exist."""
    if not 0 <= start <= stop <= num_rows:
        raise _out_of_range(f"a start of {start} and a stop of {stop}", num_rows)


def runs_of_rows(numbers: RowArray) -> Runs:
    """Return ascending row numbers as runs: ``[3, 4, 9]`` are ``((3, 2), (9, 1))``."""
    begins = np.flatnonzero(np.diff(numbers, prepend=-2) != 1)
    lengths = np.diff(begins, append=len(numbers))
    return tuple(zip(numbers[begins].tolist(), lengths.tolist(), strict=True))


def _out_of_range(found: str, num_rows: int) -> OutOfRange:
    expected = f"0 to {num_rows - 1}"
    message = f"Rows are numbered from {expected}; found {found}."
    return OutOfRange(message, expected=expected, found=found)
