"""What a format of batches is to the rest of the library."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Protocol

from datasets_cli.replay.arguments import Rows
from datasets_cli.replay.storages.protocol import Storage
from datasets_cli.schema.columns import Column, Key, show_key
from datasets_cli.schema.tree import Tree


class BatchFormat(Protocol):
    """Makes nested dicts of arrays of batches; TensorDicts of torch need none."""

    name: ClassVar[str]

    @abstractmethod
    def check(self, storage: Storage) -> None:
        """Check that the rows of a storage can be given as they are."""

    @abstractmethod
    def from_tree(self, tree: Tree) -> Tree:
        """Return a nested dict of leaves that are ours, in this format; it is changed in place."""

    @abstractmethod
    def from_batch(self, batch: Rows, key: Key = ()) -> Rows:
        """Return a batch, a row or a column of torch in this format."""
        # TensorDicts and tensorclasses become nested dicts, tensors arrays, and text str or lists
        # of them. Lists, tuples and dicts stay, and what is none of these.


def columns_of(storage: Storage) -> tuple[Column, ...]:
    """Return the columns of a storage whose rows are a dataset; none where they are not."""
    dataset: Any = getattr(storage, "dataset", None)
    found: tuple[Column, ...] = () if dataset is None else dataset.manifest.columns
    return found


def show_columns(columns: list[tuple[Key, str]]) -> str:
    """Return keys and their element types, as messages name them."""
    return ", ".join(f"{show_key(key)} ({dtype})" for key, dtype in columns)
