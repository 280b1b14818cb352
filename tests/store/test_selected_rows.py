"""Rows of a selection, found in the dataset that it is of."""

from __future__ import annotations

import numpy as np
import torch

from datasets_cli.store.selection import SelectedRowMap, Selection


def test_a_few_rows_of_a_dataset_of_billions_are_found() -> None:
    offsets = np.array([0, 4, 2**31, 2**31 + 4])
    parts = Selection("", np.array([2, 0]), np.array([1, 2]), np.array([3, 2]))
    rows = SelectedRowMap(parts, offsets).rows(torch.arange(5))
    assert rows.tolist() == [2**31 + 1, 2**31 + 2, 2**31 + 3, 2, 3]
