"""Gathering rows by their numbers: of every type and shape, and what is no row."""

from __future__ import annotations

import pytest
import torch

from datasets_cli.schema.bits import MOVABLE, join_tensors, stack_tensors, take

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
    index = torch.randint(NUM_ROWS, (size,))
    for tensor in of_every_type():
        taken = take(tensor, index)
        assert taken.dtype == tensor.dtype
        assert torch.equal(taken, tensor[index])
        assert not taken.nbytes or taken.data_ptr() != tensor.data_ptr()


@pytest.mark.parametrize("wrong", [-1, -NUM_ROWS, -NUM_ROWS - 1, NUM_ROWS, 1 << 40])
def test_number_of_no_row_is_refused(wrong: int) -> None:
    for tensor in of_every_type():
        with pytest.raises(IndexError):
            take(tensor, torch.tensor([0, wrong, 3]))


def test_no_rows_of_no_rows_are_none() -> None:
    for tensor in of_every_type(0):
        assert len(take(tensor, torch.empty(0, dtype=torch.int64))) == 0


@pytest.mark.parametrize("marked", [torch.conj, lambda rows: rows.conj().imag], ids=["conj", "neg"])
def test_rows_that_torch_marks_as_changed_have_the_changed_values(marked: object) -> None:
    rows = marked(torch.randn(NUM_ROWS, 3, dtype=torch.complex64))
    index = torch.tensor([3, 0, 49])
    assert torch.equal(take(rows, index), rows[index])


def test_gradients_go_through_rows_that_have_some() -> None:
    rows = torch.randn(NUM_ROWS, 3, requires_grad=True)
    take(rows, torch.tensor([2, 2])).sum().backward()
    assert rows.grad is not None and rows.grad.sum(1).tolist() == [0, 0, 6, *[0] * 47]


@pytest.mark.parametrize("dim", [0, 1])
def test_joined_tensors_of_every_type_are_those_of_plain_joining(dim: int) -> None:
    for tensor in of_every_type():
        if tensor.ndim > dim:
            expected = torch.cat([tensor, tensor[:, :1] if dim else tensor[:3]], dim)
            joined = join_tensors([tensor, tensor[:, :1] if dim else tensor[:3]], dim)
            assert joined.dtype == tensor.dtype and torch.equal(joined, expected)


@pytest.mark.parametrize("size", [1, 3000, 40_000])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.bfloat16, torch.uint16])
def test_stacked_tensors_are_their_rows_in_order(size: int, dtype: torch.dtype) -> None:
    numbers = torch.arange(25 * size).view(25, size) % 251
    items = [row.to(dtype) for row in numbers]
    stacked = stack_tensors(items)
    assert stacked.dtype == dtype and torch.equal(stacked.long(), numbers)


@pytest.mark.parametrize("odd", [torch.zeros(2999), torch.zeros(3000).double()])
def test_items_that_differ_are_stacked_as_torch_does_or_refused(odd: torch.Tensor) -> None:
    items = [torch.zeros(3000)] * 12 + [odd] * 10
    if len(odd) < 3000:
        with pytest.raises(RuntimeError):
            stack_tensors(items)
    else:
        assert stack_tensors(items).dtype == torch.float64
