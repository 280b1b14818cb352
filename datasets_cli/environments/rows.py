"""The rows of a rollout, written step by step into arrays, and once made into a TensorDict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDict, TensorDictBase

from datasets_cli.core.gymnasium_extra import gymnasium
from datasets_cli.environments.lanes import Flags, Step
from datasets_cli.errors import UsageError
from datasets_cli.schema.columns import Key
from datasets_cli.schema.tree import put

spaces = gymnasium.spaces
_ARRAYS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


@dataclass(frozen=True)
class SpaceLeaf:
    """One array of an observation or an action."""

    key: Key
    path: tuple[str | int, ...]
    space: Any
    one_hot: bool

    @cached_property
    def counts(self) -> NDArray[np.int64] | None:
        """How many values each number may have, ``[n]``; None where the space is not discrete."""
        if isinstance(self.space, spaces.Discrete):
            return np.array([self.space.n])
        if isinstance(self.space, spaces.MultiDiscrete):
            return np.asarray(self.space.nvec, np.int64).ravel()
        return None

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape in which one value is kept."""
        if self.one_hot and self.counts is not None:
            return (int(self.counts.sum()),)
        return tuple(self.space.shape or ())

    @cached_property
    def is_text(self) -> bool:
        """Whether it is an array of texts, which are objects."""
        return isinstance(self.space, spaces.Text)

    @cached_property
    def native_dtype(self) -> np.dtype[Any]:
        """The element type as gymnasium has it."""
        return np.dtype(object if self.is_text else self.space.dtype)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The element type that is kept."""
        return np.dtype(np.int64) if isinstance(self.space, spaces.Discrete) else self.native_dtype

    def keep(self, value: Any, rows: NDArray[Any]) -> None:
        """Write this leaf's part of what gymnasium gives."""
        # value: of one environment, or of several, whose arrays are `[N, ...]`.
        # rows: where to, `[N, *shape]`.
        for name in self.path:
            value = value[name]
        if not self.one_hot or self.counts is None:
            rows[...] = value
            return
        # Each number sets one column: its own, among those that its predecessors leave to it.
        numbers = (np.asarray(value) - self.space.start).reshape(len(rows), -1)
        rows[...] = 0
        rows[np.arange(len(rows))[:, None], numbers + self.offsets] = 1

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Where the columns of each number begin, ``[n]``."""
        assert self.counts is not None
        return self.counts.cumsum() - self.counts

    def restore(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Return what gymnasium takes, ``[N, ...]``, of what is kept, ``[N, *shape]``."""
        if not self.one_hot or self.counts is None:
            return rows.astype(self.native_dtype, copy=False)
        if len(self.counts) == 1:
            numbers = rows.argmax(axis=1)
        else:
            parts = np.split(rows, self.offsets[1:], axis=1)
            numbers = np.stack([part.argmax(axis=1) for part in parts], axis=1)
        shape = (len(rows), *(self.space.shape or ()))
        chosen: NDArray[Any] = numbers.reshape(shape) + self.space.start
        return chosen.astype(self.native_dtype, copy=False)


def leaves_of(
    space: gymnasium.Space, key: Key, *, one_hot: bool, text: bool = False
) -> list[SpaceLeaf]:
    """Return the arrays of a space, which are all below a key."""
    kinds = (*_ARRAYS, spaces.Text) if text else _ARRAYS
    return [SpaceLeaf(*each, one_hot) for each in _parts(space, key, (), kinds)]


def _parts(
    space: gymnasium.Space, key: Key, path: tuple[str | int, ...], kinds: tuple[type, ...]
) -> Iterator[tuple[Key, tuple[str | int, ...], gymnasium.Space]]:
    """Yield where each array is kept, where gymnasium has it, and its space."""
    if isinstance(space, spaces.Dict):
        for name, part in space.spaces.items():
            yield from _parts(part, (*key, name), (*path, name), kinds)
    elif isinstance(space, spaces.Tuple):
        for number, part in enumerate(space.spaces):
            yield from _parts(part, (*key, str(number)), (*path, number), kinds)
    elif isinstance(space, kinds):
        yield key, path, space
    else:
        names = ", ".join(kind.__name__ for kind in (*kinds, spaces.Dict, spaces.Tuple))
        raise UsageError(
            f"An environment's space {'.'.join(key)} is {space}. A row has arrays: spaces are "
            f"{names}. Wrap the environment, for example in gymnasium.wrappers.FlattenObservation."
        )


def tree_of(space: gymnasium.Space, parts: Iterator[Any]) -> Any:
    """Return what gymnasium takes of a space, made of the arrays that ``leaves_of`` lists."""
    if isinstance(space, spaces.Dict):
        return {name: tree_of(part, parts) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(tree_of(part, parts) for part in space.spaces)
    return next(parts)


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
