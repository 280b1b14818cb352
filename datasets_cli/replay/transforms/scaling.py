"""Transforms that scale and shift entries, and statistics of datasets for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from tensordict import TensorDict

from datasets_cli.errors import UnknownKey, UsageError, WrongRows, wrong_value
from datasets_cli.replay.arguments import NestedKeys, keys_of
from datasets_cli.replay.storages.dataset import DatasetStorage, FrameStack
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.transforms.transform import KeyMap, Transform, stored_map
from datasets_cli.schema.columns import Key, show_key, wrong_column
from datasets_cli.schema.summary import RunningMoments
from datasets_cli.schema.tree import entry

CHUNK_ROWS = 1 << 16
CHUNK_NUMBERS = 1 << 24
"""Limit of the numbers in a chunk: chunks of wide rows, such as frames, have fewer rows."""


@runtime_checkable
class HasStorage(Protocol):
    """An object with a storage, such as a replay buffer."""

    @property
    def storage(self) -> Storage:
        """The storage of the rows."""


class ObservationNorm(Transform):
    """Returns ``value * scale + loc``, or with ``standard_normal`` ``(value - loc) / scale``.

    >>> norm = ObservationNorm(loc=0.5, scale=2.0, in_keys=["observation"], standard_normal=True)

    Args:
        loc: a number, or a tensor that broadcasts against one row.
        scale: a number, or a tensor that broadcasts against one row.
        in_keys: keys of the entries, all scaled by the same numbers.
        out_keys: keys of the results; ``in_keys`` by default.
        in_keys_inv: keys of entries that are stored unscaled when rows are written.
        out_keys_inv: keys of the same entries in the written rows.
        standard_normal: subtract the mean ``loc``, and divide by the deviation ``scale``.
        eps: lower limit of a divisor.

    Raises:
        UsageError: an argument is missing, the numbers of keys differ, or a divisor is 0, negative
            or NaN; a tensor may have some zeros.
    """

    def __init__(
        self,
        loc: float | torch.Tensor | None = None,
        scale: float | torch.Tensor | None = None,
        in_keys: NestedKeys | None = None,
        out_keys: NestedKeys | None = None,
        in_keys_inv: NestedKeys | None = None,
        out_keys_inv: NestedKeys | None = None,
        standard_normal: bool = False,
        eps: float = 1e-6,
    ) -> None:
        needed = {"loc": loc, "scale": scale, "in_keys": in_keys}
        missing = [name for name, value in needed.items() if value is None]
        if loc is None or scale is None or in_keys is None:
            raise UsageError(
                f"ObservationNorm needs {', '.join(missing)}.",
                argument=missing[0],
                advice="ObservationNorm.from_dataset computes loc and scale.",
            )
        if standard_normal or in_keys_inv:
            _check_divisor(scale)
        self.loc = loc
        self.scale = _at_least(scale, eps) if standard_normal else scale
        self.standard_normal = standard_normal
        self._read = KeyMap("ObservationNorm", in_keys, out_keys)
        self._stored = stored_map("ObservationNorm", in_keys_inv, out_keys_inv)

    @classmethod
    def from_dataset(
        cls,
        data: Storage | HasStorage,
        in_keys: NestedKeys,
        out_keys: NestedKeys | None = None,
        *,
        key: Key | str | None = None,
        eps: float = 1e-6,
    ) -> ObservationNorm:
        """Return the transform that scales an entry of a dataset to mean 0 and deviation 1.

        Args:
            data: an ``ExperienceReplay``, another buffer, or a storage; all its rows are read once.
            in_keys: keys of entries, such as ``["observation", ("next", "observation")]``.
            out_keys: keys of the results; ``in_keys`` by default.
            key: key of the entry whose statistics are computed, for each number of a row; the first
                of ``in_keys`` by default.
            eps: lower limit of the deviation; a constant number has deviation 0.

        Raises:
            UsageError: the entry is missing, or not finite, or ``data`` has fewer than two rows.
        """
        column = keys_of(in_keys if key is None else key)[0]
        storage = data.storage if isinstance(data, HasStorage) else data
        mean, deviation = _moments(_chunks(storage, column), column)
        deviation = deviation.clamp(min=eps)
        return cls(mean, deviation, in_keys, out_keys, standard_normal=True, eps=eps)

    def __call__(self, batch: TensorDict) -> TensorDict:
        return self._read.apply(batch, self._divide if self.standard_normal else self._multiply)

    def inv(self, data: TensorDict) -> TensorDict:
        undo = self._multiply if self.standard_normal else self._divide
        return self._stored.apply(data.copy(), undo)

    def _multiply(self, value: torch.Tensor) -> torch.Tensor:
        return value * _on(self.scale, value) + _on(self.loc, value)

    def _divide(self, value: torch.Tensor) -> torch.Tensor:
        return (value - _on(self.loc, value)) / _on(self.scale, value)

    def __repr__(self) -> str:
        return f"ObservationNorm(in_keys={self._read.in_keys})"


class RewardScaling(Transform):
    """Returns ``reward * scale + loc``, or with ``standard_normal`` ``(reward - loc) / scale``.

    Args:
        loc: a number or a tensor.
        scale: a number or a tensor.
        in_keys: keys of rewards; ``("next", "reward")`` by default.
        out_keys: keys of the results; ``in_keys`` by default.
        standard_normal: subtract ``loc``, and divide by ``scale``.
    """

    def __init__(
        self,
        loc: float | torch.Tensor,
        scale: float | torch.Tensor,
        in_keys: NestedKeys | None = None,
        out_keys: NestedKeys | None = None,
        standard_normal: bool = False,
    ) -> None:
        in_keys = [("next", "reward")] if in_keys is None else in_keys
        self._scaling = ObservationNorm(
            loc, scale, in_keys, out_keys, standard_normal=standard_normal
        )
        self._scaling._read.owner = "RewardScaling"

    def __call__(self, batch: TensorDict) -> TensorDict:
        return self._scaling(batch)

    def __repr__(self) -> str:
        return f"RewardScaling(loc={self._scaling.loc}, scale={self._scaling.scale})"


def _check_divisor(scale: float | torch.Tensor) -> None:
    """Check that a scale is a divisor; a constant number of a row has deviation 0."""
    numbers = torch.as_tensor(scale)
    if not (bool((numbers >= 0).all()) and bool((numbers > 0).any())):
        raise wrong_value("scale", "scale > 0", scale)


def _at_least(scale: float | torch.Tensor, eps: float) -> float | torch.Tensor:
    return scale.clamp(min=eps) if isinstance(scale, torch.Tensor) else max(scale, eps)


def _on(number: float | torch.Tensor, value: torch.Tensor) -> float | torch.Tensor:
    return number.to(value.device) if isinstance(number, torch.Tensor) else number


def _chunks(storage: Storage, key: Key) -> Iterator[torch.Tensor]:
    """Yield an entry ``[n, ...]`` of all rows, some rows at a time."""
    read = _reader(storage, key)
    first = read(torch.arange(1)) if len(storage) else torch.zeros(0)
    if first is None:
        raise UnknownKey(f"The storage has no entry {show_key(key)}.", key=key)
    count = min(CHUNK_ROWS, max(1, CHUNK_NUMBERS // max(1, first.numel())))
    for start in range(0, len(storage), count):
        chunk = read(torch.arange(start, min(start + count, len(storage))))
        assert chunk is not None, "the first row has the entry"
        yield chunk


def _reader(storage: Storage, key: Key) -> Callable[[torch.Tensor], torch.Tensor | None]:
    """Return a function that reads one entry of rows, int64 ``[n]``, and no other of a dataset."""
    if not isinstance(storage, DatasetStorage | FrameStack):
        return lambda rows: storage.entry(key, rows)
    dataset = storage.dataset  # single steps, also below a FrameStack
    if key not in dataset.keys:
        raise UnknownKey(f"{dataset.id} has no entry {show_key(key)}.", id=dataset.id, key=key)
    column = dataset.rows_of(frozenset([key]))
    return lambda rows: entry(column.gather(rows), key)


def _moments(chunks: Iterator[torch.Tensor], key: Key) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mean and deviation of each number of a row."""
    moments = RunningMoments(np.zeros(()), np.zeros(()))
    dtype = torch.get_default_dtype()
    for chunk in chunks:
        dtype = chunk.dtype if chunk.is_floating_point() else dtype
        values = chunk.double().cpu().numpy()
        with np.errstate(all="ignore"):  # NaN and infinity are rejected below
            mean = values.mean(0)
            moments.merge(mean, ((values - mean) ** 2).sum(0), len(values))
    if moments.count < 2:
        raise WrongRows(
            f"The deviation of {show_key(key)} needs two rows or more; found {moments.count}.",
            key=key,
            expected="two rows or more",
            found=moments.count,
        )
    if not np.isfinite(moments.squares).all():
        raise wrong_column(key, "finite numbers", "NaN or infinity")
    deviation = np.sqrt(moments.squares / (moments.count - 1))
    return torch.as_tensor(moments.mean).to(dtype), torch.as_tensor(deviation).to(dtype)
