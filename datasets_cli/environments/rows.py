"""The rows of a rollout: arrays that are written step by step and returned as a TensorDict."""

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
from datasets_cli.environments.lanes import Flags, LaneNumbers, Step
from datasets_cli.errors import Unsupported, UsageError, WrongRows
from datasets_cli.schema.columns import Key, show_key, wrong_column
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
        """The number of values of each discrete number, ``[n]``; None for another space."""
        if isinstance(self.space, spaces.Discrete):
            return np.array([self.space.n])
        if isinstance(self.space, spaces.MultiDiscrete):
            return np.asarray(self.space.nvec, np.int64).ravel()
        return None

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape of one value in a row."""
        if self.one_hot and self.counts is not None:
            return (int(self.counts.sum()),)
        return tuple(self.space.shape or ())

    @cached_property
    def is_text(self) -> bool:
        """Whether the values are text, in arrays of objects."""
        return isinstance(self.space, spaces.Text)

    @cached_property
    def native_dtype(self) -> np.dtype[Any]:
        """The dtype of the space."""
        return np.dtype(object if self.is_text else self.space.dtype)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of a row."""
        return np.dtype(np.int64) if isinstance(self.space, spaces.Discrete) else self.native_dtype

    def encode(self, value: Any, rows: NDArray[Any]) -> None:
        """Write this leaf of a value of the whole space into ``rows``, ``[N, *shape]``."""
        # value: from one environment, or from several with arrays `[N, ...]`.
        for name in self.path:
            value = value[name]
        if not self.one_hot or self.counts is None:
            rows[...] = value
            return
        # Each number sets one column, counted from its offset: [1, 0] of sizes 2, 3 is 0 1 | 1 0 0.
        numbers = (np.asarray(value) - self.space.start).reshape(len(rows), -1)
        rows[...] = 0
        rows[np.arange(len(rows))[:, None], numbers + self.offsets] = 1

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """The first column of each number, ``[n]``."""
        assert self.counts is not None
        return self.counts.cumsum() - self.counts

    def decode(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Convert rows ``[N, *shape]`` to values of the space, ``[N, ...]``."""
        if not self.one_hot or self.counts is None:
            return rows.astype(self.native_dtype, copy=False)
        if len(self.counts) == 1:
            numbers = rows.argmax(axis=1)
        else:
            parts = np.split(rows, self.offsets[1:], axis=1)
            numbers = np.stack([part.argmax(axis=1) for part in parts], axis=1)
        shape = (len(rows), *(self.space.shape or ()))
        values: NDArray[Any] = numbers.reshape(shape) + self.space.start
        return values.astype(self.native_dtype, copy=False)


def leaves_of(
    space: gymnasium.Space, key: Key, *, one_hot: bool, text: bool = False
) -> list[SpaceLeaf]:
    """Return the arrays of a space, with keys below ``key``."""
    kinds = (*_ARRAYS, spaces.Text) if text else _ARRAYS
    return [SpaceLeaf(*each, one_hot) for each in _parts(space, key, (), kinds)]


def _parts(
    space: gymnasium.Space, key: Key, path: tuple[str | int, ...], kinds: tuple[type, ...]
) -> Iterator[tuple[Key, tuple[str | int, ...], gymnasium.Space]]:
    """Yield the key, the path in gymnasium's value, and the space of each array."""
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
        raise Unsupported(
            f"The environment's space {show_key(key)} is {space}; expected {names}.",
            key=key,
            expected=names,
            found=str(space),
            advice="Wrap the environment, for example in gymnasium.wrappers.FlattenObservation.",
        )


def tree_of(space: gymnasium.Space, parts: Iterator[Any]) -> Any:
    """Return a value of a space from its arrays, in the order of ``leaves_of``."""
    if isinstance(space, spaces.Dict):
        return {name: tree_of(part, parts) for name, part in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(tree_of(part, parts) for part in space.spaces)
    return next(parts)


StepColumn = torch.Tensor | NDArray[Any]
"""A tensor, or an array of text."""
PolicyOutput = Mapping[Key, StepColumn]
"""The entries that a policy wrote in a step, each ``[*batch, ...]``."""
Tensors = Mapping[Key, torch.Tensor]
FLAGS = ("done", "terminated", "truncated")
RESERVED = ("next", "collector")


class LaneRows(Protocol):
    """The rows of all lanes, ``[N, num_steps]``, as the loop of steps writes them."""

    num_steps: int
    ids: NDArray[np.int64]
    """The trajectory number of each row, ``[N, T]``."""
    frames: NDArray[np.int64]
    """The step of each row in its trajectory, ``[N, T]``; only with a step limit."""

    def root(self, step: int) -> TensorDictBase:
        """Return the input of a policy: the rows of one step before its action."""

    def policy_output(self, before: Tensors, after: Tensors) -> PolicyOutput:
        """Return the entries that a policy wrote, from those before and after its call."""

    def write_root(self, step: int, observation: Any, ids: LaneNumbers) -> None:
        """Write the observations before a step."""
        # ids: the trajectory number of each lane.

    def write_action(self, step: int, written: PolicyOutput) -> None:
        """Write the policy's entries of a step."""

    def write_next(self, step: int, result: Step) -> None:
        """Write the result of a step."""

    def truncate(self, step: int, lanes: Flags) -> None:
        """Mark the rows of a step in some lanes as truncated."""

    def to_tensordict(self, num_steps: int) -> TensorDict:
        """Return the rows of the first steps as a TensorDict ``[*batch, num_steps]``."""


class RolloutRows:
    """The rows of all lanes of a gymnasium environment."""

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
        self._output_forms: dict[Key, Any] = {}  # shape and dtype of each entry of the policy
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
        # The input of a policy: [N, T, ...] of a batch, [T, ...] of a single environment.
        inputs: list[Key] = [*(leaf.key for leaf in leaves), *((name,) for name in FLAGS)]
        self._inputs = {key: self._without_lane(self._columns[key]) for key in inputs}

    def _add(self, key: Key, leaf: SpaceLeaf) -> NDArray[Any]:
        array = np.empty((*self._lanes, self.num_steps, *leaf.shape), leaf.dtype)
        self._columns[key] = array if leaf.is_text else torch.from_numpy(array)
        return array

    def root(self, step: int) -> TensorDict:
        at: Any = (slice(None), step) if self.batch else step
        return TensorDict(
            {key if key[1:] else key[0]: column[at] for key, column in self._inputs.items()},
            self.batch,
        )

    def policy_output(self, before: Tensors, after: Tensors) -> PolicyOutput:
        """Return the entries that a policy wrote, or raise an error for a reserved key."""
        output: dict[Key, torch.Tensor] = {}
        for key, value in after.items():
            if key not in before:
                if key[0] in RESERVED:
                    raise UsageError(
                        f"The policy wrote {show_key(key)}, but entries below {key[0]!r} are "
                        "reserved for the environment and the collector.",
                        key=key,
                        advice="Write the entry at the root.",
                    )
                if not isinstance(value, torch.Tensor):
                    raise wrong_column(key, "a tensor", type(value).__name__, owner="The policy")
                output[key] = value.detach()
            elif value is not before[key]:
                raise UsageError(
                    f"The policy replaced {show_key(key)}, an entry of the environment.",
                    key=key,
                    advice="Write the tensor under another name.",
                )
        return output

    def write_root(self, step: int, observation: Any, ids: LaneNumbers) -> None:
        for leaf, array in self._root:
            leaf.encode(observation, array[:, step])
        self.ids[:, step] = ids

    def write_action(self, step: int, written: PolicyOutput) -> None:
        # Every step has the entries of the first one, with the same shapes and dtypes.
        forms = {key: (value.shape, value.dtype) for key, value in written.items()}
        if not self._output_forms:
            self._allocate(forms)
        if forms != self._output_forms:
            expected, found = (
                {show_key(key): form for key, form in each.items()}
                for each in (self._output_forms, forms)
            )
            raise WrongRows(
                f"The policy wrote other entries than in the first step. Expected: {expected}. "
                f"Found: {found}.",
                expected=expected,
                found=found,
                advice="Write the same entries, with the same shapes and dtypes, in every step.",
            )
        for key, value in written.items():
            column: Any = self._columns[key]
            column[:, step] = value

    def _allocate(self, forms: dict[Key, Any]) -> None:
        num_batch = len(self.batch)
        for key, (shape, dtype) in forms.items():
            if shape[:num_batch] != self.batch:
                raise WrongRows(
                    f"The policy wrote {show_key(key)} with the shape {[*shape]}; expected the "
                    f"environment's batch size {[*self.batch]} first.",
                    key=key,
                    expected=self.batch,
                    found=tuple(shape),
                )
            column_shape = (*self._lanes, self.num_steps, *shape[num_batch:])
            is_tensor = isinstance(dtype, torch.dtype)
            self._columns[key] = (
                torch.empty(column_shape, dtype=dtype)
                if is_tensor
                else np.empty(column_shape, dtype)
            )
        self._output_forms = forms

    def write_next(self, step: int, result: Step) -> None:
        for leaf, array in self._next:
            leaf.encode(result.observation, array[:, step])
        self._reward[:, step, 0] = result.reward
        done, terminated, truncated = self._flags
        done[:, step, 0] = result.terminated | result.truncated
        terminated[:, step, 0] = result.terminated
        truncated[:, step, 0] = result.truncated

    def truncate(self, step: int, lanes: Flags) -> None:
        done, _, truncated = self._flags
        done[lanes, step] = True
        truncated[lanes, step] = True

    def columns(self, num_steps: int) -> dict[Key, NDArray[Any]]:
        """Return the columns of the first steps, ``[N, num_steps, ...]``."""
        return {key: np.asarray(column[:, :num_steps]) for key, column in self._columns.items()}

    def to_tensordict(self, num_steps: int) -> TensorDict:
        # The columns are not copied: this object is not written again.
        tree: dict[str, Any] = {}
        for key, column in self._columns.items():
            put(tree, key, self._without_lane(column[:, :num_steps]))
        names = [*[None] * len(self.batch), "time"]
        return TensorDict(tree, (*self.batch, num_steps), names=names)

    def _without_lane(self, column: StepColumn) -> StepColumn:
        return column if self.batch else column[0]
