"""Values of a dataset's rows or trajectories: worked out once, and kept among its tables."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from datasets_cli.errors import RldsError
from datasets_cli.store.arrays import ArraySource
from datasets_cli.store.cache_root import CacheRoot, has_manifest
from datasets_cli.store.tables import map_array, write_array
from datasets_cli.system_errors import check_memory

logger = logging.getLogger(__name__)

Blocks = Iterable[tuple[int, np.ndarray]]
"""Parts of an array, each after the place of its first value."""


def kept_array(
    dataset: ArraySource,
    root: CacheRoot | None,
    name: str,
    form: tuple[np.dtype, tuple[int, ...]],
    work_out: Callable[[], Blocks],
) -> np.ndarray:
    """Return an array of this element type and shape: from its file, or worked out now."""
    dtype, shape = form
    content = dataset.manifest.content
    # The tables are those of a dataset's content, which a view does not have.
    if root is not None and dataset.selection is None:
        if (kept := map_array(root, content, name, dtype, shape)) is not None:
            return kept
        # Nothing is kept of a dataset that was deleted while it was open.
        if has_manifest(dataset.folder):
            try:
                write_array(root, content, name, dtype, shape, work_out())
                if (kept := map_array(root, content, name, dtype, shape)) is not None:
                    return kept
            except (OSError, RldsError) as error:  # they can be had in memory, too
                logger.debug("%s of %s is not kept: %s", name, content, error)
    check_memory(math.prod(shape) * dtype.itemsize, dataset.id)
    return joined(work_out(), dtype, shape)


def joined(blocks: Blocks, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array that is made of its parts."""
    array = np.empty(shape, dtype)
    for first, values in blocks:
        array[first : first + len(values)] = values.reshape(-1, *shape[1:])
    return array


def values_of_view(
    dataset: ArraySource, values_of: Callable[[Any], np.ndarray], *, by_row: bool
) -> np.ndarray:
    """Return the values of a dataset, or of a view by row or by trajectory.

    dataset     0 0 0 0 1 1 2 2 2
    view            0 0     2 2 2      2 is whole: its values are the dataset's; 0 is cut
    """
    selection = dataset.selection
    if selection is None:
        return values_of(dataset)
    from datasets_cli.store.dataset import Dataset  # with torch, as all that has views
    from datasets_cli.store.selection import SelectedRowMap

    assert isinstance(dataset, Dataset), "nothing else has a selection"
    offsets = dataset.whole.starts
    is_cut = ~selection.are_whole(offsets)
    if is_cut.all():
        return values_of(dataset)
    whole, places = values_of(dataset.whole), selection.numbers
    if by_row:
        check_memory(len(dataset) * whole[0].nbytes, dataset.id)
        places = SelectedRowMap(selection, offsets).numbers(np.arange(len(dataset)))
    values: np.ndarray = whole.take(places, 0)
    if is_cut.any():
        cut = dataset.select(selection.at(np.flatnonzero(is_cut), ""))
        values[np.repeat(is_cut, selection.lengths) if by_row else is_cut] = values_of(cut)
    return values
