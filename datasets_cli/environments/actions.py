"""Actions: the output of a policy is checked and converted to gymnasium's actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from datasets_cli.core.gymnasium_extra import gymnasium
from datasets_cli.environments.lanes import LaneNumbers
from datasets_cli.environments.rows import PolicyOutput, SpaceLeaf, spaces, tree_of
from datasets_cli.errors import WrongRows, argument, wrong_value
from datasets_cli.schema.columns import show_key

CheckActions = bool | Literal["strict"]
TOLERANCE = 1e-6
"""The tolerance of bounds, as a fraction of their range; 1e-6 if the range is infinite."""

_ADVICE = (
    "action_spec.project returns the nearest action; "
    f"{argument('check_actions', 'False')} disables the check."
)


def validate_mode(check_actions: CheckActions) -> None:
    """Raise an error for an unknown value of ``check_actions``."""
    if check_actions not in (True, False, "strict"):
        raise wrong_value("check_actions", (True, "strict", False), check_actions)


class Actions:
    """Converts the output of a policy to actions of a gymnasium space."""

    # check: True rejects invalid actions, "strict" also actions out of bounds, False nothing.

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

    def convert(self, output: PolicyOutput, steps: LaneNumbers) -> Any:
        """Return the action of every lane, an array or a tree of arrays ``[N, ...]``."""
        # steps: the number of steps in each lane's trajectory.
        if not self._is_tree:
            return self._parts[0].convert(output, steps, self)
        return tree_of(self._space, (part.convert(output, steps, self) for part in self._parts))


class SpecActions:
    """Checks actions against the spec of an environment of TensorDicts."""

    # check: True rejects NaN and infinite numbers, "strict" values outside the spec.

    def __init__(self, spec: Any, check: CheckActions = True) -> None:
        is_tree = hasattr(spec, "keys")
        leaves = spec.items(True, True) if is_tree else [("action", spec)]
        self._specs = {key if isinstance(key, tuple) else (key,): leaf for key, leaf in leaves}
        self.check = check

    def convert(self, output: PolicyOutput, steps: LaneNumbers) -> Any:
        """Check an action; the environment reads it from the TensorDict."""
        for key, spec in self._specs.items():
            value: Any = output.get(key)
            is_valid = value is not None
            if is_valid and self.check == "strict":
                is_valid = spec.is_in(value)
            elif is_valid and self.check and value.is_floating_point():
                is_valid = bool(value.isfinite().all())
            if not is_valid:
                raise WrongRows(
                    f"The policy's {show_key(key)} is not in the environment's action_spec. "
                    f"Expected: {spec}. Found: {value}.",
                    key=key,
                    expected=str(spec),
                    found=value,
                    advice=_ADVICE,
                )


class _Part:
    """One array of an action, and the bounds of its numbers."""

    def __init__(self, leaf: SpaceLeaf, shape: tuple[int, ...]) -> None:
        self._leaf, self._shape = leaf, shape
        self._is_one_hot = leaf.one_hot and leaf.counts is not None
        self._is_category = not isinstance(leaf.space, spaces.Box)
        if leaf.is_text:
            return
        self._is_integer = leaf.native_dtype.kind != "f"
        self._dtype_bounds = smallest, largest = _dtype_bounds(leaf.native_dtype)
        low, high = _bounds(leaf.space)
        span = high - low
        tolerance = TOLERANCE * np.where(np.isfinite(span), span, 1.0)
        self._min = np.maximum(low - tolerance, smallest)
        self._max = np.minimum(high + tolerance, largest)

    def convert(self, output: PolicyOutput, steps: LaneNumbers, actions: Actions) -> NDArray[Any]:
        """Return this part of the action in gymnasium's form, ``[N, ...]``."""
        leaf = self._leaf
        if leaf.key not in output or output[leaf.key].shape != self._shape:
            raise self._shape_error(output.get(leaf.key))
        value: Any = output[leaf.key]
        rows = (value if leaf.is_text else value.cpu().numpy()).reshape(-1, *leaf.shape)
        if actions.check and not leaf.is_text:
            self._check_valid(rows, steps, is_strict=actions.check == "strict")
        return leaf.decode(rows)

    def _is_in(self, rows: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which numbers are within their bounds, ``[N, ...]``; NaN never is."""
        if self._is_one_hot:
            # A sum for each number: reduceat adds the columns from its offset to the next one.
            ones = np.add.reduceat(rows, self._leaf.offsets, axis=1, dtype=np.float64)
            is_code = np.logical_and.reduce(ones == 1, axis=1, keepdims=True)
            one_hot: NDArray[np.bool_] = is_code & ((rows == 0) | (rows == 1))
            return one_hot
        is_in: NDArray[np.bool_] = (rows >= self._min) & (rows <= self._max)
        if self._is_integer and rows.dtype.kind == "f":
            is_in &= rows == np.floor(rows)
        return is_in

    def _is_number(self, rows: NDArray[Any]) -> NDArray[np.bool_]:
        """Return which numbers the dtype of the space can represent, ``[N, ...]``."""
        smallest, largest = self._dtype_bounds
        is_number: NDArray[np.bool_] = (rows >= smallest) & (rows <= largest)
        return is_number & (rows == np.floor(rows)) if self._is_integer else is_number

    def _check_valid(self, rows: NDArray[Any], steps: LaneNumbers, is_strict: bool) -> None:
        """Raise an error for an invalid action; for one out of bounds only if strict."""
        is_bounded = is_strict or self._is_category
        is_valid = self._is_in(rows) if is_bounded else self._is_number(rows)
        lanes = is_valid.reshape(len(rows), -1).all(1)
        if lanes.all():
            return
        lane, leaf = int(lanes.argmin()), self._leaf
        found = rows[lane].tolist()
        raise WrongRows(
            f"The policy's {show_key(leaf.key)} of lane {lane} in step {steps[lane]} of its "
            f"trajectory is not in the environment's action_spec. Expected: {leaf.space}"
            f"{', one-hot' if self._is_one_hot else ''}. Found: {found}.",
            key=leaf.key,
            row=int(steps[lane]),
            expected=str(leaf.space),
            found=found,
            advice=_ADVICE,
        )

    def _shape_error(self, value: Any) -> WrongRows:
        leaf, name = self._leaf, show_key(self._leaf.key)
        found = None if value is None else tuple(value.shape)
        written = f"no {name}" if found is None else f"the shape {[*found]}"
        is_categorical = leaf.counts is not None and not leaf.one_hot
        return WrongRows(
            f"The action {name} must have the shape {[*self._shape]}, but the policy wrote "
            f"{written}.",
            key=leaf.key,
            expected=self._shape,
            found=found,
            advice="Convert one-hot actions with argmax(-1)." if is_categorical else None,
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


def _dtype_bounds(dtype: np.dtype[Any]) -> tuple[float, float]:
    if dtype.kind == "b":
        return 0.0, 1.0
    info: Any = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
    return float(info.min), float(info.max)
