"""Actions: what a policy writes for every lane, checked once, and as gymnasium takes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from datasets_cli.core.gymnasium_extra import gymnasium
from datasets_cli.environments.rows import PolicyOutput, SpaceLeaf, spaces, tree_of
from datasets_cli.errors import UsageError, argument, for_reader
from datasets_cli.schema.columns import show_key

CheckActions = bool | Literal["strict"]
TOLERANCE = 1e-6
"""Of the range of a number, by which it may be out of bounds; of 1 where there is no range."""


def check_known(check_actions: CheckActions) -> None:
    """Refuse a way to check actions that there is not."""
    if check_actions not in (True, False, "strict"):
        raise UsageError(f"check_actions is True, 'strict' or False, not {check_actions!r}.")


@dataclass(frozen=True)
class Outside:
    """Actions out of bounds that were taken as given, and the largest excess."""

    count: int = 0
    excess: float = 0.0

    def __add__(self, other: Outside) -> Outside:
        return Outside(self.count + other.count, max(self.excess, other.excess))

    def __str__(self) -> str:
        strict = for_reader(argument("check_actions", "'strict'"))
        return (
            f"{self.count:,} actions of the policy were out of bounds, by up to {self.excess:.3g}, "
            f"and were taken as given. {strict} refuses such actions."
        )


class Actions:
    """Makes actions of what policies write."""

    # check: True refuses what is not an action, "strict" also what is out of bounds, False nothing.

    def __init__(
        self,
        space: gymnasium.Space,
        leaves: Sequence[SpaceLeaf],
        batch: tuple[int, ...],
        check: CheckActions = True,
    ) -> None:
        self._space = space
        self._parts = [_Part(leaf, (*batch, *leaf.shape)) for leaf in leaves]
        self._is_tree = isinstance(space, spaces.Dict | spaces.Tuple)
        self.check = check
        self.outside = Outside()

    def native(self, written: PolicyOutput, steps: NDArray[np.int64]) -> Any:
        """Return an action as the lanes take it, an array or a tree of arrays ``[N, ...]``."""
        # steps: how many steps each lane's trajectory has, `[N]`.
        if not self._is_tree:
            return self._parts[0].native(written, steps, self)
        return tree_of(self._space, (part.native(written, steps, self) for part in self._parts))


class SpecActions:
    """Checks actions by the spec of an environment that takes TensorDicts."""

    # check: True refuses NaN and infinite numbers, "strict" all that is not in the spec.

    def __init__(self, spec: Any, check: CheckActions = True) -> None:
        is_tree = hasattr(spec, "keys")
        leaves = spec.items(True, True) if is_tree else [("action", spec)]
        self._specs = {key if isinstance(key, tuple) else (key,): leaf for key, leaf in leaves}
        self.check = check
        self.outside = Outside()

    def native(self, written: PolicyOutput, steps: NDArray[np.int64]) -> Any:
        """Check an action, which the environment takes as it was written."""
        for key, spec in self._specs.items():
            value: Any = written.get(key)
            is_action = value is not None
            if is_action and self.check == "strict":
                is_action = spec.is_in(value)
            elif is_action and self.check and value.is_floating_point():
                is_action = bool(value.isfinite().all())
            if not is_action:
                raise UsageError(
                    f"The policy's {show_key(key)} is not in the environment's action_spec. "
                    f"Expected: {spec}. Found: {value}. action_spec.project makes an action of "
                    f"numbers; {argument('check_actions', 'False')} takes any."
                )


class _Part:
    """One array of an action, and the bounds of its numbers."""

    def __init__(self, leaf: SpaceLeaf, shape: tuple[int, ...]) -> None:
        self._leaf, self._shape = leaf, shape
        self._is_one_hot = leaf.one_hot and leaf.counts is not None
        self._is_category = not isinstance(leaf.space, spaces.Box)
        if leaf.is_text:
            return
        self._is_whole = leaf.native_dtype.kind != "f"
        self._type_bounds = smallest, largest = _type_bounds(leaf.native_dtype)
        self._low, self._high = _bounds(leaf.space)
        room = self._high - self._low
        room = TOLERANCE * np.where(np.isfinite(room), room, 1.0)
        self._least = np.maximum(self._low - room, smallest)
        self._most = np.minimum(self._high + room, largest)

    def native(
        self, written: PolicyOutput, steps: NDArray[np.int64], actions: Actions
    ) -> NDArray[Any]:
        """Return what was written, as gymnasium takes it."""
        leaf = self._leaf
        if leaf.key not in written or written[leaf.key].shape != self._shape:
            raise self._misshapen(written.get(leaf.key))
        value: Any = written[leaf.key]
        rows = (value if leaf.is_text else value.cpu().numpy()).reshape(-1, *leaf.shape)
        if actions.check and not leaf.is_text:
            is_in = self._is_in(rows)
            if not np.logical_and.reduce(is_in, axis=None):
                self._refuse(rows, is_in, steps, is_strict=actions.check == "strict")
                actions.outside += self._outside(rows, is_in)
        return leaf.restore(rows)

    def _is_in(self, rows: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which numbers are in their bounds, ``[N, ...]``; NaN never is."""
        if self._is_one_hot:
            # A sum for each number: reduceat adds the columns from its offset to the next one.
            ones = np.add.reduceat(rows, self._leaf.offsets, axis=1, dtype=np.float64)
            is_code = np.logical_and.reduce(ones == 1, axis=1, keepdims=True)
            one_hot: NDArray[np.bool_] = is_code & ((rows == 0) | (rows == 1))
            return one_hot
        is_in: NDArray[np.bool_] = (rows >= self._least) & (rows <= self._most)
        if self._is_whole and rows.dtype.kind == "f":
            is_in &= rows == np.floor(rows)
        return is_in

    def _is_number(self, rows: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which numbers the element type of the space has, ``[N, ...]``."""
        smallest, largest = self._type_bounds
        is_number: NDArray[np.bool_] = (rows >= smallest) & (rows <= largest)
        return is_number & (rows == np.floor(rows)) if self._is_whole else is_number

    def _refuse(
        self,
        rows: NDArray[Any],
        is_in: NDArray[np.bool_],
        steps: NDArray[np.int64],
        is_strict: bool,
    ) -> None:
        """Refuse what is not an action; what is out of bounds, too, where that is not taken."""
        is_taken = is_in if is_strict or self._is_category else self._is_number(rows)
        lanes = is_taken.reshape(len(rows), -1).all(1)
        if lanes.all():
            return
        lane, leaf = int(lanes.argmin()), self._leaf
        raise UsageError(
            f"The policy's {show_key(leaf.key)} of lane {lane} in step {steps[lane]} of its "
            f"trajectory is not in the environment's action_spec. Expected: {leaf.space}"
            f"{', one-hot' if self._is_one_hot else ''}. Found: {rows[lane].tolist()}. "
            "action_spec.project makes an action of numbers; "
            f"{argument('check_actions', 'False')} takes any."
        )

    def _outside(self, rows: NDArray[Any], is_in: NDArray[np.bool_]) -> Outside:
        lanes = ~is_in.reshape(len(rows), -1).all(1)
        excess = np.maximum(self._low - rows, rows - self._high)
        return Outside(int(lanes.sum()), float(excess.max()))

    def _misshapen(self, value: Any) -> UsageError:
        leaf = self._leaf
        given = "nothing" if value is None else f"the shape {[*value.shape]}"
        hint = "" if leaf.one_hot or leaf.counts is None else " Of one-hot actions take argmax(-1)."
        return UsageError(
            f"The action {show_key(leaf.key)} must have the shape {[*self._shape]}, and the policy "
            f"gave {given}. The environment's action_spec says what it takes.{hint}"
        )


def _bounds(space: Any) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if isinstance(space, spaces.Box):
        low, high = space.low, space.high
    elif isinstance(space, spaces.MultiBinary):
        low, high = np.array(0), np.array(1)
    else:
        counts = space.n if isinstance(space, spaces.Discrete) else space.nvec
        low, high = space.start, space.start + counts - 1
    return np.asarray(low, np.float64), np.asarray(high, np.float64)


def _type_bounds(dtype: np.dtype[Any]) -> tuple[float, float]:
    if dtype.kind == "b":
        return 0.0, 1.0
    info: Any = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    return float(info.min), float(info.max)
