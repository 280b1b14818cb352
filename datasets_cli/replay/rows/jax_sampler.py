"""Batches that are drawn on JAX's own device, inside of whatever is compiled there."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from datasets_cli.errors import EmptyBuffer, UsageError
from datasets_cli.replay.arguments import whole_number
from datasets_cli.replay.draws.draw import Uniform
from datasets_cli.replay.draws.protocol import Sampler
from datasets_cli.replay.draws.slices import Slices
from datasets_cli.replay.rows.jax_format import JaxFormat
from datasets_cli.replay.rows.reader import BatchReader
from datasets_cli.replay.storages.dataset import DatasetStorage
from datasets_cli.schema.columns import DONE, TERMINATED, TRUNCATED, Key
from datasets_cli.schema.tree import Tree, grow_tree
from datasets_cli.store.dataset import Dataset
from datasets_cli.store.layouts.records import columns_of
from datasets_cli.system_errors import check_memory

if TYPE_CHECKING:
    import jax

WORD_BYTES = 4

JaxSample = Callable[["jax.Array"], Tree]
"""Draws a batch by a key of ``jax.random``: a pure function, and a pytree of its arrays."""


class RowWords:
    """The leaves of a row side by side in words of 32 bits: one gather takes them all.

    leaves    o float32 [2]   r float32 [1]   d bool [1]   t bool [1]
    words     o o r dt..      the widest elements first, so that each is aligned
    """

    def __init__(self, leaves: dict[Key, np.ndarray]) -> None:
        # leaves: of some rows, with the element types and the shapes of all.
        end = 0
        self._leaves: list[tuple[Key, np.dtype, tuple[int, ...], int]] = []
        for key, leaf in sorted(leaves.items(), key=lambda item: -item[1].itemsize):
            self._leaves.append((key, leaf.dtype, leaf.shape[1:], end))
            end += leaf.itemsize * math.prod(leaf.shape[1:])
        self.count = -(-end // WORD_BYTES)

    def put(self, words: np.ndarray, leaves: dict[Key, np.ndarray]) -> None:
        """Write the leaves of some rows into their words uint32 ``[n, count]``."""
        row_bytes = words.view(np.uint8)
        for key, dtype, shape, begin in self._leaves:
            if width := math.prod(shape):
                rows = np.ascontiguousarray(leaves[key]).reshape(len(words), width)
                row_bytes[:, begin : begin + width * dtype.itemsize] = rows.view(np.uint8)

    def leaves(self, words: jax.Array) -> dict[Key, jax.Array]:
        """Return the leaves of rows, given their words."""
        return {
            key: _elements(words, dtype, begin, math.prod(shape)).reshape(len(words), *shape)
            for key, dtype, shape, begin in self._leaves
        }


def _elements(words: jax.Array, dtype: np.dtype, begin: int, count: int) -> jax.Array:
    """Return so many elements of each row, ``[n, count]``, which begin at a byte."""
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
    """Return what draws batches of a dataset, all rows of which it has on JAX's device."""
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
        slices.windows(storage, slice_len)  # refuses a length that no trajectory has
        offsets = storage.offsets.numpy()
        room = np.diff(offsets) - slice_len + 1  # how many slices each trajectory has
        arrays["firsts"] = numpy.asarray(offsets[:-1][room > 0])
        arrays["room"] = numpy.asarray(room[room > 0])
    row_words, words = _words_of(storage.dataset, batch_format)
    arrays["words"] = numpy.asarray(words)

    def draw(arrays: dict[str, jax.Array], key: jax.Array) -> Tree:
        marks = {}
        if num_slices is None:
            index = _below(key, size, numpy.uint32(num_rows))
        else:
            of_trajectory, of_begin = jax.random.split(key)
            drawn = _below(of_trajectory, num_slices, numpy.uint32(len(arrays["room"])))
            begin = _below(of_begin, num_slices, arrays["room"][drawn])
            steps = numpy.arange(slice_len)
            index = ((arrays["firsts"][drawn] + begin)[:, None] + steps).reshape(size)
            marks[TRUNCATED] = numpy.tile(steps == slice_len - 1, num_slices)[:, None]
        leaves = row_words.leaves(arrays["words"].at[index].get(mode="promise_in_bounds"))
        if marks:
            last = marks[TRUNCATED]
            marks[DONE] = leaves[DONE] | last if DONE in leaves else last
            marks[TERMINATED] = leaves.get(TERMINATED, numpy.zeros_like(last))
        return grow_tree({**leaves, **marks, ("index",): index})

    return jax.tree_util.Partial(jax.jit(draw), arrays)


def _below(key: jax.Array, count: int, limit: jax.Array) -> jax.Array:
    """Return so many whole numbers below one limit, or a limit each."""
    import jax

    # The upper word of bits * limit, by halves: a * 2**16 + b times c * 2**16 + d. jax's randint
    # draws twice as many bits and divides by them, which would be a third of a batch's time.
    bits, limit = jax.random.bits(key, (count,), "uint32"), limit.astype("uint32")
    a, b, c, d = bits >> 16, bits & 0xFFFF, limit >> 16, limit & 0xFFFF
    middle = (b * d >> 16) + (a * d & 0xFFFF) + (b * c & 0xFFFF)
    upper = a * c + (a * d >> 16) + (b * c >> 16) + (middle >> 16)
    return upper.astype(jax.numpy.asarray(0).dtype)


def _words_of(dataset: Dataset, batch_format: JaxFormat) -> tuple[RowWords, np.ndarray]:
    """Return all rows of a dataset in words uint32 ``[N, count]``, and what is where in them."""
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


def _check_room(size_bytes: int, what: str) -> None:
    """Check that rows fit into the memory of this process, and into that of JAX's device."""
    import jax

    check_memory(size_bytes, what)
    (device,) = jax.numpy.empty(0).devices()
    if device.platform != "cpu" and (known := device.memory_stats()):
        check_memory(size_bytes, what, known["bytes_limit"] - known["bytes_in_use"])


def _plain_rows(reader: BatchReader) -> DatasetStorage:
    """Return the rows of a dataset; check that batches are these rows as they are stored."""
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
    found = [name for name, is_there in reasons.items() if is_there]
    raise UsageError(
        "jax_sampler gives the rows of a dataset as they are stored, all of them on JAX's device; "
        f"found {' and '.join(found) or type(storage).__name__}. Leave it out, text and frames by "
        "columns=, or draw batches with format='jax'."
    )
