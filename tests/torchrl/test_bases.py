"""Which class derives from which: code that asks with isinstance is told what TorchRL's is."""

from __future__ import annotations

import itertools

import pytest

from tests.support.parity import ours, theirs

STORAGES = ("TensorStorage", "LazyTensorStorage", "LazyMemmapStorage", "ListStorage")


@pytest.mark.parametrize(("first", "second"), [*itertools.permutations(STORAGES, 2)])
def test_storages_derive_from_one_another_as_torchrls_do(first: str, second: str) -> None:
    derives = issubclass(getattr(theirs, first), getattr(theirs, second))
    assert issubclass(getattr(ours, first), getattr(ours, second)) == derives
