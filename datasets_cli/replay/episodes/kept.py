"""Reductions of a dataset's leaves, worked out once and kept among its tables."""

from __future__ import annotations

import hashlib
import logging
import math

import numpy as np

from datasets_cli.errors import RldsError
from datasets_cli.replay.episodes.leaf_blocks import block_dtype, leaf_blocks
from datasets_cli.replay.episodes.reductions import reduce_blocks, reduced_dtype
from datasets_cli.schema.columns import Column, Key
from datasets_cli.store.cache_root import CacheRoot, has_manifest
from datasets_cli.store.content import canonical_json
from datasets_cli.store.dataset import Dataset, check_memory
from datasets_cli.store.table_arrays import map_array, save_array

logger = logging.getLogger(__name__)


def reduced_leaf(dataset: Dataset, column: Column, reduction: str, root: CacheRoot) -> np.ndarray:
    """Return a reduction of a leaf ``[K, *shape]`` of a dataset or a view; see ``_of_dataset``."""
    # Of a view it is that of the dataset's trajectories, but of those that it has cut.
    selection = dataset.selection
    if selection is None:
        return _of_dataset(dataset, column, reduction, root)
    is_whole = selection.are_whole(dataset.whole.offsets.numpy())
    if is_whole.any():
        reduced = _of_dataset(dataset.whole, column, reduction, root).take(selection.numbers, 0)
    else:
        reduced = np.empty((len(selection), *column.shape), _dtype(column, reduction))
    cut = np.flatnonzero(~is_whole)
    if len(cut):
        parts = np.empty((len(cut), *column.shape), reduced.dtype)
        _reduce(dataset.select(selection.at(cut, "")), column, reduction, parts)
        reduced[cut] = parts
    return reduced


def _of_dataset(dataset: Dataset, column: Column, reduction: str, root: CacheRoot) -> np.ndarray:
    """Return a reduction of a leaf ``[K, *shape]``, as it was kept or worked out now."""
    content, name = dataset.manifest.content, _name(column.key, reduction)
    dtype = _dtype(column, reduction)
    shape = (dataset.manifest.num_trajectories, *column.shape)
    check_memory(math.prod(shape) * dtype.itemsize, dataset.manifest.id)
    if (kept := map_array(root, content, name, dtype, shape)) is not None:
        return kept.astype(dtype)
    reduced = np.empty(shape, dtype)
    _reduce(dataset, column, reduction, reduced)
    # Nothing is kept of a dataset that was deleted while it was open.
    if has_manifest(dataset.folder):
        _keep(root, content, name, reduced)
    return reduced


def _dtype(column: Column, reduction: str) -> np.dtype:
    of_rows = block_dtype(column)
    assert of_rows is not None, "a leaf of numbers"
    return reduced_dtype(reduction, of_rows)


def _name(key: Key, reduction: str) -> str:
    """Return a file name without an ending; a key may have names that no file can have."""
    digest = hashlib.sha256(canonical_json(list(key))).hexdigest()
    return f"trajectories-{reduction}-{digest[:32]}"


def _reduce(dataset: Dataset, column: Column, reduction: str, reduced: np.ndarray) -> None:
    offsets = dataset.offsets.numpy()
    if reduction not in ("first", "last"):
        reduce_blocks(reduction, leaf_blocks(dataset, column), offsets, reduced)
        return
    rows = offsets[:-1] if reduction == "first" else offsets[1:] - 1
    number = 0
    for block in leaf_blocks(dataset, column, rows):
        reduced[number : number + len(block)] = block
        number += len(block)


def _keep(root: CacheRoot, content: str, name: str, array: np.ndarray) -> None:
    try:
        save_array(root, content, name, array)
    except (OSError, RldsError) as error:  # it was worked out, and can be again
        logger.debug("%s of %s is not kept: %s", name, content, error)
