"""The interface of the layouts."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch

from datasets_cli.schema.columns import Key
from datasets_cli.schema.tree import Tree


class GatheredRows(Protocol):
    """Rows from one gather of a layout; batches are views of them."""

    def __len__(self) -> int:
        """Return the number of rows."""

    def arrays(self, start: int, stop: int) -> Tree:
        """Return the rows ``start`` to ``stop - 1`` as a nested dict of numpy views."""

    def tree(self, start: int, stop: int) -> Tree:
        """Return the rows ``start`` to ``stop - 1`` as a nested dict of tensors, also views."""

    def with_leaf(self, name: str, leaf: np.ndarray) -> GatheredRows:
        """Return the rows with one more leaf ``[B, ...]``, at the root."""


class LayoutRows(Protocol):
    """The rows of a dataset in one layout."""

    def gather(self, index: torch.Tensor) -> Tree:
        """Return copies ``[B, ...]`` of the rows ``index`` int64 ``[B]``, as a nested dict."""

    def run(self, start: int, stop: int) -> Tree:
        """Return copies of the rows ``start`` to ``stop - 1``, as a nested dict.

        The time depends only on the columns that are read.

        Raises:
            OutOfRange: a row does not exist.
            DamagedDataset: as ``gather``.
        """

    def read(self, index: torch.Tensor) -> GatheredRows:
        """Return copies of the rows ``index`` int64 ``[B]`` in memory of numpy.

        The rows must be in memory or on the disk, not on another device.

        Raises:
            OutOfRange: a row does not exist.
            DamagedDataset: as ``gather``.
        """

    def history(
        self, key: Key, index: torch.Tensor, age: torch.Tensor, length: int
    ) -> torch.Tensor:
        """Return the last steps of a leaf, and the following step.

        Args:
            key: a leaf that has a successor.
            index: rows int64 ``[B]``.
            age: the number of earlier rows in the trajectory of each row, int64 ``[B]``.
            length: number of steps up to the row itself; the first step of a trajectory is
                repeated as padding.

        Returns:
            ``[B, length + 1, *shape]``, oldest first; a copy.
        """
