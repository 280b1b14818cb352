"""The rows of a rollout, each step the TensorDict that an environment was stepped with."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDict, TensorDictBase

from datasets_cli.environments.lanes import Flags, Step
from datasets_cli.environments.rows import PolicyOutput, Tensors

ENDS = ("done", "truncated")


class TensorDictRows:
    """The rows of all lanes, as the environment and the policy wrote them."""

    def __init__(self, batch: tuple[int, ...], num_steps: int) -> None:
        self.num_steps = num_steps
        self._batch = batch
        self._steps: list[TensorDictBase] = []
        self.ids, self.frames = np.empty((2, math.prod(batch), num_steps), np.int64)

    def root(self, step: int) -> TensorDictBase:
        """Return what a policy is given: a copy of where the lanes stand, with the same tensors."""
        return self._steps[step].copy()

    def added(self, before: Tensors, after: Tensors) -> PolicyOutput:
        """Return what a policy wrote: the next step begins with it, too."""
        return {key: value for key, value in after.items() if value is not before.get(key)}

    def write_root(self, step: int, observation: Any, ids: NDArray[np.int64]) -> None:
        self._steps.append(observation)
        self.ids[:, step] = ids

    def write_action(self, step: int, written: PolicyOutput) -> None:
        for key, value in written.items():
            self._steps[step].set(key, value)

    def write_next(self, step: int, result: Step) -> None:
        """Do nothing: the step was written below ``"next"``."""

    def truncate(self, step: int, lanes: Flags) -> None:
        mark_ends(self._steps[step].get("next"), lanes)

    def to_tensordict(self, num_steps: int) -> TensorDict:
        steps: TensorDict = torch.stack(self._steps[:num_steps], len(self._batch))
        # A name with "_" is of what modules keep from step to step.
        rows = steps.exclude(*(key for key in steps.keys(True) if _is_private(key)))
        rows = rows.clear_device_()
        rows.names = [*[None] * len(self._batch), "time"]
        return rows


def _is_private(key: Any) -> bool:
    return any(name.startswith("_") for name in ((key,) if isinstance(key, str) else key))


def end_keys(tensordict: TensorDictBase, names: tuple[str, ...] = ENDS) -> Iterator[Any]:
    """Yield the keys of flags that end trajectories, at the root and below it."""
    for key in tensordict.keys(True, True):
        if (key if isinstance(key, str) else key[-1]) in names:
            yield key


def mark_ends(tensordict: TensorDictBase, lanes: Flags) -> None:
    """Mark lanes as ended by a cut, in tensors of their own."""
    mask = torch.from_numpy(lanes).reshape(tensordict.batch_size)
    for key in [*end_keys(tensordict)]:
        flag = tensordict.get(key)
        over = mask.to(flag.device).reshape(*mask.shape, *[1] * (flag.ndim - mask.ndim))
        tensordict.set(key, flag | over)
