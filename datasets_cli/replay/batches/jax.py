"""Batches as nested dicts of ``jax.Array``; jax is imported for the first batch."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from datasets_cli.core.system_errors import check_memory
from datasets_cli.errors import EmptyBuffer, Unsupported, UsageError, by_reader
from datasets_cli.replay.arguments import Rows, whole_number
from datasets_cli.replay.batches.formats import (
    BatchFormat,
    lacks_dtype,
    nest,
    show_columns,
    storage_columns,
)
from datasets_cli.replay.batches.reader import BatchReader
from datasets_cli.replay.samplers.protocol import Sampler, Uniform
from datasets_cli.replay.samplers.slices import Slices
from datasets_cli.replay.storages.dataset import DatasetStorage
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.schema.bits import TYPE_NAMES, to_array, to_tensor
from datasets_cli.schema.columns import (
    DONE,
    EPISODE,
    MEMBER,
    NUMPY_TYPES,
    TERMINATED,
    TRUNCATED,
    Key,
    element_type,
    show_key,
)
from datasets_cli.schema.tree import Tree, grow_tree, leaves_in, put
from datasets_cli.store.dataset import Dataset
from datasets_cli.store.layouts.records import columns_of

if TYPE_CHECKING:
    import jax


NARROWED = {
    "int64": "int32",
    "uint64": "uint32",
    "float64": "float32",
    "complex128": "complex64",
}
"""The dtypes to which jax silently converts dtypes of 64 bits, unless 64 bits are enabled."""

NUMBERS = frozenset({EPISODE, MEMBER, ("timesteps",), ("goal_row",)})
"""Columns of int64 that fit int32, and are converted to it."""

WIDER = by_reader("JAX_ENABLE_X64=1", 'jax.config.update("jax_enable_x64", True)')

UNKNOWN = frozenset({"complex32", "float4_e2m1fn_x2"})
"""Dtypes that jax does not support."""

LARGE_BYTES = 1 << 20
"""A leaf above this size is passed separately, so that jax can use its memory without a copy."""

MOST_LEAVES = 8
"""The most leaves per call: for more, XLA copies in threads and waits for them."""


@cache
def _converter() -> Callable[[list[np.ndarray]], list[jax.Array]]:
    """Return a compiled function that converts several numpy arrays to jax arrays."""
    import jax

    call: Callable[[list[np.ndarray]], list[jax.Array]] = jax.jit(lambda leaves: leaves)
    return call


class JaxFormat(BatchFormat):
    """Converts tensors to contiguous jax arrays, copied only if jax needs a copy."""

    # By default jax is set to 32 bits. Then `index`, `goal_row`, `episode`, `timesteps` and
    # `member` are int32, which is enough for 2**31 rows, and other columns of 64 bits are rejected.

    name: ClassVar[str] = "jax"

    def __init__(self, cast: bool = False) -> None:
        self.cast = cast
        self._sizes: set[int] = set()  # sizes of the batches so far

    def check(self, storage: Storage) -> None:
        """Check that jax, with its current settings, has the dtypes of a storage."""
        found = [(column.key, column.dtype) for column in storage_columns(storage)]
        if lacking := [pair for pair in found if pair[1] in UNKNOWN]:
            raise lacks_dtype("jax", lacking)
        wide = [(key, dtype) for key, dtype in found if self._refuses(key, dtype)]
        if wide and not _has_64_bits():
            raise _wide(wide)

    def from_tree(self, tree: Tree) -> Tree:
        """Convert leaves, whose memory jax may use, to jax arrays in place."""
        leaves = dict(leaves_in(tree))
        rows = (leaf for leaf in leaves.values() if isinstance(leaf, np.ndarray | torch.Tensor))
        size = len(next(rows, ()))
        if size not in self._sizes:  # compiling takes as long as 100 batches
            self._sizes.add(size)
            return self._one_by_one(tree)
        arrays = {key: self._array(key, leaf) for key, leaf in leaves.items()}
        together = [(key, array) for key, array in arrays.items() if array is not None]
        for start in range(0, len(together), MOST_LEAVES):
            keys, some = zip(*together[start : start + MOST_LEAVES], strict=True)
            for key, array in zip(keys, _converter()(list(some)), strict=True):
                put(tree, key, array)
        return tree if len(together) == len(leaves) else self._one_by_one(tree)

    def _one_by_one(self, tree: Tree) -> Tree:
        """Return the dict with every leaf as a jax array."""
        batch: Tree = nest(tree, self._own)
        return batch

    def _array(self, key: Key, leaf: Any) -> np.ndarray | None:
        """Return a leaf as a numpy array of jax's dtype; None for a leaf passed separately."""
        if type(leaf) is torch.Tensor and leaf.is_cpu:
            is_plain = TYPE_NAMES.get(leaf.dtype) in NUMPY_TYPES
            leaf = leaf.numpy(force=True) if is_plain else to_array(leaf)
        is_packed = isinstance(leaf, np.ndarray) and leaf.nbytes <= LARGE_BYTES
        return self.in_numpy(key, leaf) if is_packed else None

    def in_numpy(self, key: Key, leaf: np.ndarray) -> np.ndarray:
        """Return a numpy array in a dtype of jax with its current settings."""
        fitting: np.ndarray = self._fitting(key, leaf)
        names = fitting.dtype.names
        return fitting if names is None else fitting.view(jax_dtype(names[0]))

    def from_batch(self, batch: Rows, key: Key = ()) -> Rows:
        """Return a batch with tensors converted to jax arrays."""
        # Copies: a jax array must not change, and a transform may still use the tensor.
        return nest(batch, self._copy, key)

    def _copy(self, key: Key, leaf: Any) -> Any:
        return self._own(key, leaf.copy() if isinstance(leaf, np.ndarray) else leaf.clone())

    def _own(self, key: Key, leaf: Any) -> Any:
        """Return a jax array that may share the memory of a tensor or numpy array."""
        import jax

        leaf, name = self._fitting(key, leaf), _type_of(leaf)
        if isinstance(leaf, torch.Tensor):
            leaf = leaf.detach().resolve_conj().resolve_neg()
            if leaf.is_cpu and name in NUMPY_TYPES:
                leaf = leaf.numpy()
        elif leaf.dtype.names is not None:  # bits of a dtype that numpy does not have
            leaf = to_tensor(leaf)
        if isinstance(leaf, np.ndarray):  # takes half the time of DLPack
            return jax.numpy.asarray(np.asarray(leaf, order="C"))
        return jax.dlpack.from_dlpack(leaf.contiguous())

    def _fitting(self, key: Key, leaf: Any) -> Any:
        """Return a leaf in a dtype of jax with its current settings."""
        name = _type_of(leaf)
        if name in UNKNOWN:
            raise lacks_dtype("jax", [(key, name)])
        if name not in NARROWED or _has_64_bits():
            return leaf
        if self._refuses(key, name):
            raise _wide([(key, name)])
        return narrowed(key, leaf, NARROWED[name])

    def _refuses(self, key: Key, dtype: str) -> bool:
        """Return whether a column is rejected if jax is set to 32 bits."""
        # int64 numbers of trajectories, rows, steps and members fit int32.
        is_number = key in NUMBERS or key[:1] == ("index",)
        return dtype in NARROWED and not (self.cast or (is_number and dtype == "int64"))


def narrowed(key: Key, leaf: Any, dtype: str) -> np.ndarray:
    """Return a leaf as a numpy array of a dtype of 32 bits."""
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
    """Return jax's numpy dtype of a name; numpy may not have it."""
    import jax

    return jax.numpy.dtype(name)


def _has_64_bits() -> bool:
    import jax

    return bool(jax.config.jax_enable_x64)  # type: ignore[attr-defined]


def _wide(columns: list[tuple[Key, str]]) -> UsageError:
    choices = by_reader(".", ", leave the columns out with columns=, or pass cast=True for 32.")
    return Unsupported(
        f"jax is set to 32 bits and would silently truncate {show_columns(columns)}.",
        argument="format",
        key=columns[0][0],
        found=columns[0][1],
        advice=f"Set it to 64 with {WIDER}{choices}",
    )


def _beyond(key: Key, number: Any, wide: np.dtype, target: np.dtype) -> UsageError:
    return Unsupported(
        f"{show_key(key)} has the {wide} {number}, which {target} cannot represent.",
        argument="cast",
        key=key,
        expected=str(target),
        found=number,
        advice=f"Set jax to 64 bits with {WIDER}, or leave the column out.",
    )


WORD_BYTES = 4

JaxSample = Callable[["jax.Array"], Tree]
"""A pure function from a key of ``jax.random`` to a batch, and a pytree of its arrays."""


class RowWords:
    """Packs the leaves of a row into words of 32 bits, so that one gather reads all of them.

    leaves    o float32 [2]   r float32 [1]   d bool [1]   t bool [1]
    words     o o r dt..      in the order of their widths, so that each element is aligned
    """

    def __init__(self, leaves: dict[Key, np.ndarray]) -> None:
        # The leaves of any rows: only their dtypes and shapes are used.
        end = 0
        self._leaves: list[tuple[Key, np.dtype, tuple[int, ...], int]] = []
        for key, leaf in sorted(leaves.items(), key=lambda item: -item[1].itemsize):
            self._leaves.append((key, leaf.dtype, leaf.shape[1:], end))
            end += leaf.itemsize * math.prod(leaf.shape[1:])
        self.count = -(-end // WORD_BYTES)

    def put(self, words: np.ndarray, leaves: dict[Key, np.ndarray]) -> None:
        """Write the leaves of rows to their words uint32 ``[n, count]``."""
        row_bytes = words.view(np.uint8)
        for key, dtype, shape, begin in self._leaves:
            if width := math.prod(shape):
                rows = np.ascontiguousarray(leaves[key]).reshape(len(words), width)
                row_bytes[:, begin : begin + width * dtype.itemsize] = rows.view(np.uint8)

    def leaves(self, words: jax.Array) -> dict[Key, jax.Array]:
        """Return the leaves of rows from their words."""
        return {
            key: _elements(words, dtype, begin, math.prod(shape)).reshape(len(words), *shape)
            for key, dtype, shape, begin in self._leaves
        }


def _elements(words: jax.Array, dtype: np.dtype, begin: int, count: int) -> jax.Array:
    """Return the elements ``[n, count]`` that start at the byte ``begin`` of each row."""
    from jax import lax, numpy

    if dtype.kind == "c":
        real = np.dtype(f"f{dtype.itemsize // 2}")
        pairs = _elements(words, real, begin, 2 * count).reshape(len(words), count, 2)
        return lax.complex(pairs[..., 0], pairs[..., 1])
    size = dtype.itemsize
    if size > WORD_BYTES:
        first = begin // WORD_BYTES
        words = words[:, first : first + 2 * count].reshape(len(words), count, 2)
        return lax.bitcast_convert_type(words, dtype)
    bits = lax.bitcast_convert_type(words, numpy.dtype(f"uint{8 * size}")).reshape(len(words), -1)
    bits = bits[:, begin // size : begin // size + count]
    return bits != 0 if dtype.kind == "b" else lax.bitcast_convert_type(bits, dtype)


def jax_sampler(
    reader: BatchReader, batch_format: JaxFormat, batch_size: int, num_slices: int | None
) -> JaxSample:
    """Return a function that draws batches of a dataset, whose rows it copies to JAX's device."""
    import jax
    from jax import numpy

    size, slice_len = whole_number("batch_size", batch_size, 1), 1
    storage = _plain_rows(reader)
    batch_format.check(storage)
    if not (num_rows := len(storage)):
        raise EmptyBuffer(storage.no_rows)
    arrays = {}
    if num_slices is not None:
        slices = Slices(Uniform(), num_slices=num_slices)
        num_slices, slice_len = slices.shape(size)
        slices.windows(storage, slice_len)  # raises if every trajectory is shorter
        offsets = storage.offsets.numpy()
        room = np.diff(offsets) - slice_len + 1  # the number of slices of each trajectory
        arrays["firsts"] = numpy.asarray(offsets[:-1][room > 0])
        arrays["room"] = numpy.asarray(room[room > 0])
    row_words, words = _words_of(storage.dataset, batch_format)
    arrays["words"] = numpy.asarray(words)

    def draw(arrays: dict[str, jax.Array], key: jax.Array) -> Tree:
        flags = {}
        if num_slices is None:
            index = _below(key, size, numpy.uint32(num_rows))
        else:
            of_trajectory, of_begin = jax.random.split(key)
            drawn = _below(of_trajectory, num_slices, numpy.uint32(len(arrays["room"])))
            begin = _below(of_begin, num_slices, arrays["room"][drawn])
            steps = numpy.arange(slice_len)
            index = ((arrays["firsts"][drawn] + begin)[:, None] + steps).reshape(size)
            flags[TRUNCATED] = numpy.tile(steps == slice_len - 1, num_slices)[:, None]
        leaves = row_words.leaves(arrays["words"].at[index].get(mode="promise_in_bounds"))
        if flags:
            last = flags[TRUNCATED]
            flags[DONE] = leaves[DONE] | last if DONE in leaves else last
            flags[TERMINATED] = leaves.get(TERMINATED, numpy.zeros_like(last))
        return grow_tree({**leaves, **flags, ("index",): index})

    return jax.tree_util.Partial(jax.jit(draw), arrays)


def _below(key: jax.Array, count: int, limit: jax.Array) -> jax.Array:
    """Return ``count`` random whole numbers below one limit, or below a limit each."""
    import jax

    # The upper word of bits * limit, by halves: (a * 2**16 + b) * (c * 2**16 + d). jax's randint
    # draws twice as many bits and divides, which would take a third of the time of a batch.
    bits, limit = jax.random.bits(key, (count,), "uint32"), limit.astype("uint32")
    a, b, c, d = bits >> 16, bits & 0xFFFF, limit >> 16, limit & 0xFFFF
    middle = (b * d >> 16) + (a * d & 0xFFFF) + (b * c & 0xFFFF)
    upper = a * c + (a * d >> 16) + (b * c >> 16) + (middle >> 16)
    return upper.astype(jax.numpy.asarray(0).dtype)


def _words_of(dataset: Dataset, batch_format: JaxFormat) -> tuple[RowWords, np.ndarray]:
    """Return the layout of words, and all rows of a dataset as words uint32 ``[N, count]``."""
    blocks = (
        {key: batch_format.in_numpy(key, leaf) for key, leaf in block.items()}
        for block in dataset.blocks()
    )
    first = next(blocks)
    row_words = RowWords(first)
    _check_room(len(dataset) * row_words.count * WORD_BYTES, dataset.id)
    words = np.zeros((len(dataset), row_words.count), np.uint32)
    start = 0
    for block in chain([first], blocks):
        stop = start + len(next(iter(block.values())))
        row_words.put(words[start:stop], block)
        start = stop
    return row_words, words


def _check_room(size_bytes: int, name: str) -> None:
    """Check that rows fit the memory of this process, and the memory of JAX's device."""
    import jax

    check_memory(size_bytes, name)
    (device,) = jax.numpy.empty(0).devices()
    if device.platform != "cpu" and (stats := device.memory_stats()):
        check_memory(size_bytes, name, stats["bytes_limit"] - stats["bytes_in_use"])


def _plain_rows(reader: BatchReader) -> DatasetStorage:
    """Return the storage of a dataset, or raise if batches are not its unchanged rows."""
    storage, sampler = reader.storage, reader.sampler
    reasons = {
        "a transform or collate_fn": bool(reader.transform.steps or reader.collate_fn),
        "priorities": sampler.has_priorities,
        "goals": type(sampler).relabel is not Sampler.relabel,
    }
    if isinstance(storage, DatasetStorage):
        dataset = storage.dataset
        frames = {column.key for field in dataset.record.frames for column in columns_of(field)}
        reasons["compressed frames"] = not frames.isdisjoint(dataset.keys)
        reasons["text"] = dataset.texts is not None
        if not any(reasons.values()):
            return storage
    found = [name for name, is_found in reasons.items() if is_found]
    shown = " and ".join(found) or type(storage).__name__
    raise Unsupported(
        f"jax_sampler supports only the stored rows of a dataset; found {shown}.",
        expected="the stored rows of a dataset",
        found=shown,
        advice="Leave text and frames out with columns=, or draw batches with format='jax'.",
    )
