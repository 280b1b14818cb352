"""One trajectory that a query found: its rows, and their entries as attributes."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import NestedKey, key_of
from datasets_cli.schema.columns import show_key


class Trajectory:
    """The rows of one trajectory, in the order of time.

        found = rb.query(traj.length >= 50)[0]
        found.observation, found.reward, found["next", "observation"], found[:10]

    An attribute is the entry of that name, at the root or else below ``"next"``: a dataset's
    ``found.reward`` is ``found["next", "reward"]``. ``found[key]`` is exactly that entry, and
    ``found[rows]`` a trajectory of some of the rows. Everything else that a TensorDict does is done
    by ``data``.

    Args:
        data: the rows ``[T]``.

    Raises:
        UsageError: it is no TensorDict.
    """

    def __init__(self, data: TensorDictBase) -> None:
        if not isinstance(data, TensorDictBase):
            raise UsageError(
                f"A trajectory is made of a TensorDict of rows, not of {type(data).__name__}."
            )
        self.data = data

    @property
    def length(self) -> int:
        """The number of rows."""
        return self.data.batch_size[0] if self.data.batch_size else 1

    @property
    def total_reward(self) -> torch.Tensor:
        """The sum of all rewards, in float64; of whole numbers it is one."""
        reward: torch.Tensor = self._entry("reward")
        return reward.sum(dtype=torch.float64 if reward.is_floating_point() else None)

    @property
    def batch_size(self) -> torch.Size:
        """``[T]``."""
        size: torch.Size = self.data.batch_size
        return size

    def keys(self, include_nested: bool = False, leaves_only: bool = False) -> Any:
        """Return the keys of the rows, as ``data.keys`` does."""
        return self.data.keys(include_nested, leaves_only)

    def get(self, key: NestedKey, default: Any = None) -> Any:
        """Return an entry, at the root or else below ``"next"``; a default where there is none."""
        entry = self.data.get(key, None)
        return self.data.get(("next", *key_of(key)), default) if entry is None else entry

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "data":  # as copying and pickling ask
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}.")
        # Where there is no reward, Python asks for total_reward here once its property failed.
        return self._entry("reward" if name == "total_reward" else name)

    def _entry(self, name: str) -> Any:
        entry = self.get(name)
        if entry is None:
            names = sorted(show_key(key_of(key)) for key in self.data.keys(True, leaves_only=True))
            raise AttributeError(
                f"The rows of this trajectory have neither {name} nor next.{name}. They have "
                f"{', '.join(names)}."
            )
        return entry

    def __getitem__(self, index: Any) -> Any:
        """Return an entry by its key, or some of the rows as a trajectory."""
        part = self.data[index]
        is_key = isinstance(index, str) or (
            isinstance(index, tuple) and all(isinstance(name, str) for name in index)
        )
        return part if is_key else Trajectory(part)

    def __len__(self) -> int:
        return self.length

    def __repr__(self) -> str:
        return f"Trajectory(length={self.length}, keys={sorted(map(str, self.keys()))})"
