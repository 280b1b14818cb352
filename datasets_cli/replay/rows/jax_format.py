"""Batches as nested dicts of ``jax.Array``; jax is imported when the first batch is made."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import Rows
from datasets_cli.replay.rows.batch_format import BatchFormat, columns_of, nest, show_columns
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.schema.bits import TYPE_NAMES, to_array, to_tensor
from datasets_cli.schema.columns import EPISODE, MEMBER, Column, Key, show_key
from datasets_cli.schema.element_types import ITEM_BYTES, NUMPY_TYPES, element_type
from datasets_cli.schema.tree import Tree, leaves_in, put
from datasets_cli.store.layouts.gathered import GatheredRecords, PairFields
from datasets_cli.store.layouts.protocol import GatheredRows

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

UNKNOWN = frozenset({"complex32", "float4_e2m1fn_x2"})
"""Types of leaves that jax does not take."""

LARGE_BYTES = 1 << 20
"""A leaf of more is handed over alone: jax may take its memory then, and copies it less often."""

MOST_LEAVES = 8
"""Of one call: more copies than these XLA shares among its threads, and waits for them."""


class RecordTree(Tree):
    """A nested dict of leaves, with the records that most of them are fields of."""

    # packed: pairs of records uint8 `[B, 2 * record]`.
    # views: the leaves as they were gathered; others may have taken their places since.

    def __init__(self, tree: Tree, fields: PairFields | None, packed: np.ndarray) -> None:
        super().__init__(tree)
        self.fields, self.packed = fields, packed
        self.views = dict(leaves_in(tree))


class RecordSplit:
    """Fields of records, and leaves beside them, as arrays of jax by one compiled call.

    two records of 16 bytes      o (float32 [2])  r (float32)  t (bool)  3 bytes of padding
    as float32 [B, 8]            o is 0 to 2, r is 2 to 3, next.o is 4 to 6
    as bool [B, 32]              t is 12 to 13
    """

    # The same bytes once for each type, and not once as words: then fields are copied and nothing
    # is computed. What computes, XLA gives to another thread, and that alone takes 50 us.

    def __init__(self, fields: Sequence[tuple[int, Column]] = ()) -> None:
        self.keys = [column.key for _, column in fields]
        self._fields = [
            (column.dtype, offset // ITEM_BYTES[column.dtype], column) for offset, column in fields
        ]
        self._types = {column.dtype: jax_dtype(column.dtype) for _, column in fields}

    @cached_property
    def _call(self) -> Callable[..., Sequence[jax.Array]]:
        import jax

        call: Callable[..., Sequence[jax.Array]] = jax.jit(self._columns)
        return call

    def arrays(self, packed: np.ndarray, others: Sequence[np.ndarray]) -> Sequence[jax.Array]:
        """Return the fields of pairs uint8 ``[B, 2 * record]``, and then the other leaves."""
        arrays: Sequence[jax.Array] = self._call(
            [packed.view(dtype) for dtype in self._types.values()], others
        )
        return arrays

    def _columns(self, views: list[jax.Array], others: list[jax.Array]) -> list[jax.Array]:
        """Return the columns of each type's view, and the others as they are."""
        rows = dict(zip(self._types, views, strict=True))
        fields = [
            rows[dtype][:, begin : begin + math.prod(column.shape)]
            for dtype, begin, column in self._fields
        ]
        shapes = [column.shape for _, _, column in self._fields]
        return [
            *(part.reshape(len(part), *shape) for part, shape in zip(fields, shapes, strict=True)),
            *others,
        ]


NO_RECORDS = RecordTree({}, None, np.empty((0, 0), np.uint8))
NO_SPLIT = RecordSplit()


@lru_cache(64)
def splits_of(fields: PairFields | None, has_64_bits: bool) -> list[RecordSplit]:
    """Return what gives the fields of records whose types jax has."""
    columns = fields.columns if fields is not None else []
    fitting = [
        (offset, column)
        for offset, column in columns
        if column.row_bytes and (has_64_bits or column.dtype not in NARROWED)
    ]
    starts = range(0, len(fitting), MOST_LEAVES)
    return [RecordSplit(fitting[start : start + MOST_LEAVES]) for start in starts]


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

    def rows_of(self, block: GatheredRows, start: int, stop: int) -> Tree:
        """Return rows of a block as arrays, with the records that they are fields of."""
        tree = block.arrays(start, stop)
        if not isinstance(block, GatheredRecords):
            return tree
        return RecordTree(tree, block.fields, block.packed[start:stop])

    def from_tree(self, tree: Tree) -> Tree:
        """Return a nested dict of arrays of jax, of leaves that nobody else has."""
        leaves = dict(leaves_in(tree))
        rows = (leaf for leaf in leaves.values() if isinstance(leaf, np.ndarray | torch.Tensor))
        size = len(next(rows, ()))
        if size not in self._sizes:  # to compile takes as long as 100 batches: not for one
            self._sizes.add(size)
            return self._one_by_one(tree)
        records = tree if isinstance(tree, RecordTree) else NO_RECORDS
        splits = splits_of(records.fields, _has_64_bits())
        fields = [key for split in splits for key in split.keys]
        for key in fields:
            if leaves[key] is records.views[key]:
                del leaves[key]
        arrays = {key: self._array(key, leaf) for key, leaf in leaves.items()}
        packable = {key: array for key, array in arrays.items() if array is not None}
        is_whole = len(packable) == len(arrays)
        left = [*packable]
        for split in chain(splits, repeat(NO_SPLIT)):
            room = MOST_LEAVES - len(split.keys)
            some, left = left[:room], left[room:]
            if not (some or split.keys):
                break
            made = split.arrays(records.packed, [packable[key] for key in some])
            for key, array in zip([*split.keys, *some], made, strict=True):
                if key in some or key not in leaves:
                    put(tree, key, array)
        return dict(tree) if is_whole else self._one_by_one(tree)

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
        'to 64 with jax.config.update("jax_enable_x64", True), leave them out of a dataset with '
        "columns=, or ask for 32 with cast=True."
    )


def _beyond(key: Key, number: Any, wide: np.dtype, target: np.dtype) -> UsageError:
    return UsageError(
        f"{show_key(key)} has {number}, {wide}, which {target} cannot hold. Set jax to 64 bits "
        'with jax.config.update("jax_enable_x64", True), or leave the column out.'
    )
