"""How sequences are made of rows, and what is checked of both before anything is made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np
import torch

from datasets_cli.errors import EmptyBuffer, UsageError
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.trajectories.boundaries import FROM_STORAGE
from datasets_cli.schema.bits import MOVABLE
from datasets_cli.schema.columns import Key, show_key
from datasets_cli.schema.tree import entry

PaddedSide = Literal["left", "right"]


@dataclass(frozen=True, kw_only=True)
class SequenceOptions:
    """How sequences are made of rows.

    Args:
        gamma: the discount a step of the returns to go, from 0 to 1.
        padding: the side that is padded where a trajectory ends, ``"left"`` or ``"right"``.
        action_padding: what is below ``"action"`` in padding; elsewhere it is zeros.
    """

    gamma: float = 1.0
    padding: PaddedSide = "left"
    action_padding: float = 0.0

    def __post_init__(self) -> None:
        if self.padding not in get_args(PaddedSide):
            raise UsageError(f"padding is 'left' or 'right', not {self.padding!r}.")


def check_rows(storage: Storage, names: Iterable[str]) -> None:
    """Check that a storage has rows that sequences can be made of."""
    kind = type(storage).__name__
    if storage.is_writable:
        raise UsageError(
            f"Sequences are made of rows that do not change, such as a dataset's, and a {kind} can "
            "be written. Write whole trajectories there with "
            'append_transform(Reward2Go(out_keys=["to_go"])), and sample slices.'
        )
    if not storage.is_tensordict or storage.row_batch_size:
        size = list(storage.row_batch_size)
        found = f"TensorDicts {size}" if storage.is_tensordict else "no TensorDicts"
        raise UsageError(
            "Sequences are made of rows that are TensorDicts without a batch size; those of a "
            f"{kind} are {found}."
        )
    if not len(storage):
        raise EmptyBuffer(f"Sequences are made of rows, and this {kind} does not have any.")
    for name in names:
        if storage.has((name,)):
            raise UsageError(
                f"The rows have {name} already, in whose place sequences would have their own. "
                "Rename it with preprocess() first."
            )


def consecutive_offsets(storage: Storage) -> np.ndarray:
    """Return the offsets int64 ``[K + 1]`` of trajectories that are one after the other."""
    found = storage.trajectories(FROM_STORAGE)
    offsets = np.append(found.starts.numpy(), len(storage))
    # Each has its rows one after the other, up to where the next one begins.
    is_run = found.order is None and found.stride == 1
    if not is_run or offsets[0] or not np.array_equal(np.diff(offsets), found.lengths.numpy()):
        raise UsageError(
            "Sequences need trajectories whose rows are next to each other, one trajectory after "
            "the other; those of this storage are apart."
        )
    return offsets


def checked_discount(gamma: float) -> float:
    """Return the discount a step as a float."""
    if not isinstance(gamma, Real) or not 0 <= gamma <= 1:
        raise UsageError(f"gamma is a number from 0 to 1, not {gamma!r}.")
    return float(gamma)


def check_padding(storage: Storage, key: Key, value: float) -> None:
    """Check that every leaf at or below a key can hold a number; 0 is one of every type."""
    if not isinstance(value, Real):
        raise UsageError(f"{show_key(key)}_padding is a number, not {value!r}.")
    if value:
        _check_fits(value, entry(storage.gather(torch.tensor([0])), key), key)


def _check_fits(value: float, leaf: Any, key: Key) -> None:
    if isinstance(leaf, dict):
        for name, part in leaf.items():
            _check_fits(value, part, (*key, name))
        return
    if not isinstance(leaf, torch.Tensor):
        raise UsageError(f"The rows have no numbers at {show_key(key)} to pad with {value}.")
    dtype = leaf.dtype
    is_whole = not dtype.is_floating_point and not dtype.is_complex
    # Unsigned and narrow integers wrap around, which changes the number.
    if dtype not in MOVABLE or (is_whole and torch.tensor(value).to(dtype).item() != value):
        raise UsageError(
            f"{show_key(key)} cannot be padded with {value}, which is no {dtype}. Take a number "
            "that is one; attention_mask says what is padding."
        )
