"""Actions: what a policy writes for every lane, as gymnasium takes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from datasets_cli.environments.leaves import Leaf, tree_of
from datasets_cli.environments.rows import Written
from datasets_cli.errors import UsageError
from datasets_cli.gymnasium_extra import gymnasium
from datasets_cli.store.schema.columns import show_key


class Actions:
    """Makes actions of what policies write."""

    def __init__(
        self, space: gymnasium.Space, leaves: Sequence[Leaf], batch: tuple[int, ...]
    ) -> None:
        self._space = space
        self._leaves = [(leaf, (*batch, *leaf.shape)) for leaf in leaves]

    def native(self, written: Written) -> Any:
        """Return an action as the lanes take it, an array or a tree of arrays ``[N, ...]``."""
        parts = [
            leaf.restore(_array(leaf, shape, written).reshape(-1, *leaf.shape))
            for leaf, shape in self._leaves
        ]
        return tree_of(self._space, iter(parts)) if self._leaves[0][0].path else parts[0]


def _array(leaf: Leaf, shape: tuple[int, ...], written: Written) -> NDArray[Any]:
    """Return what was written of an array."""
    value: Any = written.get(leaf.key)
    if value is None or value.shape != shape:
        found = "nothing" if value is None else f"the shape {[*value.shape]}"
        hint = "" if leaf.one_hot or leaf.counts is None else " Of one-hot actions take argmax(-1)."
        raise UsageError(
            f"The action {show_key(leaf.key)} must have the shape {[*shape]}, and the policy gave "
            f"{found}. The environment's action_spec says what it takes.{hint}"
        )
    array: NDArray[Any] = value if leaf.is_text else value.cpu().numpy()
    return array
