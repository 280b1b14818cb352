"""Batches as nested dicts of ``jax.Array``; jax is imported when the first batch is made."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from datasets_cli.errors import UsageError, by_reader
from datasets_cli.replay.arguments import Rows
from datasets_cli.replay.rows.batch_format import BatchFormat, columns_of, nest, show_columns
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.schema.bits import TYPE_NAMES, to_array, to_tensor
from datasets_cli.schema.columns import EPISODE, MEMBER, Key, show_key
from datasets_cli.schema.element_types import NUMPY_TYPES, element_type
from datasets_cli.schema.tree import Tree, leaves_in, put

if TYPE_CHECKING:
    import jax

NARROWED = {
    "int64": "int32",
    "uint64": "uint32",
    "float64": "float32",
    "complex128": "complex64",
}
"""What jax makes of its wide types, in silence, unless it is set to 64 bits."""

NUMBERS = frozenset({EPISODE, MEMBER, ("timesteps",), ("goal_row",)})
"""Columns of int64 that are given as int32."""

WIDER = by_reader("JAX_ENABLE_X64=1", 'jax.config.update("jax_enable_x64", True)')

UNKNOWN = frozenset({"complex32", "float4_e2m1fn_x2"})
"""Types of leaves that jax does not take."""

LARGE_BYTES = 1 << 20
"""A leaf of more is handed over alone: jax may take its memory then, and copies it less often."""

MOST_LEAVES = 8
"""Of one call: more copies than these XLA shares among its threads, and waits for them."""


@cache
def _hand_over() -> Callable[[list[np.ndarray]], list[jax.Array]]:
    """Return what makes arrays of jax of several of numpy by one compiled call."""
    import jax

    call: Callable[[list[np.ndarray]], list[jax.Array]] = jax.jit(lambda leaves: leaves)
    return call


class JaxFormat(BatchFormat):
    """Gives arrays of jax, which are contiguous and copied where jax asks for it."""

    # Where jax is set to 32 bits, which it is by default, `index`, `goal_row`, `episode`,
    # `timesteps` and `member` are int32, which is enough for the numbers of 2**31 rows, and other
    # columns of 64 bits are refused.

    name: ClassVar[str] = "jax"

    def __init__(self, cast: bool = False) -> None:
        self.cast = cast
        self._sizes: set[int] = set()  # of the batches so far

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
        leaves = dict(leaves_in(tree))
        rows = (leaf for leaf in leaves.values() if isinstance(leaf, np.ndarray | torch.Tensor))
        size = len(next(rows, ()))
        if size not in self._sizes:  # to compile takes as long as 100 batches: not for one
            self._sizes.add(size)
            return self._one_by_one(tree)
        arrays = {key: self._array(key, leaf) for key, leaf in leaves.items()}
        together = [(key, array) for key, array in arrays.items() if array is not None]
        for start in range(0, len(together), MOST_LEAVES):
            keys, some = zip(*together[start : start + MOST_LEAVES], strict=True)
            for key, array in zip(keys, _hand_over()(list(some)), strict=True):
                put(tree, key, array)
        return tree if len(together) == len(leaves) else self._one_by_one(tree)

    def _one_by_one(self, tree: Tree) -> Tree:
        """Return the dict with arrays of jax in place of the leaves that are none yet."""
        batch: Tree = nest(tree, self._own)
        return batch

    def _array(self, key: Key, leaf: Any) -> np.ndarray | None:
        """Return a leaf in numpy as jax will have it; None for what is handed over alone."""
        if type(leaf) is torch.Tensor and leaf.is_cpu:
            is_plain = TYPE_NAMES.get(leaf.dtype) in NUMPY_TYPES
            leaf = leaf.numpy(force=True) if is_plain else to_array(leaf)
        is_packed = isinstance(leaf, np.ndarray) and leaf.nbytes <= LARGE_BYTES
        return self.in_numpy(key, leaf) if is_packed else None

    def in_numpy(self, key: Key, leaf: np.ndarray) -> np.ndarray:
        """Return an array of numpy of a type that jax has with its settings, by jax's name."""
        fitting: np.ndarray = self._fitting(key, leaf)
        names = fitting.dtype.names
        return fitting if names is None else fitting.view(jax_dtype(names[0]))

    def from_batch(self, batch: Rows, key: Key = ()) -> Rows:
        """Return a batch with arrays of jax in place of tensors."""
        # They are copies: arrays of jax never change, and a transform may have kept the tensor.
        return nest(batch, self._copy, key)

    def _copy(self, key: Key, leaf: Any) -> Any:
        return self._own(key, leaf.copy() if isinstance(leaf, np.ndarray) else leaf.clone())

    def _own(self, key: Key, leaf: Any) -> Any:
        """Return an array of jax that may share the memory of a tensor, or array of numpy."""
        import jax

        leaf, name = self._fitting(key, leaf), _type_of(leaf)
        if isinstance(leaf, torch.Tensor):
            leaf = leaf.detach().resolve_conj().resolve_neg()
            if leaf.is_cpu and name in NUMPY_TYPES:
                leaf = leaf.numpy()
        elif leaf.dtype.names is not None:  # bits of a type that jax has and numpy does not
            leaf = to_tensor(leaf)
        if isinstance(leaf, np.ndarray):  # in half the time of DLPack
            return jax.numpy.asarray(np.asarray(leaf, order="C"))
        return jax.dlpack.from_dlpack(leaf.contiguous())

    def _fitting(self, key: Key, leaf: Any) -> Any:
        """Return a leaf of a type that jax has with its settings."""
        name = _type_of(leaf)
        if name in UNKNOWN:
            raise _lacks([(key, name)])
        if name not in NARROWED or _has_64_bits():
            return leaf
        if self._refuses(key, name):
            raise _wide([(key, name)])
        return narrowed(key, leaf, NARROWED[name])

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
        narrow = wide.astype(target)
        if len(beyond := wide[narrow != wide]):
            raise _beyond(key, beyond[0], wide.dtype, target)
        return narrow
    try:
        with np.errstate(over="raise"):
            return wide.astype(target)
    except FloatingPointError as error:
        raise _beyond(key, abs(wide).max(), wide.dtype, target) from error


def _type_of(leaf: Any) -> str:
    if isinstance(leaf, torch.Tensor):
        return TYPE_NAMES.get(leaf.dtype, str(leaf.dtype))
    return element_type(leaf.dtype) or str(leaf.dtype)


def jax_dtype(name: str) -> np.dtype:
    """Return what jax calls an element type in numpy, which may lack it."""
    import jax

    return jax.numpy.dtype(name)


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
        f"to 64 with {WIDER}"
        + by_reader(
            ".", ", leave them out of a dataset with columns=, or ask for 32 with cast=True."
        )
    )


def _beyond(key: Key, number: Any, wide: np.dtype, target: np.dtype) -> UsageError:
    return UsageError(
        f"{show_key(key)} has {number}, {wide}, which {target} cannot hold. Set jax to 64 bits "
        f"with {WIDER}, or leave the column out."
    )
