"""Storages of a dataset: its rows, and its rows with stacked frames."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from tensordict import NonTensorStack, TensorDict

from datasets_cli.core.options import check_choice, takes_fields
from datasets_cli.core.quantities import counted, few_lines, html_table
from datasets_cli.errors import Unsupported, WrongRows, wrong_value
from datasets_cli.replay.arguments import NestedKey, StateDict, key_of, keys_of, whole_number
from datasets_cli.replay.storages.collate import put_texts, stack_texts
from datasets_cli.replay.storages.options import PreviousRewardOptions, StorageOptions
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.replay.trajectories.bounds import TrajectoryIndex, TrajectoryKeys
from datasets_cli.schema.bits import fill_rows, join_tensors
from datasets_cli.schema.columns import Key, key_in, show_key, wrong_column
from datasets_cli.schema.mapping import choose_device_options
from datasets_cli.schema.shapes import Offsets, RowNumbers
from datasets_cli.schema.texts import TEXT
from datasets_cli.schema.tree import Tree, entry, grow_tree, put
from datasets_cli.store.dataset import Accept, Dataset, open_dataset
from datasets_cli.store.layouts.protocol import GatheredRows, LayoutRows
from datasets_cli.store.selection import Selection
from datasets_cli.store.texts import Values


class DatasetStorage(Storage):
    """A dataset as a read-only storage; a pickle contains its path."""

    # Unpickling, such as in a worker, does not warn about unverified data again.

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset
        self.device_options = dataset.device_options
        self.device = self.device_options.device or torch.device("cpu")
        self._texts = dataset.texts
        if self._texts is None:  # saves a call per batch
            self.gather = dataset.gather  # type: ignore[method-assign]
        self._num_rows = len(dataset)
        # Text, frames, selections and previous rewards are read on the CPU: it would wait for
        # row numbers on another device.
        on_cpu = self._texts, dataset.selection, dataset.previous_reward, dataset.record.frames
        self.index_device = None if any(on_cpu) else self.device_options.storage_device
        self._leaves: dict[Key, LayoutRows] = {}  # readers of single leaves
        is_plain = self.device.type == "cpu" and not self.device_options.pin_memory
        if is_plain and self._texts is None:
            self.row_bytes = dataset.row_bytes
        if dataset.selection is not None:
            self.no_rows = (
                f"The view {'.'.join(dataset.selection.steps)} of {dataset.id} has no rows to "
                "sample. len(view) is the number of rows."
            )

    def __len__(self) -> int:
        return self._num_rows

    def __reduce__(self) -> tuple[object, ...]:
        kind = PreviousRewardOptions if self.dataset.previous_reward else StorageOptions
        options = kind(
            device=self.device_options.device,
            pin_memory=self.device_options.pin_memory,
            contiguous=self.device_options.contiguous,
            text=self._texts is not None,
            columns=self.dataset.chosen,
        )
        return reopen_storage, (self.dataset.folder, options, None, self.dataset.selection)

    def select(self, selection: Selection) -> DatasetStorage:
        """Return the rows of a selection; see ``Dataset.select``."""
        return DatasetStorage(self.dataset.select(selection))

    def __repr__(self) -> str:
        manifest = self.dataset.manifest
        leaves = (
            f"\n    {show_key(column.key)}: {column.dtype} {[len(self), *column.shape]}"
            for column in self.dataset.columns_read
        )
        read = "" if self._texts else ", not read: pass text=True"
        texts = (
            f"\n    {show_key(text.key)}: {TEXT} {[len(self), *text.shape]}{read}"
            for text in manifest.texts
        )
        return few_lines(
            f"DatasetStorage({manifest.id}, shape=[{len(self)}], "
            f"device={self.device_options.device or 'cpu'}: {self._counts}"
            f"{''.join(leaves)}{''.join(texts)})"
        )

    @property
    def _counts(self) -> str:
        """The numbers of rows and trajectories, the layout, and the steps of a view."""
        rows = counted(len(self), "transition")
        trajectories = counted(self.dataset.num_trajectories, "trajectory")
        return f"{rows} in {trajectories}, {self.dataset.manifest.layout}{self._chosen}"

    def _repr_html_(self) -> str:
        import pandas

        columns = [(show_key(c.key), c.dtype, [*c.shape]) for c in self.dataset.columns_read]
        texts = self._texts.columns if self._texts else ()
        columns += [(show_key(text.key), TEXT, [*text.shape]) for text in texts]
        table = pandas.DataFrame(columns, columns=["column", "dtype", "shape of a row"])
        return html_table(f"{self.dataset.id}: {self._counts}", table)

    @property
    def _chosen(self) -> str:
        """The steps of a view, or ``""``."""
        selection = self.dataset.selection
        return "" if selection is None else f", chosen by {'.'.join(selection.steps)}"

    @property
    def offsets(self) -> Offsets:
        """A copy of the offsets; trajectory k starts at row ``offsets[k]``."""
        return self.dataset.offsets

    def reference(self) -> StateDict:
        """Return the id, content and number of rows of the dataset, and the digest of a view."""
        dataset, selection = self.dataset, self.dataset.selection
        view = {} if selection is None else {"view": selection.digest}
        return {"id": dataset.id, "content": dataset.content, "num_rows": len(self), **view}

    def has(self, key: Key) -> bool:
        """Return whether rows have a leaf."""
        return key in self.dataset.keys

    def trajectories(self, keys: TrajectoryKeys) -> TrajectoryIndex:
        """Return the trajectories of the stored table, or of other columns."""
        if keys == TrajectoryKeys():
            offsets = self.offsets
            return TrajectoryIndex(offsets[:-1], offsets.diff(), 1, len(self))
        return super().trajectories(keys)

    def scalar_column(self, key: Key) -> torch.Tensor:
        """Return a column of one number per row, ``[rows, 1]``."""
        if any(text.key == key for text in self.dataset.manifest.texts):
            raise wrong_column(key, "one number per row", TEXT)
        column = self.dataset.columns(key).get(key)
        if column is None or column.numel() != len(self):
            raise WrongRows(
                f"{show_key(key)} is missing or has several numbers per row; expected one.",
                key=key,
                expected="one number per row",
            )
        return column.reshape(-1, 1)

    def entry(self, key: Key, rows: RowNumbers) -> torch.Tensor | None:
        """Return a leaf of rows, reading only this leaf, or None if it does not exist."""
        if key not in self._leaves:
            if not any(column.key == key for column in self.dataset.columns_read):
                return super().entry(key, rows)
            self._leaves[key] = self.dataset.rows_of(frozenset({key}))
        leaf: torch.Tensor = entry(self._leaves[key].gather(rows), key)
        return leaf

    def gather(self, index: RowNumbers) -> Tree:
        """Return copies ``[B, ...]`` of rows as a nested dict."""
        tree = self.dataset.gather(index)
        if self._texts is not None:
            put_texts(tree, self._texts, index)
        return tree

    def read(self, index: RowNumbers) -> GatheredRows | None:
        """Return copies of rows in numpy's memory; None for text, and outside the CPU's memory."""
        return self.dataset.read(index) if self.row_bytes else None

    def get(self, index: RowNumbers) -> TensorDict:
        """Return copies of rows as a TensorDict ``[B]``."""
        self.dataset.check_memory(len(index))
        return self.as_batch(self.gather(index), index.shape)

    def column(self, key: Key) -> torch.Tensor | TensorDict | Values:
        """Return a copy of a leaf, or of all leaves below a key; text as lists of str."""
        texts = self._text_below(key)
        if texts.keys() == {key}:
            return texts[key]
        columns = {} if texts and not self._has_numbers(key) else self.dataset.columns(key)
        if columns.keys() == {key}:
            return columns[key]
        if texts:
            self.dataset.check_memory(len(self))
        entries = {name: self._stacked(name, values) for name, values in texts.items()}
        below = {name[len(key) :]: rows for name, rows in (columns | entries).items()}
        return self.as_batch(grow_tree(below), torch.Size((len(self),)))

    def _text_below(self, key: Key) -> dict[Key, Values]:
        """Return all rows of the text columns at or below a key."""
        if self._texts is None:
            return {}
        names = (name for name in self._texts.keys if name[: len(key)] == key)
        return {name: self._texts.column(name) for name in names}

    def _stacked(self, key: Key, values: Values) -> NonTensorStack:
        assert self._texts is not None, "there is text"
        return stack_texts(values, self._texts.shape(key))

    def _has_numbers(self, key: Key) -> bool:
        """Return whether a column of numbers is at or below a key."""
        return any(column.key[: len(key)] == key for column in self.dataset.columns_read)


@dataclass(frozen=True)
class FolderOptions(StorageOptions):
    """Options of ``open_storage``.

    Args:
        folder: the dataset folder.
    """

    folder: str | Path


@takes_fields(FolderOptions)
def open_storage(options: FolderOptions) -> DatasetStorage:
    """Open the dataset in a folder, such as one that ``preprocess`` wrote, as a storage.

    Raises:
        DatasetNotInstalled: the folder does not contain a dataset.
        DamagedDataset: its files do not match its manifest.

    Warns:
        UnverifiedDataset: its raw files were not verified as the publisher's.
    """
    storage = reopen_storage(options.folder, options)
    storage.dataset.warn_if_unverified()
    return storage


def _chosen(options: StorageOptions) -> list[Key] | None:
    """Return the keys of the columns or groups to read, or None for all."""
    names = options.columns
    if names is None:
        return None
    return keys_of(names if isinstance(names, str | tuple) else [*names])


def reopen_storage(
    folder: str | Path,
    options: StorageOptions,
    accept: Accept | None = None,
    selection: Selection | None = None,
) -> DatasetStorage:
    """Open a dataset, or a selection of its rows, without the warning of ``open_storage``."""
    device_options = choose_device_options(options.device, options.pin_memory, options.contiguous)
    path = Path(os.path.realpath(folder))
    dataset = open_dataset(
        path,
        device_options,
        text=options.text,
        columns=_chosen(options),
        previous_reward=options.previous_reward,
        accept=accept,
    )
    return DatasetStorage(dataset if selection is None else dataset.select(selection))


Padding = Literal["zeros", "repeat"]


def _with_successors(dataset: Dataset, key: Key) -> list[Key]:
    """Return the columns of a key or group, once each of them has a successor."""
    read = {column.key for column in dataset.columns_read}
    below = sorted(each for each in read if each[: len(key)] == key)
    if not below or not {("next", *each) for each in below} <= read:
        raise WrongRows(
            f"{dataset.id} has no {show_key(key)} with a successor next.{show_key(key)} to "
            "stack, or columns= excludes one of them.",
            argument="key",
            id=dataset.id,
            key=key,
        )
    return below


class FrameStack(Storage):
    """A dataset whose observations are stacks of the last steps of a trajectory, oldest first.

        trajectory            o0 o1 o2 o3 o4
        row 2, length 3       observation o0 o1 o2, next.observation o1 o2 o3
        row 0, length 3       observation  .  . o0, next.observation  . o0 o1      . is padding

    Args:
        storage: the rows of a dataset.
        length: steps in a stack, 1 or more.
        key: the column or group of columns to stack; the successors are stacked too.
        padding: the steps before the first of a trajectory: ``"zeros"``, or ``"repeat"``, which
            repeats the first step.

    Raises:
        WrongRows: the dataset does not have the column and its successor.
        Unsupported: ``storage`` is not the storage of a dataset.
        UsageError: ``length`` or ``padding`` is out of range.
    """

    # A run of ``length + 1`` steps is read for both columns.

    def __init__(
        self,
        storage: DatasetStorage,
        length: int,
        *,
        key: NestedKey = ("observation",),
        padding: Padding = "zeros",
    ) -> None:
        self.length = whole_number("length", length, 1)
        check_choice("padding", padding, ("zeros", "repeat"))
        if not isinstance(storage, DatasetStorage):
            raise wrong_value(
                "storage",
                "a DatasetStorage",
                type(storage),
                "Open a dataset with open_storage(folder), or use the transform CatFrames.",
                kind=Unsupported,
            )
        dataset = storage.dataset
        self._key = key_in(dataset.keys, key_of(key))
        self.stacked = _with_successors(dataset, self._key)
        """The keys of the stacked columns, without their successors."""
        self.dataset = dataset
        self.device_options = dataset.device_options
        self.device = self.device_options.device or torch.device("cpu")
        self.no_rows = storage.no_rows
        self._storage = storage
        self._padding = padding
        self._zeros = padding == "zeros"
        pairs = {each: frozenset({each, ("next", *each)}) for each in self.stacked}
        self._rest = dataset.rows_of(frozenset(dataset.keys).difference(*pairs.values()))
        self._pairs = {each: dataset.rows_of(pair) for each, pair in pairs.items()}
        self._starts = dataset.offsets[:-1]

    def __len__(self) -> int:
        return len(self.dataset)

    def __reduce__(self) -> tuple[object, ...]:
        create = functools.partial(FrameStack, key=self._key, padding=self._padding)
        return create, (self._storage, self.length)

    def __repr__(self) -> str:
        return f"FrameStack({self._storage!r}, {self.length})"

    def reference(self) -> StateDict:
        """Return the id, content and number of rows of the dataset."""
        return self._storage.reference()

    def has(self, key: Key) -> bool:
        """Return whether rows have a leaf."""
        return self._storage.has(key)

    def trajectories(self, keys: TrajectoryKeys) -> TrajectoryIndex:
        """Return the trajectories; see ``DatasetStorage.trajectories``."""
        return self._storage.trajectories(keys)

    def scalar_column(self, key: Key) -> torch.Tensor:
        """Return a column of one number per row, ``[rows, 1]``."""
        return self._storage.scalar_column(key)

    def entry(self, key: Key, rows: RowNumbers) -> torch.Tensor | None:
        """Return an entry of rows, or None if it does not exist."""
        roots = (self._key, ("next", *self._key))
        is_stacked = any(key[: len(root)] == root[: len(key)] for root in roots)
        return super().entry(key, rows) if is_stacked else self._storage.entry(key, rows)

    def with_storage(self, storage: DatasetStorage) -> FrameStack:
        """Return stacks of other rows, with the same length, key and padding."""
        return FrameStack(storage, self.length, key=self._key, padding=self._padding)

    @property
    def offsets(self) -> Offsets:
        """A copy of the offsets; trajectory k starts at row ``offsets[k]``."""
        return self.dataset.offsets

    def gather(self, index: torch.Tensor) -> Tree:
        """Return copies ``[B, ...]`` of the rows, stacks ``[B, length, ...]``, as a nested dict."""
        tree = self._rest.gather(index)
        index = index.cpu()
        # By numpy: torch's search waits for its threads if the cores are busy.
        numbers = index.numpy()
        starts = self._starts.numpy()
        first = starts.take(starts.searchsorted(numbers, side="right") - 1)
        age = torch.from_numpy(numbers - first)
        for key, pair in self._pairs.items():
            run = pair.history(key, index, age, self.length)
            if self._zeros:
                # Column c of the run is the step age - length + 1 + c of its trajectory.
                missing = self.length - 1 - age
                padded = torch.arange(self.length + 1) < missing.unsqueeze(1)
                # A mask of all frames would take 100 times as long as the numbers of these frames.
                if len(frames := padded.flatten().nonzero().flatten()):
                    fill_rows(run.view(padded.numel(), *run.shape[2:]), frames)
            put(tree, key, run[:, :-1])
            # A copy: otherwise a change of one of the two columns would change both.
            following = self.dataset.device_options.to_output(join_tensors([run[:, 1:]]))
            put(tree, ("next", *key), following)
        if self.dataset.texts is not None:
            put_texts(tree, self.dataset.texts, index)
        return tree

    def get(self, index: RowNumbers) -> TensorDict:
        """Return copies of rows as a TensorDict ``[B]``."""
        self.dataset.check_memory(len(index) * (self.length + 1))
        return self.as_batch(self.gather(index), index.shape)

    def column(self, key: Key) -> torch.Tensor | TensorDict | Values:
        """Return a copy of a leaf, not stacked; see ``DatasetStorage.column``."""
        return self._storage.column(key)
