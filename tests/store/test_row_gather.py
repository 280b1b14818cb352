"""Gathering rows of several tensors at once, whatever takes them: the rows, and what is no row."""

from __future__ import annotations

import pytest
import torch

from datasets_cli.schema.bits import MOVABLE
from datasets_cli.store.layouts.ted_rows import THREADED_BYTES, RowGather

NUM_ROWS = 50
SHAPES = [(), (1,), (17,), (3, 2), (0,)]


def of_every_type(num_rows: int = NUM_ROWS) -> list[torch.Tensor]:
    torch.manual_seed(0)
    bits = [torch.randint(0, 2, (num_rows, *shape, 16), dtype=torch.uint8) for shape in SHAPES]
    types = sorted(MOVABLE, key=str)
    return [
        rows[..., : dtype.itemsize].clone().view(dtype)[..., 0] for rows in bits for dtype in types
    ]


@pytest.mark.parametrize("size", [0, 1, 7, 4096])
def test_rows_of_every_type_and_shape_are_those_of_plain_indexing(size: int) -> None:
    tensors = of_every_type()
    index = torch.randint(NUM_ROWS, (size,))
    for found, tensor in zip(RowGather(tensors).rows(index), tensors, strict=True):
        assert found.dtype == tensor.dtype
        assert torch.equal(found, tensor[index])
        assert not found.nbytes or found.data_ptr() != tensor.data_ptr()


@pytest.mark.parametrize("row_bytes", [2, 64, THREADED_BYTES])
@pytest.mark.parametrize("wrong", [-1, -NUM_ROWS, -NUM_ROWS - 1, NUM_ROWS, 1 << 40])
def test_number_of_no_row_is_refused(row_bytes: int, wrong: int) -> None:
    flag, wide = torch.zeros(NUM_ROWS, 1), torch.zeros(NUM_ROWS, row_bytes, dtype=torch.uint8)
    for tensors in ([wide, wide], [flag, wide], [wide, flag, torch.zeros(NUM_ROWS)]):
        with pytest.raises(IndexError, match="out of range"):
            RowGather(tensors).rows(torch.tensor([0, wrong, 3]))


def test_no_rows_of_no_rows_are_none() -> None:
    for found in RowGather(of_every_type(0)).rows(torch.empty(0, dtype=torch.int64)):
        assert len(found) == 0
