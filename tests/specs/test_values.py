"""What values a spec has: drawn, checked, projected and encoded."""

from __future__ import annotations

import torch

from datasets_cli import Bounded, BoundedTensorSpec, Categorical, Composite, OneHot, Unbounded


def test_a_one_hot_vector_is_drawn_by_one_call_of_randint() -> None:
    spec = OneHot(2, dtype=torch.int64)
    torch.manual_seed(0)
    drawn = torch.stack([spec.rand() for _ in range(20)])
    torch.manual_seed(0)
    expected = torch.stack([torch.randint(2, ()) for _ in range(20)])
    assert drawn.argmax(-1).tolist() == expected.tolist()
    assert spec.is_in(drawn)


def test_projecting_clamps_to_the_bounds() -> None:
    spec = BoundedTensorSpec(minimum=-1.0, maximum=1.0, shape=(3,))
    value = torch.tensor([2.0, 0.0, -3.0])
    assert not spec.is_in(value)
    assert spec.project(value).tolist() == [1, 0, -1]
    assert value.tolist() == [2, 0, -3]


def test_a_number_is_encoded_as_a_number_or_a_vector() -> None:
    assert Categorical(3).encode(2).tolist() == 2
    assert OneHot(4).encode(2).tolist() == [False, False, True, False]
    assert OneHot(4).to_numpy(OneHot(4).encode(2)) == 2


def test_a_composite_makes_tensordicts_of_its_batch_size() -> None:
    spec = Composite(a=Bounded(-1, 1, (4,)), b={"c": Unbounded((1,))}).expand(3)
    batch = spec.rand((2,))
    assert batch.batch_size == (2, 3)
    assert batch["b", "c"].shape == (2, 3, 1)
    assert spec.is_in(batch)
    assert not spec.is_in(batch.exclude("a"))
