"""Batches as nested dicts of ``jax.Array``; jax is imported when the first batch is made."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import Rows
from datasets_cli.replay.rows.batch_format import BatchFormat, columns_of, nest, show_columns
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.schema.bits import TYPE_NAMES, to_tensor
from datasets_cli.schema.columns import EPISODE, MEMBER, Key, show_key
from datasets_cli.schema.element_types import NUMPY_TYPES, element_type
from datasets_cli.schema.tree import Tree

NARROWED = {
    "int64": "int32",
    "uint64": "uint32",
    "float64": "float32",
    "complex128": "complex64",
}
"""What jax makes of its wide types, in silence, unless it is set to 64 bits."""

NUMBERS = frozenset({EPISODE, MEMBER, ("timesteps",), ("goal_row",)})
"""Columns of int64 that are given as int32."""

UNKNOWN = frozenset({"complex32", "float4_e2m1fn_x2"})
"""Types of leaves that jax does not take."""


class JaxFormat(BatchFormat):
    """Gives arrays of jax, which are contiguous and copied where jax asks for it."""

    # Where jax is set to 32 bits, which it is by default, `index`, `goal_row`, `episode`,
    # `timesteps` and `member` are int32, which is enough for the numbers of 2**31 rows, and other
    # columns of 64 bits are refused.

    name: ClassVar[str] = "jax"

    def __init__(self, cast: bool = False) -> None:
        self.cast = cast

    def check(self, storage: Storage) -> None:
        """Check that jax, with its settings, has the columns' types."""
        found = [(column.key, column.dtype) for column in columns_of(storage)]
        if lacking := [pair for pair in found if pair[1] in UNKNOWN]:
            raise _lacks(lacking)
        wide = [(key, dtype) for key, dtype in found if self._refuses(key, dtype)]
        if wide and not _has_64_bits():
            raise _wide(wide)

    def from_tree(self, tree: Tree) -> Tree:
        """Return a nested dict of arrays of jax, of leaves that nobody else has."""
        found: Tree = nest(tree, self._own)
        return found

    def from_batch(self, batch: Rows, key: Key = ()) -> Rows:
        """Return a batch with arrays of jax in place of tensors."""
        # They are copies: arrays of jax never change, and a transform may have kept the tensor.
        return nest(batch, self._copy, key)

    def _copy(self, key: Key, leaf: Any) -> Any:
        return self._own(key, leaf.copy() if isinstance(leaf, np.ndarray) else leaf.clone())

    def _own(self, key: Key, leaf: Any) -> Any:
        """Return an array of jax that may share the memory of a tensor, or array of numpy."""
        import jax

        name = _type_of(leaf)
        if name in UNKNOWN:
            raise _lacks([(key, name)])
        if name in NARROWED and not _has_64_bits():
            if self._refuses(key, name):
                raise _wide([(key, name)])
            leaf = narrowed(key, leaf, NARROWED[name])
        if isinstance(leaf, torch.Tensor):
            leaf = leaf.detach().resolve_conj().resolve_neg()
            if leaf.is_cpu and name in NUMPY_TYPES:
                leaf = leaf.numpy()
        elif leaf.dtype.names is not None:  # bits of a type that jax has and numpy does not
            leaf = to_tensor(leaf)
        if isinstance(leaf, np.ndarray):  # in half the time of DLPack
            return jax.numpy.asarray(np.asarray(leaf, order="C"))
        return jax.dlpack.from_dlpack(leaf.contiguous())

    def _refuses(self, key: Key, dtype: str) -> bool:
        """Return whether a column of some type is not given as one of 32 bits."""
        # Numbers of trajectories, of rows, of steps in sequences, and of members of a mixture.
        is_number = key in NUMBERS or key[:1] == ("index",)
        return dtype in NARROWED and not (self.cast or (is_number and dtype == "int64"))


def narrowed(key: Key, leaf: Any, dtype: str) -> np.ndarray:
    """Return a leaf as one of 32 bits in numpy."""
    wide = leaf if isinstance(leaf, np.ndarray) else leaf.detach().cpu().resolve_conj().numpy()
    target = np.dtype(dtype)
    if target.kind in "iu":
        limits = np.iinfo(target)
        beyond = wide[(wide < limits.min) | (wide > limits.max)]
        if len(beyond):
            raise _beyond(key, beyond[0], wide.dtype, target)
        return wide.astype(target)
    try:
        with np.errstate(over="raise"):
            return wide.astype(target)
    except FloatingPointError as error:
        raise _beyond(key, abs(wide).max(), wide.dtype, target) from error


def _type_of(leaf: Any) -> str:
    if isinstance(leaf, torch.Tensor):
        return TYPE_NAMES.get(leaf.dtype, str(leaf.dtype))
    return element_type(leaf.dtype) or str(leaf.dtype)


def _has_64_bits() -> bool:
    import jax

    return bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]


def _lacks(columns: list[tuple[Key, str]]) -> UsageError:
    return UsageError(
        f"jax does not have the element type of {show_columns(columns)}. Take format='torch', or "
        "convert the column: preprocess(), or a transform."
    )


def _wide(columns: list[tuple[Key, str]]) -> UsageError:
    return UsageError(
        f"jax is set to 32 bits and would cut {show_columns(columns)} to them in silence. Set it "
        'to 64 with jax.config.update("jax_enable_x64", True), leave them out of a dataset with '
        "columns=, or ask for 32 with cast=True."
    )


def _beyond(key: Key, number: Any, wide: np.dtype, target: np.dtype) -> UsageError:
    return UsageError(
        f"{show_key(key)} has {number}, {wide}, which {target} cannot hold. Set jax to 64 bits "
        'with jax.config.update("jax_enable_x64", True), or leave the column out.'
    )
