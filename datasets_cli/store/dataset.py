"""Opening a committed dataset: mapped read-only; every tensor it returns is a copy."""

from __future__ import annotations

import copy
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch

from datasets_cli.core.system_errors import check_memory
from datasets_cli.errors import UnknownKey, UnverifiedDataset, UsageError, WrongState
from datasets_cli.schema.bits import bits_of, to_array, torch_dtype
from datasets_cli.schema.columns import (
    REWARD,
    Column,
    Key,
    key_in,
    refuse_missing_reward,
    rows_per_block,
    show_key,
)
from datasets_cli.schema.mapping import ON_DISK, DeviceOptions, MappedFiles
from datasets_cli.schema.texts import TEXT_BYTES
from datasets_cli.schema.tree import Tree, entry
from datasets_cli.store.arrays import ArrayRows, ArraySource, Columns, TreeRows
from datasets_cli.store.check import check_sizes
from datasets_cli.store.commit import read_one_copy
from datasets_cli.store.layouts.compact_rows import CompactRows
from datasets_cli.store.layouts.protocol import GatheredRows, LayoutRows
from datasets_cli.store.layouts.records import Record
from datasets_cli.store.layouts.ted_rows import LeafRows
from datasets_cli.store.manifest import Manifest, read_manifest
from datasets_cli.store.selection import SelectedRowMap, SelectedRows, SelectedTexts, Selection
from datasets_cli.store.texts import TextRows

PREVIOUS_REWARD: Key = ("reward",)


def with_previous_reward(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return the columns with the previous reward, if they have rewards."""
    rewards = [column for column in columns if column.key == REWARD]
    if any(column.key[:1] == PREVIOUS_REWARD for column in columns):
        return columns
    return (*columns, *(replace(column, key=PREVIOUS_REWARD) for column in rewards))


class PreviousRewardRows:
    """The rows of a layout with the reward of the previous step; see ``LayoutRows``.

    trajectory      0    0    0    1    1
    next.reward     a    b    c    d    e
    reward          0    a    b    0    d
    """

    # starts: the first row of each trajectory, int64 `[K]`.

    def __init__(self, rows: LayoutRows, rewards: LayoutRows, starts: np.ndarray) -> None:
        self._rows, self._rewards, self._starts = rows, rewards, starts
        self.history = rows.history

    def gather(self, index: torch.Tensor) -> Tree:
        tree = self._rows.gather(index)
        tree[PREVIOUS_REWARD[0]] = self._before(index)
        return tree

    def run(self, start: int, stop: int) -> Tree:
        tree = self._rows.run(start, stop)
        tree[PREVIOUS_REWARD[0]] = self._before(torch.arange(start, stop))
        return tree

    def read(self, index: torch.Tensor) -> GatheredRows:
        before = to_array(self._before(index))
        return self._rows.read(index).with_leaf(PREVIOUS_REWARD[0], before)

    def _before(self, index: torch.Tensor) -> torch.Tensor:
        """Return the previous rewards ``[B, 1]`` of the rows ``index`` int64 ``[B]``."""
        rows = index.cpu().numpy()
        starts = self._starts.take(self._starts.searchsorted(rows), mode="clip")
        reward: torch.Tensor = entry(self._rewards.gather((index - 1).clamp(min=0)), REWARD)
        first = torch.from_numpy((starts == rows).nonzero()[0]).to(reward.device)
        bits_of(reward).index_fill_(0, first, 0)
        return reward


PACKAGE = __name__.partition(".")[0]


Accept = Callable[[Manifest], None]
"""Raises an error if the manifest belongs to another dataset than the caller expects."""


class Dataset(ArraySource):
    """The rows of a committed dataset, or a selection of them; read-only."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        record: Record,
        device_options: DeviceOptions,
        text: bool,
        chosen: Sequence[Key] | None,
        previous_reward: bool,
    ) -> None:
        super().__init__(folder, manifest, record)
        self.previous_reward = previous_reward
        self._columns = manifest.columns
        if previous_reward:
            self._columns = with_previous_reward(self._columns)
        self.device_options = device_options
        self._files = MappedFiles(folder, manifest.files, device_options.storage_device)
        self._whole: Dataset | None = None  # not self: a cycle would keep the files mapped
        self._row_map: SelectedRowMap | None = None
        self.texts: TextRows | SelectedTexts | None = None
        known = [each.key for each in self._columns] + [each.key for each in manifest.texts]
        self.chosen = None if chosen is None else [key_in(known, each) for each in chosen]
        self.columns_read = self._columns
        if chosen is not None:
            self.columns_read = tuple(each for each in self._columns if self._is_read(each.key))
        texts = tuple(each for each in manifest.texts if text and self._is_read(each.key))
        if texts:
            self.texts = TextRows(folder, texts, manifest.files, manifest.num_transitions)
        numbers = [column.key for column in self.columns_read]
        self.keys: tuple[Key, ...] = (*numbers, *(self.texts.keys if self.texts else ()))
        self._check_chosen()
        self._rows: LayoutRows = self.rows_of(frozenset(numbers))
        self.gather = self._rows.gather  # one call fewer in every batch
        self.read = self._rows.read

    def _is_read(self, key: Key) -> bool:
        return self.chosen is None or any(key[: len(each)] == each for each in self.chosen)

    def _check_chosen(self) -> None:
        """Check that each chosen key has columns, and that one of them contains numbers."""
        for each in self.chosen or ():
            if not any(key[: len(each)] == each for key in self.keys):
                error = self._missing(each)
                error.argument = "columns"
                error.prepend("columns: ")
                raise error
        if not self.columns_read:
            raise UsageError(
                f"columns does not name a numeric column of {self.id}. Expected one or more "
                f"of {self._known()}.",
                argument="columns",
                id=self.id,
                found=self.chosen,
            )

    def select(self, selection: Selection) -> Dataset:
        """Return a selection as a dataset with the same files and manifest."""
        manifest = self._manifest
        if selection.content != manifest.content:
            raise WrongState(
                f"The view belongs to content {selection.content[:16]}, but {manifest.id} is "
                f"installed with content {manifest.content[:16]}.",
                id=manifest.id,
                expected=selection.content,
                found=manifest.content,
                advice="Create the view again, or install the dataset with that content.",
            )
        whole = self if self._whole is None else self._whole
        selected = copy.copy(whole)
        selected.selection, selected._whole = selection, whole
        selected._row_map = SelectedRowMap(selection, whole._starts)
        selected._starts = selected._row_map.offsets
        if isinstance(whole.texts, TextRows):
            selected.texts = SelectedTexts(whole.texts, selected._row_map)
        rows = SelectedRows(whole._rows, selected._row_map)
        selected._rows, selected.gather, selected.read = rows, rows.gather, rows.read
        return selected

    @property
    def whole(self) -> Dataset:
        """The dataset of all rows; this object if it is not a selection."""
        return self if self._whole is None else self._whole

    def warn_if_unverified(self) -> None:
        """Warn if the dataset is unverified, at the caller's line outside this package."""
        warn_if_unverified(self._manifest)

    def __len__(self) -> int:
        return self._manifest.num_transitions if self._row_map is None else len(self._row_map)

    @property
    def offsets(self) -> torch.Tensor:
        """A copy of the offsets int64 ``[K + 1]``; trajectory k is rows ``offsets[k:k+2]``."""
        return torch.from_numpy(self.starts)

    @cached_property
    def row_bytes(self) -> int:
        """Bytes of one row in the numeric columns that are read."""
        return sum([column.row_bytes for column in self.columns_read])

    def columns(self, key: Key) -> dict[Key, torch.Tensor]:
        """Return copies of all rows of a leaf, or of every leaf below a key, without text."""
        wanted = [c for c in self.columns_read if c.key[: len(key)] == key]
        if not wanted:
            raise self._missing(key)
        check_memory(sum(column.row_bytes for column in wanted) * len(self), self.id)
        rows = self.rows_of(frozenset(column.key for column in wanted))
        whole = {
            column.key: torch.empty((len(self), *column.shape), dtype=torch_dtype(column.dtype))
            for column in wanted
        }
        step = rows_per_block(sum(column.row_bytes for column in wanted))
        for start in range(0, len(self), step):
            stop = min(start + step, len(self))
            tree = rows.run(start, stop)
            for name, leaf in whole.items():
                leaf[start:stop] = entry(tree, name)
        return whole

    def blocks(self) -> Iterator[Columns]:
        """Yield all rows in order, in bounded blocks of numpy columns without text."""
        rows = TreeRows(self._rows, to_array, torch.from_numpy)
        step = rows_per_block(self.row_bytes)
        for start in range(0, len(self), step):
            yield rows.run(start, min(start + step, len(self)))

    def arrays_of(self, keys: frozenset[Key]) -> ArrayRows:
        """Return the rows of only these leaves, as numpy arrays."""
        return TreeRows(self.rows_of(keys), to_array, torch.from_numpy)

    def _missing(self, key: Key) -> UnknownKey:
        """Return the error of a key without columns, or whose columns are not read."""
        id, name, expected, advice = self.id, show_key(key), None, None
        if any(text.key[: len(key)] == key for text in self._manifest.texts):
            problem, advice = f"{name} of {id} is text.", "Pass text=True to read it."
        elif any(column.key[: len(key)] == key for column in self._columns):
            problem, advice = f"{name} of {id} is not read.", "Add it to columns=."
        else:
            refuse_missing_reward(key, "this call", id)
            expected = self._known()
            nested = key_in((column.key for column in self._columns), key)
            advice = f"Write {nested}." if nested != key else None
            problem = f"{id} has no {name}. It has: {expected}."
        return UnknownKey(problem, id=id, key=key, expected=expected, advice=advice)

    def _known(self) -> str:
        texts = self.texts.keys if self.texts else ()
        numbers = (column.key for column in self._columns)
        return ", ".join(show_key(key) for key in (*numbers, *texts))

    def rows_of(self, keys: frozenset[Key]) -> LayoutRows:
        """Return the rows of only these leaves."""
        if self._row_map is not None:
            return SelectedRows(self.whole.rows_of(keys), self._row_map)
        manifest = self._manifest
        if PREVIOUS_REWARD in keys and self._columns is not manifest.columns:
            rows = self.rows_of(keys - {PREVIOUS_REWARD})
            return PreviousRewardRows(rows, self.rows_of(frozenset({REWARD})), self._starts[:-1])
        if manifest.layout == "compact":
            num_rows, options = manifest.num_transitions, self.device_options
            return CompactRows(self._files, self.record, num_rows, options, keys)
        columns = [column for column in manifest.columns if column.key in keys]
        return LeafRows(self._files, columns, manifest.num_transitions, self.device_options)

    @property
    def packed_rows(self) -> CompactRows | None:
        """The reader of rows as records; None for another layout, text, or a device."""
        is_plain = self.texts is None and not self.device_options.moves
        return self._rows if is_plain and isinstance(self._rows, CompactRows) else None

    def run(self, start: int, stop: int) -> Tree:
        """Return copies of the rows ``start`` to ``stop - 1``, as a nested dict."""
        self.check_memory(stop - start)
        return self._rows.run(start, stop)

    def check_memory(self, num_rows: int) -> None:
        """Check that a copy of n rows fits into half of the free memory."""
        texts = self.texts.columns if self.texts else ()
        row_bytes = self.row_bytes + TEXT_BYTES * sum(math.prod(text.shape) for text in texts)
        check_memory(num_rows * row_bytes, self.id)


def open_dataset(
    folder: Path,
    device_options: DeviceOptions = ON_DISK,
    *,
    text: bool = False,
    columns: Sequence[Key] | None = None,
    previous_reward: bool = False,
    accept: Accept | None = None,
) -> Dataset:
    """Open the dataset in ``folder``; it stays readable if the folder is replaced or deleted."""

    def read() -> Dataset:
        manifest = read_manifest(folder)
        if accept is not None:
            accept(manifest)
        record = check_sizes(folder, manifest, final=False)
        device = device_options.storage_device
        if device is not None and device.type == "cpu":
            check_memory(manifest.size_bytes, manifest.id)
        return Dataset(folder, manifest, record, device_options, text, columns, previous_reward)

    return read_one_copy(folder, read)


def warn_if_unverified(manifest: Manifest) -> None:
    """Warn if a dataset is unverified, at the caller's line outside this package."""
    if reasons := manifest.unverified:
        warn_caller(
            f"{manifest.id} is unverified: {_explanation(manifest, reasons[0])} To hide this "
            'warning: warnings.simplefilter("ignore", datasets_cli.errors.UnverifiedDataset).',
            UnverifiedDataset,
        )


def warn_caller(text: str, category: type[Warning]) -> None:
    """Warn at the caller's line outside this package."""
    # Python's filters apply, but not its registry: it would hide a second warning at one line.
    caller = sys._getframe()
    while caller.f_back is not None:
        if str(caller.f_globals.get("__name__")).partition(".")[0] != PACKAGE:
            break
        caller = caller.f_back
    warnings.warn_explicit(
        text,
        category,
        filename=caller.f_code.co_filename,
        lineno=caller.f_lineno,
        module=caller.f_globals.get("__name__", "__main__"),
        registry={},
    )


def _explanation(manifest: Manifest, reason: str) -> str:
    """Return the reason why a dataset is unverified, and the next step."""
    if manifest.parent is None:
        return (
            f"its raw files may differ from the publisher's ({reason}). To install the published "
            f"files: rlds download --force {manifest.id}."
        )
    parent = manifest.parent["id"]
    return (
        f"it is derived from {parent}, whose raw files may differ from the publisher's. Install "
        f"the published files (rlds download --force {parent}), and derive it again."
    )
