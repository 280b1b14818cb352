"""Numbers of trajectories as users give them."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable

import numpy as np
import torch

from datasets_cli.errors import UsageError

TrajectoryNumbers = Iterable[int] | np.ndarray | torch.Tensor
"""Whole numbers, those below 0 counted from the end; or a mask, bool ``[K]``."""


def trajectory_numbers(numbers: TrajectoryNumbers | None, num_trajectories: int) -> np.ndarray:
    """Return which of K trajectories are meant, int64 ``[n]``, in the order given."""
    if numbers is None:
        return np.arange(num_trajectories)
    array = _array(numbers)
    if array.dtype == np.bool_ and array.shape == (num_trajectories,):
        return np.flatnonzero(array)
    if not array.size and array.ndim == 1 and array.dtype != np.bool_:
        return np.zeros(0, np.int64)  # numpy takes an empty list for floats
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise UsageError(
            f"Episodes are chosen by a list of whole numbers, or by a mask of {num_trajectories} "
            f"bools, not by {array.dtype} {list(array.shape)}: {reprlib.repr(numbers)}."
        )
    if int(array.min()) < -num_trajectories or int(array.max()) >= num_trajectories:
        raise IndexError(
            f"Episodes are numbered from 0 to {num_trajectories - 1}, and from "
            f"{-num_trajectories} to -1 from the end; found {array.min()} to {array.max()}."
        )
    array = array.astype(np.int64)
    return np.where(array < 0, array + num_trajectories, array)


def _array(numbers: TrajectoryNumbers) -> np.ndarray:
    if isinstance(numbers, np.ndarray):
        return numbers
    if isinstance(numbers, torch.Tensor):
        numbers = numbers.tolist()
    if isinstance(numbers, str) or not isinstance(numbers, Iterable):
        raise UsageError(
            f"Episodes are chosen by a list of whole numbers, not by {numbers!r}; episode(number) "
            "returns one."
        )
    values = [*numbers]
    try:
        return np.array(values)
    except ValueError as error:  # lists of several lengths
        raise UsageError(
            f"Episodes are chosen by a list of whole numbers, not by {reprlib.repr(values)}."
        ) from error
