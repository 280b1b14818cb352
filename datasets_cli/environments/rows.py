"""The rows of a rollout, written step by step into arrays, and once made into a TensorDict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDict, TensorDictBase

from datasets_cli.environments.lanes import Flags, Step
from datasets_cli.environments.leaves import SpaceLeaf
from datasets_cli.errors import UsageError
from datasets_cli.schema.columns import Key
from datasets_cli.schema.tree import put

StepColumn = torch.Tensor | NDArray[Any]
"""A tensor, or an array of texts."""
PolicyOutput = Mapping[Key, StepColumn]
"""What a policy wrote in a step, ``[*batch, ...]`` each."""
Tensors = Mapping[Key, torch.Tensor]
FLAGS = ("done", "terminated", "truncated")


class LaneRows(Protocol):
    """What the loop of steps writes: the rows of all lanes, ``[N, num_steps]``."""

    num_steps: int
    ids: NDArray[np.int64]
    """The number of each row's trajectory, ``[N, T]``."""
    frames: NDArray[np.int64]
    """How many rows of its trajectory are before each, ``[N, T]``, where they are limited."""

    def root(self, step: int) -> TensorDictBase:
        """Return what a policy is given: the rows of one step before its action."""

    def added(self, before: Tensors, after: Tensors) -> PolicyOutput:
        """Return what a policy wrote, of the entries before and after its call."""

    def write_root(self, step: int, observation: Any, ids: NDArray[np.int64]) -> None:
        """Write what a step begins with."""
        # ids: the number of each lane's trajectory, `[N]`.

    def write_action(self, step: int, written: PolicyOutput) -> None:
        """Write what the policy wrote in a step."""

    def write_next(self, step: int, result: Step) -> None:
        """Write what a step of the lanes led to."""

    def truncate(self, step: int, lanes: Flags) -> None:
        """Mark rows of a step as the last of their trajectories, ``[N]``, which others cut."""

    def to_tensordict(self, num_steps: int) -> TensorDict:
        """Return the first rows as a TensorDict ``[*batch, num_steps]``."""


class RolloutRows:
    """Room for the rows of all lanes."""

    def __init__(
        self,
        leaves: Sequence[SpaceLeaf],
        batch: tuple[int, ...],
        num_steps: int,
        reward_dtype: torch.dtype = torch.float32,
    ) -> None:
        self.num_steps = num_steps
        self.batch = batch
        self._lanes = batch or (1,)
        self._columns: dict[Key, StepColumn] = {}
        self._written: dict[Key, Any] = {}  # by the policy: shape and element type
        self._root = [(leaf, self._add(leaf.key, leaf)) for leaf in leaves]
        self._next = [(leaf, self._add(("next", *leaf.key), leaf)) for leaf in leaves]
        flag = (*self._lanes, num_steps, 1)
        self._columns |= {(name,): torch.zeros(flag, dtype=torch.bool) for name in FLAGS}
        flags = [torch.empty(flag, dtype=torch.bool) for _ in FLAGS]
        reward = torch.empty(flag, dtype=reward_dtype)
        self._columns |= {("next", name): each for name, each in zip(FLAGS, flags, strict=True)}
        self._columns["next", "reward"] = reward
        self._reward = reward.numpy()
        self._flags = [each.numpy() for each in flags]
        self.ids, self.frames = np.empty((2, *flag[:-1]), np.int64)
        # What a policy is given: of a batch [N, T, ...], else the only lane [T, ...].
        given: list[Key] = [*(leaf.key for leaf in leaves), *((name,) for name in FLAGS)]
        self._given = {key: self._without_lane(self._columns[key]) for key in given}

    def _add(self, key: Key, leaf: SpaceLeaf) -> NDArray[Any]:
        array = np.empty((*self._lanes, self.num_steps, *leaf.shape), leaf.dtype)
        self._columns[key] = array if leaf.is_text else torch.from_numpy(array)
        return array

    def root(self, step: int) -> TensorDict:
        """Return what a policy is given: the rows of one step before its action."""
        at: Any = (slice(None), step) if self.batch else step
        return TensorDict(
            {key if key[1:] else key[0]: column[at] for key, column in self._given.items()},
            self.batch,
        )

    def added(self, before: Tensors, after: Tensors) -> PolicyOutput:
        """Return what a policy wrote; refuse it at places that are not its own."""
        written: dict[Key, torch.Tensor] = {}
        for key, value in after.items():
            if key not in before:
                if key[0] in ("next", "collector"):
                    raise UsageError(
                        f"The policy wrote {key}: what is below 'next' and 'collector' is the "
                        "environment's and the collector's. Write it at the root."
                    )
                if not isinstance(value, torch.Tensor):
                    raise UsageError(
                        f"The policy wrote {value!r} at {key}. Expected: tensors, which rows have."
                    )
                written[key] = value.detach()
            elif value is not before[key]:
                raise UsageError(
                    f"The policy put another tensor at {key!r}, which is the environment's: the "
                    "row would not be what was observed. Write it under another name."
                )
        return written

    def write_root(self, step: int, observation: Any, ids: NDArray[np.int64]) -> None:
        """Write what a step begins with."""
        # ids: the number of each lane's trajectory, `[N]`.
        for leaf, array in self._root:
            leaf.keep(observation, array[:, step])
        self.ids[:, step] = ids

    def write_action(self, step: int, written: PolicyOutput) -> None:
        """Write what the policy wrote in a step."""
        # The first step's keys are those of every step.
        forms = {key: (value.shape, value.dtype) for key, value in written.items()}
        if not self._written:
            self._make_room(forms)
        if forms != self._written:
            raise UsageError(
                f"The policy wrote {forms} in a step, and {self._written} in the first one. Every "
                "row has the same entries, of the same shapes and element types."
            )
        for key, value in written.items():
            column: Any = self._columns[key]
            column[:, step] = value

    def _make_room(self, written: dict[Key, Any]) -> None:
        num_batch = len(self.batch)
        for key, (shape, dtype) in written.items():
            if shape[:num_batch] != self.batch:
                raise UsageError(
                    f"The policy wrote {'.'.join(key)} of the shape {[*shape]}, which must begin "
                    f"with that of the environment, {[*self.batch]}."
                )
            room = (*self._lanes, self.num_steps, *shape[num_batch:])
            is_tensor = isinstance(dtype, torch.dtype)
            column = torch.empty(room, dtype=dtype) if is_tensor else np.empty(room, dtype)
            self._columns[key] = column
        self._written = written

    def write_next(self, step: int, result: Step) -> None:
        """Write what a step of the lanes led to."""
        for leaf, array in self._next:
            leaf.keep(result.observation, array[:, step])
            for lane, last in result.last_observations.items():
                leaf.keep(last, array[lane : lane + 1, step])
        self._reward[:, step, 0] = result.reward
        done, terminated, truncated = self._flags
        done[:, step, 0] = result.terminated | result.truncated
        terminated[:, step, 0] = result.terminated
        truncated[:, step, 0] = result.truncated

    def truncate(self, step: int, lanes: Flags) -> None:
        """Mark rows of a step as the last of their trajectories, ``[N]``, which others cut."""
        done, _, truncated = self._flags
        done[lanes, step] = True
        truncated[lanes, step] = True

    def columns(self, num_steps: int) -> dict[Key, NDArray[Any]]:
        """Return the columns of the first rows, ``[N, num_steps, ...]``."""
        return {key: np.asarray(column[:, :num_steps]) for key, column in self._columns.items()}

    def to_tensordict(self, num_steps: int) -> TensorDict:
        """Return the first rows as a TensorDict ``[*batch, num_steps]``."""
        # It has the memory of this object, which is not written to again.
        tree: dict[str, Any] = {}
        for key, column in self._columns.items():
            put(tree, key, self._without_lane(column[:, :num_steps]))
        names = [*[None] * len(self.batch), "time"]
        return TensorDict(tree, (*self.batch, num_steps), names=names)

    def _without_lane(self, column: StepColumn) -> StepColumn:
        return column if self.batch else column[0]
