"""Casts that lose nothing unsaid: floats are rounded, all else stays what it is or is refused."""

from __future__ import annotations

import torch
from tensordict import TensorDict

from datasets_cli.errors import UsageError
from datasets_cli.replay.transforms.tensors import DTypeCastTransform
from datasets_cli.store.schema.columns import Key, show_key
from datasets_cli.store.schema.tree import entry


class Casts:
    """Casts columns: those that are named, and all others of floating-point numbers."""

    def __init__(self, floats: torch.dtype | None, named: dict[Key, torch.dtype]) -> None:
        self._floats, self._named = floats, named

    def __call__(self, batch: TensorDict) -> TensorDict:
        """Cast columns of the batch, and return it."""
        wanted = dict(self._named)
        for name, value in batch.items(include_nested=True, leaves_only=True):
            key = (name,) if isinstance(name, str) else name
            if isinstance(value, torch.Tensor) and value.is_floating_point() and self._floats:
                wanted.setdefault(key, self._floats)
        for key, dtype in wanted.items():
            before = entry(batch, key)
            batch = DTypeCastTransform(before.dtype, dtype, in_keys=[key])(batch)
            _check(key, before, entry(batch, key))
        return batch


def _check(key: Key, before: torch.Tensor, after: torch.Tensor) -> None:
    # float64 has every number of the types that can be cast to, but for large int64, whose own
    # type stays or differs by far.
    old, new = before.double(), after.double()
    is_lost = old.isfinite() & ~new.isfinite() if after.is_floating_point() else old != new
    if bool(is_lost.any()):
        value = old[is_lost][0].item()
        raise UsageError(
            f"cast: {show_key(key)} has the number {value:.17g}, which {after.dtype} does not "
            f"have. Cast the other columns alone, by KEY=TYPE, or scale {show_key(key)} first."
        )
