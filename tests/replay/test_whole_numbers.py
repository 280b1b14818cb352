"""Whole numbers: what passes for one, and what is said of anything else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from datasets_cli.errors import UsageError
from datasets_cli.replay.arguments import whole_number


@pytest.mark.parametrize("value", [3, np.int16(3), np.uint64(3), torch.tensor(3), np.array(3)])
def test_what_is_as_good_as_an_int_becomes_one(value: Any) -> None:
    number = whole_number("length", value, 3)
    assert number == 3
    assert type(number) is int


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (0, "0"),
        (np.int8(-1), "-1"),
        ("10", "str '10'"),
        (2.0, "float 2.0"),
        (True, "bool True"),
        (np.bool_(True), "bool"),
        (np.float32(2), "float32"),
        (None, "NoneType None"),
        (torch.tensor(2.0), "Tensor tensor(2.)"),
        (torch.tensor([2, 3]), "Tensor tensor([2, 3])"),
        ("1" * 10_000, "str '111"),
    ],
)
def test_anything_else_is_refused_in_one_short_sentence(value: Any, found: str) -> None:
    with pytest.raises(UsageError) as caught:
        whole_number("max_size", value, 1)
    message = str(caught.value)
    assert message.startswith(f"max_size must be a whole number from 1 on, not {found}")
    assert len(message) < 120


def test_without_a_limit_a_number_may_be_negative() -> None:
    assert whole_number("seed", -7) == -7
    with pytest.raises(UsageError, match="seed must be a whole number, not str 'x'"):
        whole_number("seed", "x")
