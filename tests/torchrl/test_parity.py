"""Storages x samplers x writers x buffers against TorchRL 0.14.1, on random rows and calls.

Every pair of them is tested always; the other combinations are slow tests. What TorchRL cannot run,
or runs wrongly, is in ``LEFT_OUT`` and not in the matrix: test_parity_defects.py names each defect
and shows what is right.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.support.covering import covering
from tests.support.parity import (
    CAPACITY,
    FIXED,
    Calls,
    calls,
    form,
    full_rows,
    kept,
    ours,
    same,
    theirs,
)
from tests.support.torchrl_trees import trees  # noqa: F401

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

STORAGES: dict[str, Any] = {
    "list": lambda library: library.ListStorage(CAPACITY),
    "memory": lambda library: library.LazyTensorStorage(CAPACITY),
    "files": lambda library: library.LazyMemmapStorage(CAPACITY),
    "tensors": lambda library: library.TensorStorage(full_rows()),
    "memory of 2": lambda library: library.LazyTensorStorage(2 * CAPACITY, ndim=2),
    "files of 2": lambda library: library.LazyMemmapStorage(2 * CAPACITY, ndim=2),
}
SAMPLERS: dict[str, Any] = {
    "random": lambda library: library.RandomSampler(),
    "epoch": lambda library: library.SamplerWithoutReplacement(),
    "in order": lambda library: library.SamplerWithoutReplacement(shuffle=False),
    "whole batches": lambda library: library.SamplerWithoutReplacement(True, shuffle=False),
    "slices": lambda library: library.SliceSampler(slice_len=2),
    "slices once": lambda library: library.SliceSamplerWithoutReplacement(slice_len=1),
    "priorities": lambda library: library.PrioritizedSampler(2 * CAPACITY, 0.7, 0.5),
    "slices by priority": lambda library: library.PrioritizedSliceSampler(
        2 * CAPACITY, 0.7, 0.5, slice_len=2
    ),
}
WRITERS = ["RoundRobinWriter", "TensorDictRoundRobinWriter", "TensorDictMaxValueWriter"]
BUFFERS = ["ReplayBuffer", "TensorDictReplayBuffer"]

LEFT_OUT = {
    ("list", "slices"): "no slices of a list: RuntimeError",
    ("list", "slices once"): "the same",
    ("list", "slices by priority"): "the same",
    ("of 2", "TensorDictMaxValueWriter"): "both refuse it",
    ("of 2", "TensorDictRoundRobinWriter", " ReplayBuffer"): "index names the step alone",
    ("of 2", "slices by priority"): "slices of a ring cross ends (pytorch/rl#2208)",
    ("slices", "TensorDictMaxValueWriter"): "rows by rank have no order in time",
}
# Left out of all: a storage of one row, whose slices raise IndexError; of two dimensions add, and
# extend by one step, which raise RuntimeError in a TensorDictReplayBuffer; TensorStorage of two
# dimensions, whose rows are counted as its steps are.


def is_left_out(*parts: str) -> bool:
    name = ", ".join(parts)
    return any(all(part in name for part in combination) for combination in LEFT_OUT)


MATRIX = [
    parts
    for parts in itertools.product(STORAGES, SAMPLERS, WRITERS, BUFFERS)
    if not is_left_out(*parts)
]


def drawn(buffer: Any, sampler: str) -> Any:
    """The form of a batch and of its info, and what can be drawn; None where nothing can.

    What can be drawn is rows; of slices those they begin with; without replacement how long each
    batch is, too.
    """
    try:
        batch, info = buffer.sample(2, return_info=True)
    except (RuntimeError, ValueError):
        return None
    forms = form(batch), form(info)
    if sampler in ("random", "priorities"):
        return *forms, set(buffer.sample(600)["number"].tolist())
    if sampler in ("slices", "slices by priority"):
        return *forms, set(buffer.sample(3000)["number"][::2].tolist())
    more = [buffer.sample(2) for _ in range(CAPACITY)]  # an epoch and a bit of the next
    batches = [some["number"].tolist() for some in (batch, *more)]
    if sampler in ("in order", "whole batches"):
        return *forms, batches
    rows = set(itertools.chain(*batches)) if sampler == "epoch" else None
    return *forms, rows, [len(rows) for rows in batches]


@pytest.mark.parametrize(("storage", "sampler", "writer", "buffer"), covering(MATRIX))
@settings(max_examples=2, phases=[Phase.generate])
@given(data=st.data())
def test_both_libraries_do_the_same(
    storage: str, sampler: str, writer: str, buffer: str, data: Any
) -> None:
    of_2 = "of 2" in storage
    made: Calls = data.draw(calls(fewest=2 if of_2 else 0))
    if storage == "tensors":
        made = dataclasses.replace(made, leaves=FIXED)
    one, other = (
        getattr(library, buffer)(
            storage=STORAGES[storage](library),
            sampler=SAMPLERS[sampler](library),
            writer=getattr(library, writer)(),
            batch_size=2 if sampler == "whole batches" else None,
        )
        for library in (ours, theirs)
    )
    width = 2 if of_2 else None
    assert made.write(one, width) == made.write(other, width)
    assert len(one) == len(other)
    same_rows = same(kept(one), kept(other))
    assert same_rows
    found, right = drawn(one, sampler), drawn(other, sampler)
    if right and (writer, buffer) == ("TensorDictMaxValueWriter", "ReplayBuffer"):
        right[0].pop("index", None)  # add leaves one among the rows, which for others is 0
    assert found == right


@pytest.mark.parametrize("reduction", ["sum", "max", "min", "mean", "median"])
@settings(max_examples=8)
@given(made=calls())
def test_rows_of_several_numbers_are_ranked_alike(reduction: str, made: Calls) -> None:
    one, other = (
        library.ReplayBuffer(
            storage=library.LazyTensorStorage(3),
            writer=library.TensorDictMaxValueWriter("ranks", reduction=reduction),
        )
        for library in (ours, theirs)
    )
    for rows in made.rows():
        reward = rows["next", "reward"]
        rows["ranks"] = torch.cat([reward, 5 - reward, rows["number"].view(-1, 1) % 4], 1)
        assert one.extend(rows.clone()).tolist() == other.extend(rows.clone()).tolist()
    same_rows = same(kept(one), kept(other))
    assert same_rows
